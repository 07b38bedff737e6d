/** `tailcast coverage`: which sessions the API server let happen, and which of them have no recording. */
import { createReadStream } from 'node:fs';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import type { CommandContext } from '../config/command-context.ts';
import { TailcastError, errorText } from '../errors.ts';
import { isAuditEvent, parseAuditedSession, type AuditedSession } from '../kube/audit-log.ts';
import { AUDIT_ID_KEY, parseCastHeader } from '../wire/asciicast/header.ts';
import type { Archive } from './archive.ts';
import { MAX_LINE_BYTES } from './archive.ts';
import { readTextLines } from '../wire/lines.ts';
import { NO_KEY_NAMED } from './directory-archive.ts';
import { openArchive } from './open-archive.ts';
import { print, printJson, printTable } from './output.ts';

/**
 * - `recorded`: there is a recording of this very session
 * - `unrecorded`: it came through a gateway, and could have been recorded, and is not
 * - `direct`: nothing in the audit log says that it came through a gateway: past it, or through one without `auditExtras`
 * - `unrecordable`: it came through a gateway, and is of a kind that is never recorded
 *
 * In noauth mode the audit log has no sign of a gateway but the audit id of a recorded session, so there a session is
 * `recorded` or `direct`.
 */
export type Coverage = 'recorded' | 'unrecorded' | 'direct' | 'unrecordable';

export interface CoveredSession extends AuditedSession {
  readonly coverage: Coverage;
}

const RECORDABLE: ReadonlySet<string> = new Set(['exec', 'attach']);

/** What a recording says of its session. */
export interface RecordedSession {
  /** The gateway's id. */
  readonly id: string;
  /** Whether the gateway impersonated the user: else the session ran under whatever name the client's credentials have. */
  readonly isImpersonated: boolean;
  /** Login name of a person, name of a tagged node. */
  readonly user: string;
  /** `exec` or `attach`. */
  readonly subresource: string;
  readonly namespace: string;
  readonly name: string;
}

/**
 * A recording whose session cannot be found in the audit log, so that its line there counts as one without a recording.
 * `chosen`: in noauth mode the client had brought an audit id of its own, and somebody who chooses ids could have one recording
 * cover something else. `none`: its producer gave it no id. `unsigned`: no trusted recorder signed it, so anybody with write
 * access to the store could have made it.
 */
export interface UntiedRecording extends Omit<RecordedSession, 'isImpersonated'> {
  /** The recording. */
  readonly id: string;
  readonly time: string;
  readonly because: 'chosen' | 'none' | 'unsigned';
}

/**
 * Joins by the gateway's id of a session, which is the audit id, the extra, and `connectionID` of the recording. An audit
 * id alone proves little, because the API server takes it from whoever asks: so a recording must also be of the same place
 * and, where the gateway said who it is, of the same user. It covers one session only, and that is the first one, because
 * ids cannot be known beforehand. Pure.
 */
export function judgeCoverage(
  sessions: Iterable<AuditedSession>,
  recordings: Iterable<RecordedSession>,
): readonly CoveredSession[] {
  const byId = new Map(Array.from(recordings, (recording) => [recording.id, recording]));
  const distinct = new Map<string, AuditedSession>();
  // the events of one session share the time at which it was asked for
  for (const session of sessions) distinct.set(`${session.time} ${session.auditId} ${session.user}`, session);
  const inOrder = [...distinct.values()].toSorted((a, b) => a.time.localeCompare(b.time));
  return inOrder.map((session) => {
    const recording = byId.get(session.gatewayId ?? session.auditId);
    if (recording === undefined || !isOf(recording, session)) return { ...session, coverage: gapOf(session) };
    byId.delete(recording.id);
    return { ...session, coverage: 'recorded' };
  });
}

function isOf(recording: RecordedSession, session: AuditedSession): boolean {
  const isSameUser = session.impersonatedBy !== undefined && session.user === recording.user;
  return (
    (isSameUser || !recording.isImpersonated) &&
    session.resource === 'pods' &&
    session.subresource === recording.subresource &&
    session.namespace === recording.namespace &&
    session.name === recording.name
  );
}

function gapOf({ gatewayId, subresource }: AuditedSession): Coverage {
  if (gatewayId === undefined) return 'direct';
  return RECORDABLE.has(subresource) ? 'unrecorded' : 'unrecordable';
}

/**
 * Prints the sessions that are missing, one line each, or all of them as JSON objects with `--json`.
 *
 * @returns the exit code: 0 when every session that can be recorded is, 1 otherwise
 * @throws TailcastError `AUDIT_LOG_UNUSABLE` when a log is none, is empty or was cut: then nothing can be said,
 *   `RECORDER_UNREACHABLE`
 */
export async function reportCoverage(
  auditLogs: readonly string[],
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<number> {
  const archive = await openArchive(options, context);
  const { recorded, untied } = await readRecordedSessions(archive);
  const sessions: AuditedSession[] = [];
  for (const path of auditLogs) sessions.push(...(await readSessions(path)));
  const judged = judgeCoverage(sessions, recorded);
  const missing = judged.filter(({ coverage }) => coverage === 'unrecorded' || coverage === 'direct');
  if (options['json'] === true) {
    for (const session of judged) await printJson(context.stdout, session);
    for (const recording of untied) await printJson(context.stdout, { ...recording, coverage: 'untied' });
  } else {
    const because = (reason: UntiedRecording['because']): readonly UntiedRecording[] =>
      untied.filter((recording) => recording.because === reason);
    const [chosen, unsigned] = [because('chosen'), because('unsigned')];
    const rows = [...missing.map(rowOf), ...[...chosen, ...unsigned].map(untiedRowOf)];
    if (rows.length > 0) {
      await printTable(context.stdout, { header: ['WHEN', 'WHO', 'WHAT', 'WHERE', 'BECAUSE'], rows });
    }
    const count = (coverage: Coverage): number =>
      judged.filter((session) => session.coverage === coverage).length;
    await print(
      context.stdout,
      `${judged.length} sessions: ${count('recorded')} recorded, ${count('unrecorded')} unrecorded, ${count('direct')} without a sign of a gateway, ${count('unrecordable')} of other kinds\n`,
    );
    const { length: without } = because('none');
    const unsignedText = unsigned.length === 0 ? '' : `, ${unsigned.length} without a trusted signature`;
    if (untied.length > 0)
      await print(
        context.stdout,
        `${untied.length} recordings cannot be tied to an audit log: ${chosen.length} of clients that had chosen the audit id, ${without} without an id${unsignedText}\n`,
      );
  }
  return missing.length === 0 ? 0 : 1;
}

function rowOf(session: CoveredSession): readonly string[] {
  const { time, user, impersonatedBy, subresource, resource, namespace, name, coverage } = session;
  const who = coverage === 'direct' && impersonatedBy !== undefined ? `${user} (by ${impersonatedBy})` : user;
  const what = resource === '' ? name : `${resource}/${name}`;
  const where = [namespace, what].filter((part) => part !== '').join(' ');
  const because = coverage === 'direct' ? 'no sign of a gateway' : 'no recording';
  return [time, who, subresource === '' ? 'upgrade' : subresource, where, because];
}

function untiedRowOf(recording: UntiedRecording): readonly string[] {
  const { time, user, subresource, namespace, name, id } = recording;
  const reason =
    recording.because === 'chosen'
      ? 'its client had chosen the audit id'
      : 'no recorder that is trusted signed it';
  const because = `recorded as ${id}, but ${reason}`;
  return [time, user, subresource, `${namespace} pods/${name}`, because];
}

async function readSessions(path: string): Promise<readonly AuditedSession[]> {
  const sessions: AuditedSession[] = [];
  let number = 0;
  let events = 0;
  try {
    for await (const line of readTextLines(createReadStream(path), MAX_LINE_BYTES)) {
      number += 1;
      if (line === '') continue;
      if (!isAuditEvent(line)) throw new Error(`line ${number} is no whole audit event (audit.k8s.io/v1)`);
      events += 1;
      const session = parseAuditedSession(line);
      if (session !== undefined) sessions.push(session);
    }
    if (events === 0) throw new Error('there is no event in it');
  } catch (error) {
    throw new TailcastError('AUDIT_LOG_UNUSABLE', `${path}: ${errorText(error)}`, { cause: error });
  }
  return sessions;
}

/** What the first line of each recording says. */
async function readRecordedSessions(
  archive: Archive,
): Promise<{ readonly recorded: readonly RecordedSession[]; readonly untied: readonly UntiedRecording[] }> {
  const recorded: RecordedSession[] = [];
  const untied: UntiedRecording[] = [];
  for await (const recording of archive.list({})) {
    const found = await readRecordedSession(archive, recording);
    if (found === undefined) continue;
    if ('because' in found) untied.push(found);
    else recorded.push(found);
  }
  return { recorded, untied };
}

async function readRecordedSession(
  archive: Archive,
  recording: ListedRecording,
): Promise<RecordedSession | UntiedRecording | undefined> {
  try {
    for await (const line of archive.lines(recording, { follow: false })) {
      const {
        connectionID: id,
        srcNode,
        srcNodeUser: user = srcNode,
        kubernetes,
        extra,
      } = parseCastHeader(line);
      if (kubernetes === undefined) return undefined;
      const { SessionType: subresource, Namespace: namespace, PodName: name } = kubernetes;
      const about = { user, subresource, namespace, name };
      const auditId = extra.get(AUDIT_ID_KEY);
      const at = { id: recording.id, time: recording.startedAt };
      const { trust = 'verified', trustReason } = recording;
      // without a key the store is taken at its word
      if (trust !== 'verified' && trustReason !== NO_KEY_NAMED)
        return { ...at, because: 'unsigned', ...about };
      if (id !== '' && (auditId === undefined || auditId === id))
        return { id, isImpersonated: auditId === undefined, ...about };
      const because = id === '' ? 'none' : 'chosen';
      return { ...at, because, ...about };
    }
  } catch {
    // a recording whose beginning cannot be read proves nothing
  }
  return undefined;
}
