/**
 * Lists the recordings in a directory. The pages of viewers request the list every few seconds, so the lister does not
 * read unchanged folders again. If nothing changed, the list is the same array as before. Reading a folder with a
 * million names does not block the event loop.
 */
import { lstat, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { createLoopTurns, type LoopTurns } from '../../async/loop-turns.ts';
import { createSequence, createSharedStep } from '../../async/sequence.ts';
import { SESSIONS_FOLDER, SUFFIX, decodeNodeId, parseCastName, parseMarkName, recordingId } from './key.ts';
import type { StoredRecording } from './store.ts';

/**
 * Resolution of modification times, in milliseconds: a folder may change twice within this time with the same
 * modification time.
 */
const SETTLE_MS = 5000;

/** Session marks of recordings. Map keys: id of the recording. */
type Marks = ReadonlyMap<string, string>;

/** Content of a folder at its last read. */
interface KnownFolder<T> {
  /** Modification time; undefined if the folder may have changed after the read. */
  readonly time: bigint | undefined;
  readonly found: T;
}

/**
 * Creates the lister of one store directory.
 *
 * @param report called with the path of each link or special file that has the name of a folder
 */
export function createDiskLister(directory: string, nowMs: () => number, report: (path: string) => void) {
  const lister = new Lister(directory, nowMs, report);
  const inTurn = createSequence();
  return {
    /** Lists all recordings. Waiting calls share one list, which is read after the last of these calls. */
    list: createSharedStep(inTurn, () => lister.list()),
    /**
     * Returns the session mark of a recording. Uses the last list, so that the removal of thousands of recordings reads
     * the folder only once.
     */
    markOf: (id: string) => inTurn(() => lister.markOf(id)),
  };
}

/** Lister whose calls must not overlap. */
class Lister {
  readonly #directory: string;
  readonly #nowMs: () => number;
  readonly #report: (path: string) => void;
  #known = new Map<string, KnownFolder<readonly StoredRecording[]>>();
  #marks: KnownFolder<Marks> | undefined;
  #last: readonly StoredRecording[] = [];

  constructor(directory: string, nowMs: () => number, report: (path: string) => void) {
    this.#directory = directory;
    this.#nowMs = nowMs;
    this.#report = report;
  }

  async list(): Promise<readonly StoredRecording[]> {
    const turns = createLoopTurns();
    const marksBefore = this.#marks?.found;
    const folders = await readdir(this.#directory, { withFileTypes: true });
    const before = this.#known;
    const known: typeof before = new Map();
    for (const folder of folders) {
      const { name } = folder;
      if (!folder.isDirectory() && !folder.isFile()) this.#report(join(this.#directory, name));
      if (!folder.isDirectory() || name.startsWith('.')) continue;
      const read = (names: readonly string[]): Promise<readonly StoredRecording[]> =>
        recordingsIn(name, names, before.get(name)?.found ?? [], turns);
      known.set(name, await this.#listFolder(name, before.get(name), read));
    }
    // A session mark is stored before its recording, so each listed recording already has its mark.
    const marks = await this.#listMarks(turns);
    this.#known = known;
    const isSame =
      marks === marksBefore &&
      known.size === before.size &&
      [...known].every(([name, { found }]) => before.get(name)?.found === found);
    if (isSame) return this.#last;
    const all: StoredRecording[] = [];
    for (const { found } of known.values())
      for (const recording of found) {
        if (turns.isDue()) await turns.turn();
        const sessionMark = marks.size === 0 ? undefined : marks.get(recordingId(recording.key));
        all.push(sessionMark === undefined ? recording : { ...recording, sessionMark });
      }
    this.#last = all;
    return all;
  }

  async markOf(id: string): Promise<string | undefined> {
    return (this.#marks?.found ?? (await this.#listMarks(createLoopTurns()))).get(id);
  }

  async #listMarks(turns: LoopTurns): Promise<Marks> {
    const before: Marks = this.#marks?.found ?? new Map();
    this.#marks = await this.#listFolder(SESSIONS_FOLDER, this.#marks, async (names) => {
      const marks = new Map<string, string>();
      let isSame = true;
      for (const name of names) {
        if (turns.isDue()) await turns.turn();
        const parsed = parseMarkName(name);
        if (parsed === undefined) continue;
        marks.set(parsed.id, parsed.mark);
        isSame &&= before.get(parsed.id) === parsed.mark;
      }
      return isSame && marks.size === before.size ? before : marks;
    });
    return this.#marks.found;
  }

  /** Returns the content of a folder. An unchanged folder is not read again. */
  async #listFolder<T>(
    name: string,
    before: KnownFolder<T> | undefined,
    read: (names: readonly string[]) => Promise<T>,
  ): Promise<KnownFolder<T>> {
    const path = join(this.#directory, name);
    const startedMs = this.#nowMs();
    const time = await changedAt(path);
    if (time === 'no folder') this.#report(path);
    else if (before?.time !== undefined && before.time === time) return before;
    const names = time === 'no folder' ? [] : await readdir(path).catch(() => []);
    const isSettled =
      typeof time === 'bigint' && time < BigInt(Math.floor(startedMs - SETTLE_MS)) * 1_000_000n;
    return { time: isSettled ? time : undefined, found: await read(names) };
  }
}

/** Returns the modification time of a folder. A link to a folder does not count as a folder. */
async function changedAt(path: string): Promise<bigint | 'no folder' | undefined> {
  const found = await lstat(path, { bigint: true }).catch(() => undefined);
  return found?.isDirectory() === false ? 'no folder' : found?.mtimeNs;
}

/** Returns the recordings in the folder of a tailnet node; the same array as before if nothing changed. */
async function recordingsIn(
  folder: string,
  names: readonly string[],
  before: readonly StoredRecording[],
  turns: LoopTurns,
): Promise<readonly StoredRecording[]> {
  const nodeId = decodeNodeId(folder);
  if (nodeId === undefined) return [];
  const sidecars = new Set<string>();
  for (const name of names) {
    if (turns.isDue()) await turns.turn();
    if (name.endsWith(SUFFIX.sidecar)) sidecars.add(name.slice(0, -SUFFIX.sidecar.length));
  }
  const found: StoredRecording[] = [];
  let isSame = true;
  for (const name of names) {
    if (turns.isDue()) await turns.turn();
    const key = parseCastName(nodeId, name);
    if (key === undefined) continue;
    const hasSidecar = sidecars.has(key.time);
    const known = before[found.length];
    isSame &&= known?.key.time === key.time && known.hasSidecar === hasSidecar;
    found.push({ key, hasSidecar });
  }
  return isSame && found.length === before.length ? before : found;
}
