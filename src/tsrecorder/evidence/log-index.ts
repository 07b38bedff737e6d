/** Everything that the logs of a store say, by what it is about. Pure. */
import type { LogEvent } from './log-entry.ts';
import type { ReadLog } from './verify-logs.ts';
import type { LoggedEnd, LogIndex } from './verify-recording.ts';

export type LoggedStart = { readonly log: string; readonly n: number; readonly time: string } & Extract<
  LogEvent,
  { kind: 'start' }
>;

/** How a start went on. */
interface Course {
  /** Bytes of the body that were in the spool, at least. */
  durable: number;
  /** RFC 3339: the last word about it. */
  seen: string;
  /** As it was stored; undefined: it has not ended. */
  end?: string;
  /** Nothing more will come. */
  closed: boolean;
}

export interface Place {
  readonly log: string;
  readonly n: number;
}

/** Everything that the logs say, by what it is about. */
export interface Index extends LogIndex {
  readonly allStarts: readonly LoggedStart[];
  readonly ends: Map<string, LoggedEnd>;
  readonly starts: Map<string, Place>;
  /** By `<log> <n of the start>`. */
  readonly courses: Map<string, Course>;
  readonly losses: { readonly log: string; readonly n: number; readonly event: LossEvent }[];
  /** By recording: where it says that it is removed. */
  readonly removals: Map<string, Place[]>;
  readonly documents: Map<string, { readonly log: string; readonly n: number; readonly sha256: string }>;
  readonly documentRemovals: Map<string, Place[]>;
}

type LossEvent = Extract<LogEvent, { kind: 'lost' | 'void' }>;

/** A log of which nothing is signed by a key that counts is not looked at. */
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
  for (const { log, entries, signed } of logs.values()) {
    // nothing in it is signed by a key that counts: it says nothing about what is ours
    if (signed.size === 0) continue;
    for (const { n, time, event } of entries.values()) {
      if (event.kind === 'start') allStarts.push({ log, n, time, ...event });
      follow(index, { log, n, time }, event);
      addEvent(index, { log, n }, event, signed.has(n));
    }
  }
  for (const { log, n, adopted } of allStarts) {
    // a log may only end a session of another one in words that are signed
    if (adopted !== undefined && logs.get(log)?.signed.has(n) === true)
      followAdoption(index, { log, n }, adopted);
  }
  return index;
}

/** A recorder that says that there was nothing, of a session of which it said before that there was something, has lost it. */
function isLoss(event: LossEvent, course: Course | undefined): boolean {
  return event.kind === 'lost' || (course?.durable ?? 0) > 0;
}

/** A session that another recorder took over ended where that one stored it, with the bytes that it found. */
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
  // the recorder that took it over has said what is missing
  if (isSaid) original.durable = 0;
}

/** What becomes of the sessions of a log. */
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

/** @param signed an entry that is not can ask for what must be there, and allows nothing to be gone. */
function addEvent(index: Index, at: Place, event: LogEvent, signed: boolean): void {
  switch (event.kind) {
    case 'start':
      addFirst(index.starts, event.recording, at, signed);
      break;
    case 'end':
      addFirst(index.ends, event.recording, { ...at, event }, signed);
      break;
    case 'document':
      addFirst(index.documents, event.name, { ...at, sha256: event.sha256 }, signed);
      break;
    case 'removed':
      addRemoval(index, at, event, signed);
      break;
    case 'documentRemoved':
      if (signed) addTo(index.documentRemovals, event.name, at);
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

/** An attacker who breaks a signature in the store does not get a recording removed without a fault. */
function addRemoval(
  index: Index,
  at: Place,
  event: Extract<LogEvent, { kind: 'removed' }>,
  signed: boolean,
): void {
  if (signed && event.reason !== 'unverified') addTo(index.removals, event.recording, at);
}

/** What is signed counts more than what is not. */
function addFirst<T>(map: Map<string, T>, name: string, value: T, signed: boolean): void {
  if (signed || !map.has(name)) map.set(name, value);
}

function addTo<T>(lists: Map<string, T[]>, name: string, value: T): void {
  lists.set(name, [...(lists.get(name) ?? []), value]);
}
