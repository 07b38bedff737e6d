/**
 * Verifies a complete store: each evidence log, each recording, and whether logs and recordings agree. The verification
 * writes nothing.
 */
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import { recordingId, type RecordingKey } from '../store/key.ts';
import type { ReadableStore, StoredRecording } from '../store/store.ts';
import { fault, notice, type Finding, type FindingCode } from './finding.ts';
import type { LogHead } from './log-entry.ts';
import { indexLogs, type Index } from './log-index.ts';
import type { PublicKey } from './signing-key.ts';
import { checkHeads, readLogs, witnessedHeads, type DocumentReader, type KeyRing } from './verify-logs.ts';
import { checkDocuments, sharesKey } from './verify-documents.ts';
import { checkHeldRemovals, checkHolds } from './verify-holds.ts';
import { checkSessions } from './verify-sessions.ts';
import { checkRecording, type CheckedRecording, type VerifiedPart } from './verify-recording.ts';

/** Read access to a complete store. */
export type VerifiedStore = ReadableStore & DocumentReader;

export interface VerifyOptions {
  readonly store: VerifiedStore;
  /** Keys of the verifier. If empty, the keys come from the store. */
  readonly keys: readonly PublicKey[];
  /** Last entries (heads) of the evidence logs, saved by an earlier verification. */
  readonly checkpoint: readonly LogHead[];
  /** Current time in milliseconds since the epoch. */
  readonly nowMs: number;
  /** True if missing evidence is a fault: a recording without evidence, or a store without logs. Default: false. */
  readonly requireEvidence?: boolean;
  /** Maximum time since the last log entry about an open session, in milliseconds. Default: {@link UNFINISHED_MS}. */
  readonly unfinishedMs?: number;
  /** Aborts the verification. */
  readonly signal?: AbortSignal;
}

/**
 * Default of `unfinishedMs`: one day, in milliseconds. A recorder logs each open session once per hour; one day also
 * covers an outage.
 */
export const UNFINISHED_MS = 86_400_000;

/**
 * - `verified`: all objects with evidence are unchanged, according to keys of the verifier.
 * - `failed`: something changed.
 * - `lost`: acknowledged bytes are lost. Other faults are possible too.
 * - `unverified`: there are no faults, but the verifier provided no key, or none of its keys signed an evidence log in
 *   this store.
 */
export type StoreVerdict = 'verified' | 'failed' | 'lost' | 'unverified';

/** Result of the verification of a store. */
export interface VerifyReport {
  readonly verdict: StoreVerdict;
  /** True if the verdict is `verified`. */
  readonly ok: boolean;
  /** True if a key of the verifier signed an evidence log in this store. */
  readonly isOurs: boolean;
  readonly recordings: { readonly withEvidence: number; readonly withoutEvidence: number };
  /** Number of started sessions without an end in the evidence log and without a recording in the store. */
  readonly unfinished: number;
  /** Number of recordings that were removed according to the evidence log. */
  readonly removed: number;
  /** Last entry (head) of each evidence log, for comparison in a later verification. */
  readonly heads: readonly LogHead[];
  /** Byte range of each recording whose sidecar states a position in the session. */
  readonly parts: readonly VerifiedPart[];
  /** Session mark of each stored or removed recording, from signed log entries. */
  readonly sessions: ReadonlyMap<string, string>;
  readonly findings: readonly Finding[];
}

/** Verifies a store. @throws TailcastError `STORE_FAILED` if the store is unreadable */
export async function verifyStore(options: VerifyOptions): Promise<VerifyReport> {
  const { store, signal, requireEvidence = false, unfinishedMs = UNFINISHED_MS } = options;
  const { logs, keys, findings: logFindings } = await readLogs(store, options.keys);
  const seen = options.checkpoint.map((head) => ({ head, by: 'the checkpoint' }));
  const findings: Finding[] = [...logFindings, ...checkHeads(logs, [...seen, ...witnessedHeads(logs)])];
  const index = indexLogs(logs);
  const listed = await store.list();
  const present = new Set(listed.map(({ key }) => recordingId(key)));
  const context = { ...index, keys, nowMs: options.nowMs, unfinishedMs, requireEvidence };
  const bodies = new Map<string, number>();
  const parts: VerifiedPart[] = [];
  let withEvidence = 0;
  const addChecked = (recording: StoredRecording, checked: CheckedRecording): void => {
    if (checked.isAbsent) present.delete(recordingId(recording.key));
    else if (checked.evidence) withEvidence += 1;
    if (checked.bodyBytes !== undefined) bodies.set(recordingId(recording.key), checked.bodyBytes);
    if (checked.part !== undefined) parts.push(checked.part);
    findings.push(...checked.findings);
  };
  const incomplete: StoredRecording[] = [];
  for (const recording of listed.toSorted(byKey)) {
    signal?.throwIfAborted();
    const checked = await checkRecording(store, recording, context);
    if (checked.findings.some(({ code }) => REMOVAL_CODES.has(code))) incomplete.push(recording);
    else addChecked(recording, checked);
  }
  // Read the logs again, because a recorder may have logged the removal of these recordings during the verification.
  const later = incomplete.length === 0 ? context : { ...context, ...(await readIndex(options)) };
  for (const recording of incomplete) {
    signal?.throwIfAborted();
    addChecked(recording, await checkRecording(store, recording, later));
  }
  const absent = await confirmAbsent(options, checkAbsent(index, present, keys), present);
  const unfinished = checkCourses(index, bodies, present, options.nowMs - unfinishedMs);
  // The notice `removal-pending` of a recording can replace the fault about a missing sidecar.
  const isChange = ({ severity, code }: Finding): boolean =>
    severity === 'fault' || code === 'removal-pending';
  const changed = new Set(findings.filter(isChange).map(({ recording }) => recording));
  const isIntact = (recording: string): boolean => present.has(recording) && !changed.has(recording);
  findings.push(
    ...absent.findings,
    ...checkLosses(index),
    ...checkHeldRemovals(logs, isIntact),
    ...unfinished.findings,
    ...(await checkDocuments(options, index, keys)),
    ...(await checkHolds(store, logs, present, keys)),
  );
  const isOurs = keys.trusted && [...logs.values()].some(({ signed }) => signed.size > 0);
  if (!isOurs && requireEvidence) findings.push(fault('no-evidence', 'no log is signed by a named key', {}));
  const verdict = verdictOfFindings(findings, isOurs);
  return {
    verdict,
    ok: verdict === 'verified',
    isOurs,
    recordings: { withEvidence, withoutEvidence: present.size - withEvidence },
    unfinished: unfinished.count,
    removed: absent.removed,
    heads: [...logs.values()].flatMap(({ head }) => (head === undefined ? [] : [head])),
    parts,
    sessions: sessionsOf(index),
    findings,
  };
}

/** Faults that a removal in progress can cause. */
const REMOVAL_CODES: ReadonlySet<FindingCode> = new Set([
  'sidecar-missing',
  'notes-missing',
  'recording-unreadable',
]);

async function readIndex({
  store,
  keys: trusted,
}: VerifyOptions): Promise<Index & { readonly keys: KeyRing }> {
  const { logs, keys } = await readLogs(store, trusted);
  return { ...indexLogs(logs), keys };
}

function sessionsOf({ ends, logs }: Index): ReadonlyMap<string, string> {
  const signed = [...ends.values()].flat().filter(({ log, n }) => logs.get(log)?.signed.has(n) === true);
  return new Map(signed.map(({ event }) => [event.recording, event.session]));
}

/** Result for several stores. */
export interface JointReport extends Pick<VerifyReport, 'verdict' | 'ok'> {
  /** Reports in the order of the stores. */
  readonly reports: readonly VerifyReport[];
  /** Findings about sessions with several parts. */
  readonly findings: readonly Finding[];
}

/**
 * Verifies several stores: first each store separately, then sessions with parts in several stores.
 *
 * @throws TailcastError `STORE_FAILED` if a store is unreadable
 */
export async function verifyStores(
  stores: readonly VerifiedStore[],
  options: Omit<VerifyOptions, 'store'>,
): Promise<JointReport> {
  const reports: VerifyReport[] = [];
  for (const store of stores) reports.push(await verifyStore({ ...options, store }));
  const logs = new Set(reports.flatMap(({ heads }) => heads.map(({ log }) => log)));
  const settled = reports.map((report) => withoutLogsOfOthers(report, logs, options.checkpoint));
  const findings = checkSessions(
    reports.flatMap(({ parts }) => parts),
    stores.length > 1,
  );
  const verdict = verdictOfFindings(
    [...findings, ...settled.flatMap((report) => report.findings)],
    settled.every(({ isOurs }) => isOurs),
  );
  return { verdict, ok: verdict === 'verified', reports: settled, findings };
}

/**
 * Drops faults about evidence logs that are in another store. Such faults occur because the checkpoint of the verifier
 * contains the logs of all stores.
 */
function withoutLogsOfOthers(
  report: VerifyReport,
  logs: ReadonlySet<string>,
  checkpoint: readonly LogHead[],
): VerifyReport {
  const own = new Set(report.heads.map(({ log }) => log));
  const elsewhere = new Set(checkpoint.map(({ log }) => log).filter((log) => logs.has(log) && !own.has(log)));
  const findings = report.findings.filter(
    ({ code, log }) => code !== 'log-rolled-back' || log === undefined || !elsewhere.has(log),
  );
  const verdict = verdictOfFindings(findings, report.isOurs);
  return { ...report, findings, verdict, ok: verdict === 'verified' };
}

/** Returns the verdict of findings. @param isOurs true if keys of the verifier signed all checked objects */
export function verdictOfFindings(findings: readonly Finding[], isOurs: boolean): StoreVerdict {
  const faults = findings.filter(({ severity }) => severity === 'fault');
  if (faults.some(({ code }) => code === 'lost')) return 'lost';
  if (faults.length > 0) return 'failed';
  return isOurs ? 'verified' : 'unverified';
}

const checkpointSchema = z.object({
  heads: z.array(z.object({ log: z.string(), n: z.int().min(0), hash: z.string().regex(/^[0-9a-f]{64}$/) })),
});

/** Parses the output of `encodeCheckpoint` or of `verify --json`. @returns undefined for other texts */
export function parseCheckpoint(text: string): readonly LogHead[] | undefined {
  return checkpointSchema.safeParse(jsonOrUndefined(text)).data?.heads;
}

/** Encodes the last entries (heads) of evidence logs as JSON for a later verification. */
export function encodeCheckpoint(heads: readonly LogHead[], time: string): string {
  return `${JSON.stringify({ time, heads }, undefined, 2)}\n`;
}

interface Absent {
  readonly findings: readonly Finding[];
  readonly removed: number;
}

/** Reads the evidence logs again, because a missing recording may have been removed during the verification. */
async function confirmAbsent(
  options: VerifyOptions,
  first: Absent,
  present: ReadonlySet<string>,
): Promise<Absent> {
  if (!first.findings.some(({ code }) => code === 'recording-missing')) return first;
  const index = await readIndex(options);
  const second = checkAbsent(index, present, index.keys);
  const still = new Set(
    second.findings.filter(({ code }) => code === 'recording-missing').map(({ recording }) => recording),
  );
  const findings = first.findings.filter(
    ({ code, recording }) => code !== 'recording-missing' || still.has(recording),
  );
  return { ...first, findings, removed: first.removed + first.findings.length - findings.length };
}

/** Returns findings about recordings that are in an evidence log and not in the store. */
function checkAbsent(index: Index, present: ReadonlySet<string>, keys: KeyRing): Absent {
  const findings: Finding[] = [];
  let removed = 0;
  for (const [recording, ends] of index.ends) {
    const end = ends.at(-1);
    if (end === undefined) continue;
    const { log, n: entry } = end;
    const removals = index.removals.get(recording) ?? [];
    const where = { recording, log, entry };
    if (present.has(recording)) {
      const [removal] = removals;
      if (removal !== undefined) {
        findings.push(
          notice('removal-pending', 'the log contains its removal, but it still exists', {
            ...where,
            entry: removal.n,
          }),
        );
      }
    } else if (removals.length === 0) {
      findings.push(
        fault('recording-missing', 'the recording is missing, and no log contains its removal', where),
      );
    } else if (!keys.trusted && !removals.some((removal) => sharesKey(index.logs, removal.log, log))) {
      const message =
        'another recorder’s log contains its removal; if that is expected, name the keys of both';
      findings.push(fault('removal-untrusted', message, where));
    } else removed += 1;
  }
  return { findings, removed };
}

/** Returns a finding for each loss of acknowledged bytes that a recorder reported. */
function checkLosses({ losses }: Index): readonly Finding[] {
  return losses.map(({ log, n, event }) => {
    const { recording, reason } = event;
    const message =
      event.kind === 'lost'
        ? `the recorder acknowledged ${event.durable} bytes of it, and ${event.found} exist: ${reason}`
        : 'the recorder acknowledged bytes of it and reports that none exist';
    return fault('lost', message, { recording, log, entry: n });
  });
}

/** Checks that the recording of each started session has all bytes that the evidence log states. */
function checkCourses(
  index: Index,
  bodies: ReadonlyMap<string, number>,
  present: ReadonlySet<string>,
  oldestMs: number,
): { readonly findings: readonly Finding[]; readonly count: number } {
  const findings: Finding[] = [];
  let count = 0;
  for (const { log, n, time, recording, nodeName } of index.allStarts) {
    const course = index.courses.get(`${log} ${n}`);
    if (course === undefined) continue;
    const where = { recording: course.end ?? recording, log, entry: n };
    const isLate = Date.parse(course.seen) < oldestMs;
    const found = bodies.get(where.recording);
    const isShort = found !== undefined && found < course.durable;
    const isKnown = index.losses.some(({ log: of, event }) => of === log && event.start === n);
    // Report missing bytes only if the session has ended, or if its last log entry is too old. Until then, the recorder
    // may still store these bytes.
    if (isShort && !isKnown && (course.closed || isLate)) {
      const message = `the recorder acknowledged ${course.durable} bytes of it, and the recording has ${found}`;
      findings.push(fault('lost', message, where));
    }
    if (course.closed || present.has(recording)) continue;
    count += 1;
    const began = `a session of ${nodeName} began at ${time} and has not ended`;
    findings.push(
      isLate
        ? fault(
            'unfinished-too-long',
            `${began}, and its recorder has not logged it since ${course.seen}`,
            where,
          )
        : notice('unfinished', `${began}: it is open, or in the recorder's spool`, where),
    );
  }
  return { findings, count };
}

function byKey({ key: left }: StoredRecording, { key: right }: StoredRecording): number {
  return textOf(left) < textOf(right) ? -1 : 1;
}

function textOf({ nodeId, time }: RecordingKey): string {
  return `${nodeId} ${time}`;
}
