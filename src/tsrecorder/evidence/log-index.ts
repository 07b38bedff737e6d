/** Index of all log entries of a store by session, recording and document. Pure functions. */
import type { LogEvent } from './log-entry.ts';
import type { ReadLog } from './verify-logs.ts';
import type { LoggedEnd, LogIndex } from './verify-recording.ts';

/** A start entry and its position. */
export type LoggedStart = { readonly log: string; readonly n: number; readonly time: string } & Extract<
  LogEvent,
  { kind: 'start' }
>;

/** State of a session according to the entries after its start entry. */
interface Course {
  /** Number of upload bytes that were durable according to the last entry. */
  durable: number;
  /** Time of the last entry about the session, in RFC 3339. */
  seen: string;
  /** Id of the stored recording; undefined while the session is open. */
  end?: string;
  /** True if the evidence log contains an entry that ends the session. */
  closed: boolean;
}

/** Position of an entry. */
export interface Place {
  readonly log: string;
  readonly n: number;
}

/** Position and time of an entry. */
export interface TimedPlace extends Place {
  /** RFC 3339 in UTC. */
  readonly time: string;
}

/** Index of all log entries, for lookups of sessions, recordings and documents. */
export interface Index extends LogIndex {
  readonly allStarts: readonly LoggedStart[];
  readonly ends: Map<string, LoggedEnd[]>;
  readonly starts: Map<string, Place>;
  /** States of the sessions. Keys: `<log> <number of the start entry>`. */
  readonly courses: Map<string, Course>;
  readonly losses: { readonly log: string; readonly n: number; readonly event: LossEvent }[];
  /** Removal entries without a later hold. Map keys: id of the recording. */
  readonly removals: Map<string, TimedPlace[]>;
  readonly documents: Map<string, Place & { readonly bytes: number; readonly sha256: string }>;
  readonly documentRemovals: Map<string, Place[]>;
}

type LossEvent = Extract<LogEvent, { kind: 'lost' | 'void' }>;

/** Builds the index. Evidence logs without any trusted signature are ignored. */
export function indexLogs(logs: ReadonlyMap<string, ReadLog>): Index {
  const allStarts: LoggedStart[] = [];
  const index: Index = {
    logs,
    allStarts,
    ends: new Map(),
    starts: new Map(),
    courses: new Map(),
    losses: [],
    removals: new Map(),
    documents: new Map(),
    documentRemovals: new Map(),
  };
  const holds = new Map<string, TimedPlace[]>();
  for (const { log, entries, signed } of logs.values()) {
    // Skip an evidence log without any trusted signature, because it proves nothing about the recordings.
    if (signed.size === 0) continue;
    for (const { n, time, event } of entries.values()) {
      if (event.kind === 'start') allStarts.push({ log, n, time, ...event });
      follow(index, { log, n, time }, event);
      addEvent(index, { log, n, time }, event, signed.has(n));
      if (event.kind === 'held' && signed.has(n)) addTo(holds, event.recording, { log, n, time });
    }
  }
  for (const { log, n, adopted } of allStarts) {
    // Only a signed entry may end a session that started in another evidence log.
    if (adopted !== undefined && logs.get(log)?.signed.has(n) === true)
      followAdoption(index, { log, n }, adopted);
  }
  for (const [recording, removals] of index.removals) {
    const isValid = (removal: TimedPlace): boolean =>
      (holds.get(recording) ?? []).every((hold) => isBefore(hold, removal));
    index.removals.set(recording, removals.filter(isValid));
  }
  return index;
}

/**
 * True if `first` precedes `second`. Compares the numbers of two entries of the same log, or the times of two entries
 * of different logs.
 */
export function isBefore(first: TimedPlace, second: TimedPlace): boolean {
  if (first.log === second.log) return first.n < second.n;
  return Date.parse(first.time) <= Date.parse(second.time);
}

/** True if the entry reports lost bytes. A `void` entry is a loss if earlier entries reported durable bytes. */
function isLoss(event: LossEvent, course: Course | undefined): boolean {
  return event.kind === 'lost' || (course?.durable ?? 0) > 0;
}

/** Copies the outcome of an adopted session to the start entry of the first recorder. */
function followAdoption(
  { courses, losses }: Index,
  { log, n }: Place,
  adopted: { readonly log: string; readonly start: number },
): void {
  const course = courses.get(`${log} ${n}`);
  const original = courses.get(`${adopted.log} ${adopted.start}`);
  if (course?.closed !== true || original === undefined || original.closed) return;
  Object.assign(original, { ...(course.end === undefined ? {} : { end: course.end }), closed: true });
  const isSaid = losses.some(({ log: of, event }) => of === log && event.start === n);
  // The evidence log of the adopting recorder already reports the missing bytes. Do not report these bytes twice.
  if (isSaid) original.durable = 0;
}

/** Updates the state of a session. */
function follow(
  { courses, losses }: Index,
  { log, n, time }: { readonly log: string; readonly n: number; readonly time: string },
  event: LogEvent,
): void {
  const change = (start: number, by: Partial<Course>): void => {
    const course = courses.get(`${log} ${start}`);
    if (course !== undefined) Object.assign(course, by);
  };
  if (event.kind === 'start') {
    courses.set(`${log} ${n}`, { durable: event.durable ?? 0, seen: time, closed: false });
  } else if (event.kind === 'durable') {
    for (const [start, durable] of event.sessions) change(start, { durable, seen: time });
  } else if (event.kind === 'end') {
    change(event.start, { end: event.recording, closed: true });
  } else if (event.kind === 'void' || event.kind === 'lost') {
    if (isLoss(event, courses.get(`${log} ${event.start}`))) losses.push({ log, n, event });
    if (event.kind === 'void' || event.found === 0) change(event.start, { closed: true });
  }
}

/**
 * Adds an entry to the index.
 *
 * @param signed true if a trusted key signed the entry. An unsigned entry can prove that an object must exist, but it
 *   can never excuse a missing object
 */
function addEvent(index: Index, at: TimedPlace, event: LogEvent, signed: boolean): void {
  switch (event.kind) {
    case 'start':
      addFirst(index.starts, event.recording, at, signed);
      break;
    case 'end':
      addEnd(index, { ...at, event }, signed);
      break;
    case 'document':
      addFirst(index.documents, event.name, { ...at, bytes: event.bytes, sha256: event.sha256 }, signed);
      break;
    case 'removed':
      if (event.reason !== 'unverified') addRemoval(index.removals, event.recording, at, signed);
      break;
    case 'documentRemoved':
      addRemoval(index.documentRemovals, event.name, at, signed);
      break;
    case 'durable':
    case 'held':
    case 'released':
    case 'lost':
    case 'open':
    case 'restart':
    case 'void':
    case 'witness':
      break;
  }
}

/** Ignores unsigned removals. An attacker could forge such an entry to justify a missing object. */
function addRemoval<T>(removals: Map<string, T[]>, name: string, at: T, signed: boolean): void {
  if (signed) addTo(removals, name, at);
}

/**
 * Keeps every signed end entry of a recording. Keeps an unsigned end entry only if it is the first end entry of the
 * recording and no signed end entry follows.
 */
function addEnd({ logs, ends }: Index, end: LoggedEnd, signed: boolean): void {
  const found = ends.get(end.event.recording);
  const [first] = found ?? [];
  const isFirstSigned = first !== undefined && logs.get(first.log)?.signed.has(first.n) === true;
  if (signed && isFirstSigned) found?.push(end);
  else if (signed || first === undefined) ends.set(end.event.recording, [end]);
}

/** Signed entries replace unsigned entries. */
function addFirst<T>(map: Map<string, T>, name: string, value: T, signed: boolean): void {
  if (signed || !map.has(name)) map.set(name, value);
}

/** Adds a value to the list with this name. */
export function addTo<T>(lists: Map<string, T[]>, name: string, value: T): void {
  const list = lists.get(name);
  if (list === undefined) lists.set(name, [value]);
  else list.push(value);
}
