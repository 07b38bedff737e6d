/** Checks a whole store: its logs, its recordings, and that each knows of the other. Changes nothing. */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { recordingId, type RecordingKey } from '../store/key.ts';
import type { StoredRecording } from '../store/store.ts';
import { fault, notice, type Finding } from './finding.ts';
import type { LogHead } from './log-entry.ts';
import { indexLogs, type Index } from './log-index.ts';
import type { PublicKey } from './signing-key.ts';
import {
  checkHeads,
  readLogs,
  witnessedHeads,
  type DocumentReader,
  type KeyRing,
  type ReadLog,
} from './verify-logs.ts';
import { checkSessions } from './verify-sessions.ts';
import { checkRecording, type RecordingReader, type VerifiedPart } from './verify-recording.ts';

export type VerifiedStore = RecordingReader & DocumentReader;

export interface VerifyOptions {
  readonly store: VerifiedStore;
  /** Keys that the verifier knows; none: those in the store are taken. */
  readonly keys: readonly PublicKey[];
  /** Heads that the verifier wrote down before. */
  readonly checkpoint: readonly LogHead[];
  /** Milliseconds since the epoch. */
  readonly nowMs: number;
  /** A recording without evidence, and a store without any, is at fault. Default: it is not judged. */
  readonly requireEvidence?: boolean;
  /** How long a session may be open without a sign of that in its log. Default: {@link UNFINISHED_MS}. */
  readonly unfinishedMs?: number;
  /** Ends the work early. */
  readonly signal?: AbortSignal;
}

/** A recorder says of each open session once an hour that it is; a day without that is no long weekend. */
export const UNFINISHED_MS = 86_400_000;

/**
 * `sound`: all that has evidence is as it was, by keys that the verifier named. `faulty`: something is not. `lost`: acknowledged
 * bytes are gone, whatever else is at fault. `unjudged`: nothing was found, and there was nothing to hold it against: no key
 * was named, or none of these has signed a log here.
 */
export type StoreVerdict = 'sound' | 'faulty' | 'lost' | 'unjudged';

export interface VerifyReport {
  readonly verdict: StoreVerdict;
  /** The verdict is `sound`. */
  readonly ok: boolean;
  /** A key that was named has signed a log here. */
  readonly isOurs: boolean;
  readonly recordings: { readonly withEvidence: number; readonly withoutEvidence: number };
  /** Sessions of which the log has the start only. */
  readonly unfinished: number;
  /** Recordings that were removed as the log says. */
  readonly removed: number;
  /** How far each log is: what a later verification can be held against. */
  readonly heads: readonly LogHead[];
  /** Recordings that begin in the middle of their sessions, and those of the same sessions. */
  readonly parts: readonly VerifiedPart[];
  readonly findings: readonly Finding[];
}

/** @throws TailcastError `STORE_FAILED` when the store cannot be read. */
export async function verifyStore(options: VerifyOptions): Promise<VerifyReport> {
  const { store, signal, requireEvidence = false, unfinishedMs = UNFINISHED_MS } = options;
  const { logs, keys, findings: logFindings } = await readLogs(store, options.keys);
  const seen = options.checkpoint.map((head) => ({ head, by: 'the checkpoint' }));
  const findings: Finding[] = [...logFindings, ...checkHeads(logs, [...seen, ...witnessedHeads(logs)])];
  const index = indexLogs(logs);
  const recordings = await store.list();
  const context = { ...index, keys, nowMs: options.nowMs, unfinishedMs, requireEvidence };
  const bodies = new Map<string, number>();
  const parts: VerifiedPart[] = [];
  let withEvidence = 0;
  for (const recording of recordings.toSorted(byKey)) {
    signal?.throwIfAborted();
    const checked = await checkRecording(store, recording, context);
    if (checked.evidence) withEvidence += 1;
    if (checked.bodyBytes !== undefined) bodies.set(recordingId(recording.key), checked.bodyBytes);
    if (checked.part !== undefined) parts.push(checked.part);
    findings.push(...checked.findings);
  }
  const present = new Set(recordings.map(({ key }) => recordingId(key)));
  const absent = await confirmAbsent(options, checkAbsent(index, present, keys), present);
  const unfinished = checkCourses(index, bodies, present, options.nowMs - unfinishedMs);
  findings.push(
    ...absent.findings,
    ...checkLosses(index),
    ...unfinished.findings,
    ...(await checkDocuments(store, index, keys)),
  );
  const isOurs = keys.trusted && [...logs.values()].some(({ signed }) => signed.size > 0);
  if (!isOurs && requireEvidence)
    findings.push(fault('no-evidence', 'no log here is signed by a key that was named', {}));
  const verdict = judge(findings, isOurs);
  return {
    verdict,
    ok: verdict === 'sound',
    isOurs,
    recordings: { withEvidence, withoutEvidence: recordings.length - withEvidence },
    unfinished: unfinished.count,
    removed: absent.removed,
    heads: [...logs.values()].flatMap(({ head }) => (head === undefined ? [] : [head])),
    parts,
    findings,
  };
}

/** What several stores say together. */
export interface JointReport {
  readonly verdict: StoreVerdict;
  readonly ok: boolean;
  /** In the order of the stores. */
  readonly reports: readonly VerifyReport[];
  /** Of sessions whose parts are in several stores, or are missing. */
  readonly findings: readonly Finding[];
}

/**
 * Checks stores of recorders that took sessions over from each other: each by itself, and that no part of a session is missing.
 *
 * @throws TailcastError `STORE_FAILED` when a store cannot be read.
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
  const verdict = judge(
    [...findings, ...settled.flatMap((report) => report.findings)],
    settled.every(({ isOurs }) => isOurs),
  );
  return { verdict, ok: verdict === 'sound', reports: settled, findings };
}

/** A checkpoint is of all stores: that one of them has not the log of another is no fault. */
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
  const verdict = judge(findings, report.isOurs);
  return { ...report, findings, verdict, ok: verdict === 'sound' };
}

function judge(findings: readonly Finding[], isOurs: boolean): StoreVerdict {
  const faults = findings.filter(({ severity }) => severity === 'fault');
  if (faults.some(({ code }) => code === 'lost')) return 'lost';
  if (faults.length > 0) return 'faulty';
  return isOurs ? 'sound' : 'unjudged';
}

const checkpointSchema = z.object({
  heads: z.array(z.object({ log: z.string(), n: z.int().min(0), hash: z.string().regex(/^[0-9a-f]{64}$/) })),
});

/** What `encodeCheckpoint` wrote; a report of `verify --json` will do as well. @returns undefined if it is neither. */
export function parseCheckpoint(text: string): readonly LogHead[] | undefined {
  try {
    return checkpointSchema.parse(JSON.parse(text)).heads;
  } catch {
    return undefined;
  }
}

export function encodeCheckpoint(heads: readonly LogHead[], time: string): string {
  return `${JSON.stringify({ time, heads }, undefined, 2)}\n`;
}

interface Absent {
  readonly findings: readonly Finding[];
  readonly removed: number;
}

/** A recording that is missing may have been removed while we looked: then the log says so by now. */
async function confirmAbsent(
  { store, keys: trusted }: VerifyOptions,
  first: Absent,
  present: ReadonlySet<string>,
): Promise<Absent> {
  if (!first.findings.some(({ code }) => code === 'recording-missing')) return first;
  const { logs, keys } = await readLogs(store, trusted);
  const second = checkAbsent(indexLogs(logs), present, keys);
  const still = new Set(
    second.findings.filter(({ code }) => code === 'recording-missing').map(({ recording }) => recording),
  );
  const findings = first.findings.filter(
    ({ code, recording }) => code !== 'recording-missing' || still.has(recording),
  );
  return { ...first, findings, removed: first.removed + first.findings.length - findings.length };
}

/** Recordings that the log has and the store has not. */
function checkAbsent(index: Index, present: ReadonlySet<string>, keys: KeyRing): Absent {
  const findings: Finding[] = [];
  let removed = 0;
  for (const [recording, { log, n: entry }] of index.ends) {
    const removals = index.removals.get(recording) ?? [];
    const where = { recording, log, entry };
    if (present.has(recording)) {
      const [removal] = removals;
      if (removal !== undefined) {
        findings.push(
          notice('removal-pending', 'the log says that it is removed, and it is still here', {
            ...where,
            entry: removal.n,
          }),
        );
      }
    } else if (removals.length === 0) {
      findings.push(
        fault('recording-missing', 'the recording is missing, and nothing says that it may be', where),
      );
    } else if (!keys.trusted && !removals.some((removal) => sharesKey(index.logs, removal.log, log))) {
      const message =
        'another recorder’s log says that it is removed; name the keys of both if that was meant';
      findings.push(fault('removal-untrusted', message, where));
    } else removed += 1;
  }
  return { findings, removed };
}

/** What recorders say themselves that they have lost. */
function checkLosses({ losses }: Index): readonly Finding[] {
  return losses.map(({ log, n, event }) => {
    const { recording, reason } = event;
    const message =
      event.kind === 'lost'
        ? `${event.durable} bytes of it were acknowledged and ${event.found} are there: ${reason}`
        : 'bytes of it were acknowledged, and its recorder says that it has none';
    return fault('lost', message, { recording, log, entry: n });
  });
}

/** Whether each session that began came as far as its log says. */
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
    // a recorder that still has the rest may bring it
    if (isShort && !isKnown && (course.closed || isLate)) {
      const message = `${course.durable} bytes of it were acknowledged, and it holds ${found}`;
      findings.push(fault('lost', message, where));
    }
    if (course.closed || present.has(recording)) continue;
    count += 1;
    const began = `a session of ${nodeName} began at ${time} and has not ended`;
    findings.push(
      isLate
        ? fault(
            'unfinished-too-long',
            `${began}, and its recorder has not named it since ${course.seen}`,
            where,
          )
        : notice('unfinished', `${began}: it is open, or in the recorder's spool`, where),
    );
  }
  return { findings, count };
}

function sharesKey(logs: ReadonlyMap<string, ReadLog>, left: string, right: string): boolean {
  const keys = logs.get(left)?.keyIds ?? new Set();
  return left === right || [...keys].some((key) => logs.get(right)?.keyIds.has(key) === true);
}

async function checkDocuments(
  store: VerifiedStore,
  index: Index,
  keys: KeyRing,
): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const [name, { log, n, sha256 }] of index.documents) {
    const removals = index.documentRemovals.get(name) ?? [];
    if (keys.trusted && removals.length > 0) continue;
    if (removals.some((removal) => sharesKey(index.logs, removal.log, log))) continue;
    const where = { object: name, log, entry: n };
    const content = await store.readDocument(name);
    if (content === undefined && removals.length > 0) {
      const message =
        'another recorder’s log says that the document is removed; name the keys of both if that was meant';
      findings.push(fault('removal-untrusted', message, where));
      continue;
    }
    if (content === undefined) findings.push(fault('document-missing', 'the document is missing', where));
    else if (createHash('sha256').update(content).digest('hex') !== sha256) {
      findings.push(fault('document-changed', 'the document is not what was stored', where));
    }
  }
  return findings;
}

function byKey({ key: left }: StoredRecording, { key: right }: StoredRecording): number {
  return textOf(left) < textOf(right) ? -1 : 1;
}

function textOf({ nodeId, time }: RecordingKey): string {
  return `${nodeId} ${time}`;
}
