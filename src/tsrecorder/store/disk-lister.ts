/**
 * Lists the recordings in a directory. An open page requests the list every second, and one gateway has all its
 * recordings in one folder. Unchanged folders are therefore not read again, and unchanged recordings and lists keep
 * their object identity. The event loop is not blocked while a folder with a million names is read.
 */
import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { createLoopTurns, sortInTurns, type LoopTurns } from '../../async/loop-turns.ts';
import { createSequence, createSharedStep } from '../../async/sequence.ts';
import {
  SESSIONS_FOLDER,
  SUFFIX,
  decodeNodeId,
  parseCastName,
  parseMarkName,
  recordingId,
  type RecordingKey,
} from './key.ts';
import type { StoredRecording } from './store.ts';

/** A folder that changed within this time may change again without a new modification time, in milliseconds. */
const SETTLE_MS = 5000;

/** Session marks by recording id. */
type Marks = ReadonlyMap<string, string>;

/** Content of a folder when it was last read. */
interface KnownFolder<T> {
  /** Modification time; undefined if the folder may have changed since. */
  readonly time: bigint | undefined;
  readonly found: T;
}

/** Lister of one store directory. */
export interface DiskLister {
  /** Lists all recordings. Concurrent callers share a list that starts after their calls. */
  list(): Promise<readonly StoredRecording[]>;
  /**
   * Returns the session mark of a recording from the last list, so that removing thousands of recordings reads the
   * folder once.
   */
  markOf(id: string): Promise<string | undefined>;
}

/** @param report called with the path of each link or special file in place of a folder */
export function createDiskLister(
  directory: string,
  nowMs: () => number,
  report: (path: string) => void,
): DiskLister {
  const lister = new Lister(directory, nowMs, report);
  const inTurn = createSequence();
  return {
    list: createSharedStep(inTurn, () => lister.list()),
    markOf: (id) => inTurn(() => lister.markOf(id)),
  };
}

/** Lister without protection against concurrent calls. */
class Lister {
  readonly #directory: string;
  readonly #nowMs: () => number;
  readonly #report: (path: string) => void;
  /** Recordings by folder, in the order of their names, which is the order of time. */
  readonly #known = new Map<string, KnownFolder<readonly StoredRecording[]>>();
  #marks: KnownFolder<Marks> | undefined;
  /** By folder: times of recordings whose marks changed since the folder was read. */
  readonly #remarked = new Map<string, Set<string>>();
  #last: readonly StoredRecording[] | undefined;

  constructor(directory: string, nowMs: () => number, report: (path: string) => void) {
    this.#directory = directory;
    this.#nowMs = nowMs;
    this.#report = report;
  }

  async list(): Promise<readonly StoredRecording[]> {
    const turns = createLoopTurns();
    // NOTE: marks are read first, because a mark is written before its recording.
    const marks = await this.#readMarks(turns);
    const folders = await readdir(this.#directory, { withFileTypes: true });
    const nodes = folders.filter((folder) => folder.isDirectory() && !folder.name.startsWith('.'));
    for (const entry of folders)
      if (!entry.isDirectory() && !entry.isFile()) this.#report(join(this.#directory, entry.name));
    for (const { name } of nodes) await this.#readNodeFolder(name, marks, turns);
    const present = new Set(nodes.map(({ name }) => name));
    for (const name of this.#known.keys()) if (!present.has(name)) this.#set(name, undefined);
    if (this.#last !== undefined) return this.#last;
    const all: StoredRecording[] = [];
    for (const { found } of this.#known.values())
      for (const recording of found) {
        all.push(recording);
        if (turns.isDue()) await turns.turn();
      }
    this.#last = all;
    return all;
  }

  async markOf(id: string): Promise<string | undefined> {
    const marks = this.#marks?.found ?? (await this.#readMarks(createLoopTurns()));
    return marks.get(id);
  }

  /** Reads the names in a folder. Undefined if the folder is unchanged. */
  async #readNames(
    path: string,
    before: KnownFolder<unknown> | undefined,
  ): Promise<{ readonly time: bigint | undefined; readonly names: readonly string[] } | undefined> {
    const startedMs = this.#nowMs();
    const time = await changedAt(path);
    if (time === 'no folder') {
      this.#report(path);
      return { time: undefined, names: [] };
    }
    if (before?.time !== undefined && before.time === time) return undefined;
    const names = await readdir(path).catch(() => []);
    const isSettled = time !== undefined && time < BigInt(Math.floor(startedMs - SETTLE_MS)) * 1_000_000n;
    return { time: isSettled ? time : undefined, names };
  }

  async #readMarks(turns: LoopTurns): Promise<Marks> {
    const before = this.#marks;
    const seen = await this.#readNames(join(this.#directory, SESSIONS_FOLDER), before);
    if (seen === undefined && before !== undefined) return before.found;
    const marks = new Map<string, string>();
    for (const name of seen?.names ?? []) {
      if (turns.isDue()) await turns.turn();
      const parsed = parseMarkName(name);
      if (parsed !== undefined) marks.set(parsed.id, parsed.mark);
    }
    const known: Marks = before?.found ?? new Map();
    for (const [of, others] of [
      [known, marks],
      [marks, known],
    ] as const)
      for (const [id, mark] of of) {
        if (turns.isDue()) await turns.turn();
        if (others.get(id) !== mark) this.#remark(id);
      }
    this.#marks = { time: seen?.time, found: marks };
    return marks;
  }

  #remark(id: string): void {
    const end = id.lastIndexOf('_');
    const folder = id.slice(0, Math.max(0, end));
    const times = this.#remarked.get(folder);
    if (times === undefined) this.#remarked.set(folder, new Set([id.slice(end + 1)]));
    else times.add(id.slice(end + 1));
  }

  async #readNodeFolder(name: string, marks: Marks, turns: LoopTurns): Promise<void> {
    const before = this.#known.get(name);
    const remarked = this.#remarked.get(name);
    const seen = await this.#readNames(join(this.#directory, name), before);
    const found =
      seen === undefined
        ? await markAgain(before?.found ?? [], marks, remarked, turns)
        : await readNode(name, seen.names, { marks, remarked, before: before?.found ?? [], turns });
    this.#set(name, { time: seen === undefined ? before?.time : seen.time, found });
    this.#remarked.delete(name);
  }

  #set(name: string, folder: KnownFolder<readonly StoredRecording[]> | undefined): void {
    if (folder?.found !== this.#known.get(name)?.found) this.#last = undefined;
    if (folder === undefined) this.#known.delete(name);
    else this.#known.set(name, folder);
  }
}

/** Returns the modification time of a folder. A link to a folder is no folder. */
async function changedAt(path: string): Promise<bigint | 'no folder' | undefined> {
  const found = await lstat(path, { bigint: true }).catch(() => undefined);
  return found?.isDirectory() === false ? 'no folder' : found?.mtimeNs;
}

interface NodeBefore {
  readonly marks: Marks;
  /** Times of recordings whose marks changed. */
  readonly remarked: ReadonlySet<string> | undefined;
  readonly before: readonly StoredRecording[];
  readonly turns: LoopTurns;
}

/** Returns the recordings among the names of a folder; the same array as before if nothing changed. */
async function readNode(
  folder: string,
  names: readonly string[],
  node: NodeBefore,
): Promise<readonly StoredRecording[]> {
  const { before, turns } = node;
  const nodeId = decodeNodeId(folder);
  const found: StoredRecording[] = [];
  let isSame = true;
  let at = 0;
  const sorted = nodeId === undefined ? [] : await inOrder(names, turns);
  for (let index = 0; index < sorted.length; index += 1) {
    if (turns.isDue()) await turns.turn();
    const name = sorted[index] ?? '';
    if (!name.endsWith(SUFFIX.cast)) continue;
    // Skip recordings that are gone.
    while (isBefore(before[at], name)) at += 1;
    const there = isOf(before[at], name) ? before[at] : undefined;
    const key = there?.key ?? parseCastName(nodeId ?? '', name);
    if (key === undefined) continue;
    const now = recordingOf(key, hasSidecarAfter(sorted, index), there, node);
    isSame &&= now === there;
    found.push(now);
  }
  return isSame && found.length === before.length ? before : found;
}

/** Returns the recording; the same object as before if it is unchanged. */
function recordingOf(
  key: RecordingKey,
  hasSidecar: boolean,
  there: StoredRecording | undefined,
  { marks, remarked }: NodeBefore,
): StoredRecording {
  const isKnown = there?.hasSidecar === hasSidecar;
  if (isKnown && remarked?.has(key.time) !== true) return there;
  const now = withMark({ key, hasSidecar }, marks);
  return isKnown && there.sessionMark === now.sessionMark ? there : now;
}

function isOf(recording: StoredRecording | undefined, name: string): boolean {
  if (recording === undefined) return false;
  const { time } = recording.key;
  return name.length === time.length + SUFFIX.cast.length && name.startsWith(time);
}

/** Returns true if the recording sorts before the name. No time is a prefix of another one. */
function isBefore(recording: StoredRecording | undefined, name: string): boolean {
  return recording !== undefined && recording.key.time < name && !isOf(recording, name);
}

/** Returns true if one of the following names is the sidecar of the recording. */
function hasSidecarAfter(sorted: readonly string[], index: number): boolean {
  const cast = sorted[index] ?? '';
  const time = cast.slice(0, -SUFFIX.cast.length);
  for (let at = index + 1; ; at += 1) {
    const name = sorted[at];
    if (name?.startsWith(time) !== true) return false;
    if (name.length === cast.length && name.endsWith(SUFFIX.sidecar)) return true;
  }
}

function withMark(recording: StoredRecording, marks: Marks): StoredRecording {
  const sessionMark = marks.size === 0 ? undefined : marks.get(recordingId(recording.key));
  const { key, hasSidecar } = recording;
  return sessionMark === undefined ? { key, hasSidecar } : { key, hasSidecar, sessionMark };
}

/** Returns the recordings of an unchanged folder with their current marks. */
async function markAgain(
  recordings: readonly StoredRecording[],
  marks: Marks,
  remarked: ReadonlySet<string> | undefined,
  turns: LoopTurns,
): Promise<readonly StoredRecording[]> {
  if (remarked === undefined) return recordings;
  const found: StoredRecording[] = [];
  let isSame = true;
  for (const recording of recordings) {
    if (turns.isDue()) await turns.turn();
    const marked = remarked.has(recording.key.time) ? withMark(recording, marks) : recording;
    if (marked.sessionMark === recording.sessionMark) found.push(recording);
    else {
      isSame = false;
      found.push(marked);
    }
  }
  return isSame ? recordings : found;
}

/** Sorts names, unless they are sorted already, as on most file systems. */
async function inOrder(names: readonly string[], turns: LoopTurns): Promise<readonly string[]> {
  let before = '';
  for (const name of names) {
    if (turns.isDue()) await turns.turn();
    if (name < before) return sortInTurns(names, (left, right) => (left < right ? -1 : 1), turns);
    before = name;
  }
  return names;
}
