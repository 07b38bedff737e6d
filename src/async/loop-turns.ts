/**
 * Splits long work into pieces and yields to the event loop between them. A piece has a fixed number of items instead
 * of a fixed duration, so that the number of yields depends only on the work.
 */

/** Number of items in a piece. A piece takes one or two milliseconds. */
const ITEMS = 1000;

export type LoopTurns = ReturnType<typeof createLoopTurns>;

/**
 * Creates the counter of the items of one long computation. Concurrent calls of `turn` share one turn of the event
 * loop.
 */
export function createLoopTurns(signal?: AbortSignal, items = ITEMS) {
  let left = items;
  let turning: Promise<void> | undefined;
  return {
    /** Counts an item. @returns true if the caller must call `turn` before the next item */
    isDue(): boolean {
      left -= 1;
      return left <= 0;
    },
    /** Yields to the event loop. @throws the reason of the signal if the signal has aborted */
    async turn(): Promise<void> {
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

/** Maximum number of items that are sorted without a yield to the event loop. */
const SLICE = 256;

/** Type of items that can be sorted. Excludes `undefined`. */
type Sortable = object | string;
type Compare<T> = (left: T, right: T) => number;

/** Sorts like `toSorted`. Long ascending or descending runs of items make the sort faster. */
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

/** @returns all items, divided into ranges; each range is sorted, and `ends` contains the end of each range */
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
      // always yields after a slice, because the sort takes more time than the counter of items assumes
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

/** Returns the end of the ascending or strictly descending run that begins at `start`. */
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
    const isDescending = compare(before, item) > 0;
    isDown ??= isDescending;
    if (isDescending !== isDown) return { end, isDown };
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
