/** Checks a whole store: its logs, its recordings, and that each knows of the other. Changes nothing. */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { recordingId, type RecordingKey } from '../store/key.ts';
import type { StoredRecording } from '../store/store.ts';
import { fault, notice, type Finding } from './finding.ts';
import type { LogEvent, LogHead } from './log-entry.ts';
import type { PublicKey } from './signing-key.ts';
import {
  checkHeads,
  readLogs,
  witnessedHeads,
  type DocumentReader,
  type KeyRing,
  type ReadLog,
} from './verify-logs.ts';
import { checkRecording, type LoggedEnd, type LogIndex, type RecordingReader } from './verify-recording.ts';

export type VerifiedStore = RecordingReader & DocumentReader;

export interface VerifyOptions {
  readonly store: VerifiedStore;
  /** Keys that the verifier knows; none: those in the store are taken. */
  readonly keys: readonly PublicKey[];
  /** Heads that the verifier wrote down before. */
  readonly checkpoint: readonly LogHead[];
  /** Milliseconds since the epoch. */
  readonly nowMs: number;
  /** Ends the work early. */
  readonly signal?: AbortSignal;
}

export interface VerifyReport {
  /** Nothing is at fault. */
  readonly ok: boolean;
  readonly recordings: { readonly withEvidence: number; readonly withoutEvidence: number };
  /** Sessions of which the log has the start only. */
  readonly unfinished: number;
  /** Recordings that were removed as the log says. */
  readonly removed: number;
  /** How far each log is: what a later verification can be held against. */
  readonly heads: readonly LogHead[];
  readonly findings: readonly Finding[];
}

type LoggedStart = { readonly log: string; readonly n: number; readonly time: string } & Extract<
  LogEvent,
  { kind: 'start' }
>;

/** Everything that the logs say, by what it is about. */
interface Index extends LogIndex {
  readonly allStarts: readonly LoggedStart[];
  readonly ends: Map<string, LoggedEnd>;
  readonly starts: Map<string, { readonly log: string; readonly n: number }>;
  /** `<log> <n of the start>` of sessions that ended or were voided. */
  readonly closed: Set<string>;
  /** By recording: where it says that it is removed. */
  readonly removals: Map<string, { readonly log: string; readonly n: number }[]>;
  readonly documents: Map<string, { readonly log: string; readonly n: number; readonly sha256: string }>;
  readonly documentRemovals: Set<string>;
}

/** @throws TailcastError `STORE_FAILED` when the store cannot be read. */
export async function verifyStore(options: VerifyOptions): Promise<VerifyReport> {
  const { store, signal } = options;
  const { logs, keys, findings: logFindings } = await readLogs(store, options.keys);
  const seen = options.checkpoint.map((head) => ({ head, by: 'the checkpoint' }));
  const findings: Finding[] = [...logFindings, ...checkHeads(logs, [...seen, ...witnessedHeads(logs)])];
  const index = indexLogs(logs);
  const recordings = await store.list();
  let withEvidence = 0;
  for (const recording of recordings.toSorted(byKey)) {
    signal?.throwIfAborted();
    const checked = await checkRecording(store, recording, { ...index, keys, nowMs: options.nowMs });
    if (checked.evidence) withEvidence += 1;
    findings.push(...checked.findings);
  }
  const present = new Set(recordings.map(({ key }) => recordingId(key)));
  const absent = await confirmAbsent(options, checkAbsent(index, present, keys), present);
  findings.push(...absent.findings, ...(await checkDocuments(store, index)));
  return {
    ok: findings.every(({ severity }) => severity === 'notice'),
    recordings: { withEvidence, withoutEvidence: recordings.length - withEvidence },
    unfinished: absent.unfinished,
    removed: absent.removed,
    heads: [...logs.values()].flatMap(({ head }) => (head === undefined ? [] : [head])),
    findings,
  };
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

function indexLogs(logs: ReadonlyMap<string, ReadLog>): Index {
  const allStarts: LoggedStart[] = [];
  const index: Index = {
    logs,
    allStarts,
    ends: new Map(),
    starts: new Map(),
    closed: new Set(),
    removals: new Map(),
    documents: new Map(),
    documentRemovals: new Set(),
  };
  for (const { log, entries } of logs.values()) {
    for (const { n, time, event } of entries.values()) {
      if (event.kind === 'start') allStarts.push({ log, n, time, ...event });
      addEvent(index, { log, n }, event);
    }
  }
  return index;
}

function addEvent(index: Index, at: { readonly log: string; readonly n: number }, event: LogEvent): void {
  switch (event.kind) {
    case 'start':
      index.starts.set(event.recording, at);
      break;
    case 'end':
      index.ends.set(event.recording, { ...at, event });
      index.closed.add(`${at.log} ${event.start}`);
      break;
    case 'void':
      index.closed.add(`${at.log} ${event.start}`);
      break;
    case 'removed':
      index.removals.set(event.recording, [...(index.removals.get(event.recording) ?? []), at]);
      break;
    case 'document':
      index.documents.set(event.name, { ...at, sha256: event.sha256 });
      break;
    case 'documentRemoved':
      index.documentRemovals.add(event.name);
      break;
    case 'open':
    case 'restart':
    case 'witness':
      break;
  }
}

interface Absent {
  readonly findings: readonly Finding[];
  readonly unfinished: number;
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
  let unfinished = 0;
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
  for (const { log, n, time, recording, nodeName } of index.allStarts) {
    if (index.closed.has(`${log} ${n}`) || present.has(recording)) continue;
    unfinished += 1;
    const message = `a session of ${nodeName} began at ${time} and has not ended: it is open, or in the recorder's spool`;
    findings.push(notice('unfinished', message, { recording, log, entry: n }));
  }
  return { findings, unfinished, removed };
}

function sharesKey(logs: ReadonlyMap<string, ReadLog>, left: string, right: string): boolean {
  const keys = logs.get(left)?.keyIds ?? new Set();
  return left === right || [...keys].some((key) => logs.get(right)?.keyIds.has(key) === true);
}

async function checkDocuments(store: VerifiedStore, index: Index): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  for (const [name, { log, n, sha256 }] of index.documents) {
    if (index.documentRemovals.has(name)) continue;
    const where = { object: name, log, entry: n };
    const content = await store.readDocument(name);
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
