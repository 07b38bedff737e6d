/** `tailcast coverage`: compares the sessions in an audit log of the API server with the recordings. */
import { createReadStream } from 'node:fs';
import type { CommandContext } from '../config/command-context.ts';
import { TailcastError, errorText } from '../errors.ts';
import { isAuditEvent, parseAuditedSession, type AuditedSession } from '../kube/audit-log.ts';
import { MAX_LINE_BYTES, type Archive, type ArchivedRecording } from './archive.ts';
import { readTextLines } from '../wire/lines.ts';
import { openArchive } from './open-archive.ts';
import { print, printJson, printTable } from './output.ts';
import type { Options } from './tool.ts';

/**
 * Result for one session:
 * - `recorded`: a recording of this session exists
 * - `unrecorded`: the session came through a gateway and could have been recorded, but has no recording
 * - `direct`: the audit log does not show that the session came through a gateway; the session came directly, or
 *   through a gateway without `auditExtras`
 * - `unrecordable`: the session came through a gateway, but sessions of this kind are never recorded
 *
 * In noauth mode, only the audit ids of recorded sessions show that a session came through a gateway. Every session is
 * then `recorded` or `direct`.
 */
export type Coverage = 'recorded' | 'unrecorded' | 'direct' | 'unrecordable';

export interface CoveredSession extends AuditedSession {
  readonly coverage: Coverage;
}

const RECORDABLE: ReadonlySet<string> = new Set(['exec', 'attach']);

/** Properties of a recorded session, read from the list of recordings. */
export interface RecordedSession {
  /** Session id of the gateway. */
  readonly id: string;
  /**
   * True if the gateway impersonated the user. Otherwise the session ran under the name in the client's credentials.
   */
  readonly isImpersonated: boolean;
  /** Login name of a person, or name of a tagged tailnet node. */
  readonly user: string;
  /** `exec` or `attach`. */
  readonly subresource: string;
  readonly namespace: string;
  readonly name: string;
}

/**
 * A recording that cannot be matched with a session in the audit log. Its session then counts as not recorded.
 * - `chosen`: in noauth mode the client chose the audit id. A client that chooses ids could make one recording cover
 *   another session.
 * - `none`: the recording contains no id of its session.
 * - `unsigned`: no trusted recorder signed the recording, so every process with write access to the store could have
 *   made it.
 */
export interface UntiedRecording extends Omit<RecordedSession, 'isImpersonated'> {
  /** Id of the recording. */
  readonly id: string;
  readonly time: string;
  readonly because: 'chosen' | 'none' | 'unsigned';
}

/**
 * Matches sessions and recordings by the gateway's session id. An audit event contains this id as its audit id or in an
 * audit extra. A recording contains it as `connectionID`. An audit id proves little, because clients can send audit ids
 * and the API server accepts them. The recording must therefore also have the same target. If the gateway impersonated
 * the user, the recording must have the same user. If several sessions have the id of a recording, the recording covers
 * only the first of these sessions, because a client cannot send an id before the recorded session has used it. Pure.
 */
export function compareCoverage(
  sessions: Iterable<AuditedSession>,
  recordings: Iterable<RecordedSession>,
): readonly CoveredSession[] {
  const byId = new Map(Array.from(recordings, (recording) => [recording.id, recording]));
  const distinct = new Map<string, AuditedSession>();
  // several audit events of one session have the same request time
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
 * Prints one line for each session without a recording. With `--json`, prints all sessions as JSON objects.
 *
 * @returns the exit code: 0 if every recordable session is recorded, 1 otherwise
 * @throws TailcastError `AUDIT_LOG_UNUSABLE` for an invalid, empty or truncated log, `RECORDER_UNREACHABLE`
 */
export async function reportCoverage(
  auditLogs: readonly string[],
  options: Options,
  context: CommandContext,
): Promise<number> {
  const archive = await openArchive(options, context);
  const { recorded, untied } = await readRecordedSessions(archive);
  const sessions: AuditedSession[] = [];
  for (const path of auditLogs) sessions.push(...(await readSessions(path)));
  const results = compareCoverage(sessions, recorded);
  const missing = results.filter(({ coverage }) => coverage === 'unrecorded' || coverage === 'direct');
  if (options['json'] === true) {
    for (const session of results) await printJson(context.stdout, session);
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
      results.filter((session) => session.coverage === coverage).length;
    await print(
      context.stdout,
      `${results.length} sessions: ${count('recorded')} recorded, ${count('unrecorded')} unrecorded, ` +
        `${count('direct')} without a sign of a gateway, ${count('unrecordable')} of other kinds\n`,
    );
    const { length: without } = because('none');
    const unsignedText = unsigned.length === 0 ? '' : `, ${unsigned.length} without a trusted signature`;
    if (untied.length > 0)
      await print(
        context.stdout,
        `${untied.length} recordings cannot be tied to an audit log: ${chosen.length} of clients that had chosen ` +
          `the audit id, ${without} without an id${unsignedText}\n`,
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
      if (!isAuditEvent(line)) throw new Error(`line ${number} is not a complete event (audit.k8s.io/v1)`);
      events += 1;
      const session = parseAuditedSession(line);
      if (session !== undefined) sessions.push(session);
    }
    if (events === 0) throw new Error('it contains no event');
  } catch (error) {
    throw new TailcastError('AUDIT_LOG_UNUSABLE', `${path}: ${errorText(error)}`, { cause: error });
  }
  return sessions;
}

/** Returns the sessions of all Kubernetes recordings. */
async function readRecordedSessions(
  archive: Archive,
): Promise<{ readonly recorded: readonly RecordedSession[]; readonly untied: readonly UntiedRecording[] }> {
  const recorded: RecordedSession[] = [];
  const untied: UntiedRecording[] = [];
  for await (const recording of archive.list({})) {
    const found = recordedSession(recording);
    if (found === undefined) continue;
    if ('because' in found) untied.push(found);
    else recorded.push(found);
  }
  return { recorded, untied };
}

/**
 * Converts an entry of the list of recordings. Uses no data from the cast, because the trust level does not cover the
 * cast.
 */
function recordedSession(recording: ArchivedRecording): RecordedSession | UntiedRecording | undefined {
  const { source, kubernetes, connectionId: id, auditId, kind, state, startedAt } = recording;
  if (kubernetes === undefined) return undefined;
  const { namespace, pod: name } = kubernetes;
  const about = { user: source.user ?? source.node, subresource: kind, namespace, name };
  const at = { id: recording.id, time: startedAt };
  // the recorder reports no trust level while a session runs
  const { trust = state === 'running' ? 'verified' : 'unverified' } = recording;
  // without a public key, recordings count although their signatures are not verified
  if (trust !== 'verified' && recording.isUnchecked !== true) return { ...at, because: 'unsigned', ...about };
  if (id === undefined) return { ...at, because: 'none', ...about };
  if (auditId !== undefined && auditId !== id) return { ...at, because: 'chosen', ...about };
  return { id, isImpersonated: auditId === undefined, ...about };
}
