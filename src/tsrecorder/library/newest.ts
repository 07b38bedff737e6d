/** Sorted lists of up to a million recordings: binary search and incremental updates. */
import { compareLists, sortInTurns, type LoopTurns } from '../../async/loop-turns.ts';
import { newestKeyFirst, splitRecordingId } from '../store/key.ts';
import type { StoredRecording } from '../store/store.ts';

type Newest = readonly StoredRecording[];

/** Compares stored recordings for sorting, newest first. */
export function newestStored(left: StoredRecording, right: StoredRecording): number {
  return newestKeyFirst(left.key, right.key);
}

/**
 * Returns the index of the first item for which `isBehind` is true, or the length. All later items must be behind, too.
 */
export function firstOf<T extends object>(
  list: readonly T[],
  isAfter: (item: T) => boolean,
  [start, end]: readonly [start: number, end: number] = [0, list.length],
): number {
  let low = start;
  let high = end;
  while (low < high) {
    const middle = (low + high) >> 1;
    const item = list[middle];
    if (item === undefined || isAfter(item)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/**
 * Returns the index of a recording, or -1 for an unknown or invalid `id`.
 * @param near expected index. It makes lookups in list order cheap
 */
export function indexOfId(newest: Newest, id: string, near = 0): number {
  const key = splitRecordingId(id);
  if (key === undefined) return -1;
  const isAfter = (recording: StoredRecording): boolean => newestKeyFirst(recording.key, key) >= 0;
  // One time has several spellings.
  for (let at = firstOf(newest, isAfter, reach(newest, isAfter, near)); ; at += 1) {
    const found = newest[at]?.key;
    if (found === undefined || newestKeyFirst(found, key) !== 0) return -1;
    if (found.time === key.time && found.nodeId === key.nodeId) return at;
  }
}

/** Returns a range that contains the first item behind. The search doubles its steps. */
function reach(
  newest: Newest,
  isAfter: (recording: StoredRecording) => boolean,
  near: number,
): readonly [start: number, end: number] {
  const isAfterAt = (at: number): boolean | undefined => {
    const recording = newest[at];
    return recording === undefined ? undefined : isAfter(recording);
  };
  let at = Math.max(0, Math.min(near, newest.length - 1));
  const isBack = isAfterAt(at) === true;
  let from = at;
  for (let step = 1; isAfterAt(at) === isBack; step *= 2) {
    from = at;
    at += isBack ? -step : step;
  }
  return isBack ? [Math.max(0, at), from] : [from, Math.min(newest.length, at)];
}

/** Sorted listing of a store, and the changes since the previous listing. */
export interface Arranged {
  /** Listing in the order of the store. */
  readonly listed: readonly StoredRecording[];
  readonly newest: Newest;
  /** Recordings of `newest` with a session mark. */
  readonly marked: Newest;
  readonly added: Newest;
  readonly removed: readonly StoredRecording[];
}

/** Sorts a listing. The cost is one comparison per unchanged recording, plus sorting the changes. */
export async function arrange(
  listed: readonly StoredRecording[],
  before: Arranged | undefined,
  turns: LoopTurns,
): Promise<Arranged> {
  const { added, removed } =
    before === undefined ? { added: listed, removed: [] } : await compareLists(before.listed, listed, turns);
  const fresh = await sortInTurns(added, newestStored, turns);
  const marked: StoredRecording[] = [];
  for (const recording of fresh) {
    if (turns.isDue()) await turns.turn();
    if (recording.sessionMark !== undefined) marked.push(recording);
  }
  if (before === undefined) return { listed, newest: fresh, marked, added: fresh, removed };
  const gone = new Set<StoredRecording>();
  for (const recording of removed) {
    if (turns.isDue()) await turns.turn();
    gone.add(recording);
  }
  return {
    listed,
    newest: await changed(before.newest, gone, fresh, turns),
    marked: await changed(before.marked, gone, marked, turns),
    added: fresh,
    removed,
  };
}

async function changed(
  before: Newest,
  gone: ReadonlySet<StoredRecording>,
  added: Newest,
  turns: LoopTurns,
): Promise<Newest> {
  if (gone.size === 0 && added.length === 0) return before;
  const result: StoredRecording[] = [];
  let at = 0;
  const keepUntil = async (end: number): Promise<void> => {
    for (let recording = before[at]; at < end && recording !== undefined; recording = before[at]) {
      if (gone.size === 0 || !gone.has(recording)) result.push(recording);
      at += 1;
      if (turns.isDue()) await turns.turn();
    }
  };
  for (const recording of added) {
    await keepUntil(firstOf(before, (other) => newestStored(other, recording) >= 0));
    result.push(recording);
  }
  await keepUntil(before.length);
  return result;
}
