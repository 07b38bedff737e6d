/**
 * Merges the uploads of all sources into one sorted list: running uploads, stored uploads, and uploads at other
 * recorders.
 */
import { createLoopTurns } from '../../async/loop-turns.ts';
import { newestFirst } from './scope.ts';
import { createPartFinder, sessionOf, withoutCopies, type Candidate } from './sessions.ts';
import { newestKeyFirst, orderOf, splitRecordingId, type RecordingKey } from '../store/key.ts';
import type { StoredRecording } from '../store/store.ts';

/** Sorted uploads of a listing. */
export interface ListedUploads<T extends { readonly key: RecordingKey }> {
  /** Newest first. May contain a million uploads, so candidates are created on demand. */
  readonly all: readonly T[];
  readonly candidate: (upload: T) => Candidate;
  /** Uploads of each session with a session mark, newest first. */
  readonly byMark: ReadonlyMap<string, readonly Candidate[]>;
}

export type MergedUploads = ReturnType<typeof mergeUploads>;

/**
 * Merges uploads with a listing.
 *
 * @param few uploads in any order. An upload replaces the listed upload with the same id
 */
export function mergeUploads<T extends { readonly key: RecordingKey }>(
  few: readonly Candidate[],
  { all, candidate, byMark }: ListedUploads<T>,
) {
  const byId = new Map(few.map((upload) => [upload.id, upload]));
  let inOrder: readonly Candidate[] | undefined;
  const fewSorted = (): readonly Candidate[] => (inOrder ??= few.toSorted(newestFirst));
  const startOf = <U extends object>(
    list: readonly U[],
    orderAt: (item: U) => string,
    before: string | undefined,
  ): number => (before === undefined ? 0 : firstOf(list, (item) => orderAt(item) < before));
  return {
    /** Yields the uploads whose `order` is less than `before`, newest first. Default: all uploads. */
    *after(before: string | undefined): Iterable<Candidate> {
      const sorted = fewSorted();
      let next = startOf(sorted, ({ order }) => order, before);
      for (let at = startOf(all, ({ key }) => orderOf(key), before); ; at += 1) {
        const listed = all[at];
        const upload = listed === undefined ? undefined : candidate(listed);
        for (let other = sorted[next]; other !== undefined; other = sorted[next]) {
          if (upload !== undefined && other.order < upload.order) break;
          yield other;
          next += 1;
        }
        if (upload === undefined) return;
        if (!byId.has(upload.id)) yield upload;
      }
    },
    /** Returns the uploads with a session mark, newest first. */
    ofMark(mark: string) {
      const others = fewSorted().filter((upload) => upload.mark === mark);
      const listed = byMark.get(mark) ?? [];
      return others.length === 0 ? listed : withoutCopies(others, listed).toSorted(newestFirst);
    },
    /** Finds an upload by its id. */
    find(id: string) {
      const listed = all[indexOfId(all, id)];
      return byId.get(id) ?? (listed === undefined ? undefined : candidate(listed));
    },
  };
}

/** Yields the sessions whose `order` is at least `from` and less than `before`, newest first. */
export async function* sessionsOf(
  uploads: MergedUploads,
  { before, from = '' }: { readonly before?: string | undefined; readonly from?: string } = {},
): AsyncGenerator<Candidate> {
  const turns = createLoopTurns();
  const findParts = createPartFinder(uploads);
  for (const upload of uploads.after(before)) {
    if (upload.order < from) return;
    if (turns.isDue()) await turns.turn();
    const session = await sessionOf(upload, findParts);
    if (session !== undefined) yield session;
  }
}

/** Returns the session of an upload, or undefined for an unknown id. */
export async function sessionWith(uploads: MergedUploads, id: string): Promise<Candidate | undefined> {
  const upload = uploads.find(id);
  if (upload === undefined) return undefined;
  const findParts = createPartFinder(uploads);
  const parts = await findParts(upload);
  const first = parts.some((part) => part.id === id) ? parts.at(-1) : upload;
  return first === undefined ? undefined : sessionOf(first, findParts);
}

/** Compares stored recordings for sorting, newest first. */
export function newestStored(left: StoredRecording, right: StoredRecording): number {
  return newestKeyFirst(left.key, right.key);
}

/** Returns the index of an upload, or -1 for an unknown or invalid `id`. @param newest newest first */
export function indexOfId(newest: readonly { readonly key: RecordingKey }[], id: string): number {
  const key = splitRecordingId(id);
  if (key === undefined) return -1;
  // Several keys may contain the same time in different spellings. Compare the texts of all these keys.
  for (let at = firstOf(newest, (other) => newestKeyFirst(other.key, key) >= 0); ; at += 1) {
    const found = newest[at]?.key;
    if (found === undefined || newestKeyFirst(found, key) !== 0) return -1;
    if (found.time === key.time && found.nodeId === key.nodeId) return at;
  }
}

/**
 * Returns the index of the first item for which `isAfter` returns true. If there is no such item, returns the length of
 * the list. `isAfter` must be true for all later items too.
 */
export function firstOf<T extends object>(list: readonly T[], isAfter: (item: T) => boolean): number {
  let low = 0;
  let high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    const item = list[middle];
    if (item === undefined || isAfter(item)) high = middle;
    else low = middle + 1;
  }
  return low;
}
