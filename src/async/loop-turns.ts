/**
 * Long work in pieces, between which the event loop turns: what has come meanwhile is answered. Counted in items, not in time, so that the
 * same work always turns as often.
 */

/** Items between two turns: a millisecond or two of what is done with a name. */
const ITEMS = 1000;

export interface LoopTurns {
  /** Counts an item. @returns whether the loop is to turn before the next one */
  isDue(): boolean;
  /** Lets the loop turn. @throws the reason of the signal when that is aborted */
  turn(): Promise<void>;
}

/** One for each piece of work. Several that share it wait together. */
export function createLoopTurns(signal?: AbortSignal, items = ITEMS): LoopTurns {
  let left = items;
  let turning: Promise<void> | undefined;
  return {
    isDue() {
      left -= 1;
      return left <= 0;
    },
    async turn() {
      turning ??= new Promise((resolve) => {
        setImmediate(() => {
          left = items;
          turning = undefined;
          resolve();
        });
      });
      await turning;
      signal?.throwIfAborted();
    },
  };
}

/** What is sorted at once, where it is in no order. */
const SLICE = 256;

/** What is in no list as `undefined`. */
type Sortable = object | string;
type Compare<T> = (left: T, right: T) => number;

/** As `toSorted` does it. Cheapest where long pieces are in order already, whichever way round. */
export async function sortInTurns<T extends Sortable>(
  items: readonly T[],
  compare: Compare<T>,
  turns: LoopTurns,
): Promise<T[]> {
  let { sorted, ends } = await sortRuns(items, compare, turns);
  while (ends.length > 1) {
    const merged: T[] = [];
    const longer: number[] = [];
    for (let run = 0, start = 0; run < ends.length; run += 2) {
      const middle = ends[run] ?? start;
      const end = ends[run + 1] ?? middle;
      await mergeRuns(sorted, [start, middle, end], merged, compare, turns);
      longer.push(end);
      start = end;
    }
    sorted = merged;
    ends = longer;
  }
  return sorted;
}

/** @returns the same items, sorted up to each of `ends` */
async function sortRuns<T extends Sortable>(
  items: readonly T[],
  compare: Compare<T>,
  turns: LoopTurns,
): Promise<{ readonly sorted: T[]; readonly ends: number[] }> {
  const sorted: T[] = [];
  const ends: number[] = [];
  for (let start = 0; start < items.length; start = sorted.length) {
    const { end, isDown } = await findRun(items, start, compare, turns);
    if (end - start < SLICE) {
      sorted.push(...items.slice(start, start + SLICE).sort(compare));
      // each was compared several times
      await turns.turn();
    } else {
      const run = items.slice(start, end);
      if (isDown) run.reverse();
      for (const item of run) {
        sorted.push(item);
        if (turns.isDue()) await turns.turn();
      }
    }
    ends.push(sorted.length);
  }
  return { sorted, ends };
}

/** How far what begins at `start` is in order, or in the opposite order without equal ones. */
async function findRun<T extends Sortable>(
  items: readonly T[],
  start: number,
  compare: Compare<T>,
  turns: LoopTurns,
): Promise<{ readonly end: number; readonly isDown: boolean }> {
  let isDown: boolean | undefined;
  let before = items[start];
  for (let end = start + 1; ; end += 1) {
    const item = items[end];
    if (before === undefined || item === undefined) return { end, isDown: isDown === true };
    const goesDown = compare(before, item) > 0;
    isDown ??= goesDown;
    if (goesDown !== isDown) return { end, isDown };
    before = item;
    if (turns.isDue()) await turns.turn();
  }
}

async function mergeRuns<T extends Sortable>(
  items: readonly T[],
  [start, middle, end]: readonly [number, number, number],
  merged: T[],
  compare: Compare<T>,
  turns: LoopTurns,
): Promise<void> {
  let left = start;
  let right = middle;
  for (;;) {
    const first = left < middle ? items[left] : undefined;
    const second = right < end ? items[right] : undefined;
    if (first !== undefined && (second === undefined || compare(first, second) <= 0)) {
      merged.push(first);
      left += 1;
    } else if (second === undefined) return;
    else {
      merged.push(second);
      right += 1;
    }
    if (turns.isDue()) await turns.turn();
  }
}

/** What has come and what has gone between two lists whose items are the same objects, and mostly in the same order. */
export async function compareLists<T>(
  before: readonly T[],
  after: readonly T[],
  turns: LoopTurns,
): Promise<{ readonly added: readonly T[]; readonly removed: readonly T[] }> {
  const added: T[] = [];
  const removed: T[] = [];
  let at = 0;
  for (const item of after) {
    if (turns.isDue()) await turns.turn();
    if (before[at] === item) {
      at += 1;
      continue;
    }
    const there = before.slice(at + 1, at + LOOK_AHEAD).indexOf(item);
    if (there < 0) added.push(item);
    else {
      removed.push(...before.slice(at, at + 1 + there));
      at += there + 2;
    }
  }
  for (const item of before.slice(at)) {
    removed.push(item);
    if (turns.isDue()) await turns.turn();
  }
  if (added.length === 0 || removed.length === 0) return { added, removed };
  // they stand elsewhere, or behind more than was looked at
  return { added: await without(added, removed, turns), removed: await without(removed, added, turns) };
}

/** Items of the list before that are looked at for one that is not where it was. */
const LOOK_AHEAD = 32;

async function without<T>(items: readonly T[], others: readonly T[], turns: LoopTurns): Promise<T[]> {
  const known = new Set<T>();
  for (const other of others) {
    known.add(other);
    if (turns.isDue()) await turns.turn();
  }
  const left: T[] = [];
  for (const item of items) {
    if (!known.has(item)) left.push(item);
    if (turns.isDue()) await turns.turn();
  }
  return left;
}
