/**
 * The recordings that a viewer may see (*scope*). The scope is applied before all other filters, so that no response,
 * page or response time depends on hidden recordings.
 */
import { forEachConcurrent } from '../../async/for-each-concurrent.ts';
import { createLoopTurns, sortInTurns } from '../../async/loop-turns.ts';
import { ruledNamespaces } from '../../search/search-index.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';

/** All recordings, or the recordings with at least one of these access marks (see {@link marksOf}). */
export type Scope = 'everything' | readonly string[];

/** A recording in an index of access marks. */
export interface Marked {
  readonly id: string;
  /** Sort key: the time of the recording. */
  readonly order: string;
}

const CONCURRENCY = 32;

/** Fields of a recording that determine its access marks. */
export type MarkedFacts = Pick<Recording, 'cluster' | 'kubernetes' | 'source'>;

/**
 * Returns the access marks of a session: `cluster:<name>`, `namespace:<name>`, `namespace:<cluster>/<name>`,
 * `user:<login>`, and the tags of its source (`tag:<name>`).
 */
export function marksOf({ cluster, kubernetes, source }: MarkedFacts): readonly string[] {
  return [
    ...(cluster === undefined ? [] : [`cluster:${cluster}`]),
    ...ruledNamespaces({ cluster, namespace: kubernetes?.namespace }).map((name) => `namespace:${name}`),
    ...(source.user === undefined ? [] : [`user:${source.user}`]),
    // Uploaders choose the tags in the header. Accept only tags with the prefix `tag:`, so that a forged tag does not
    // look like another kind of mark.
    ...(source.tags ?? []).filter((tag) => tag.startsWith('tag:')),
  ];
}

/**
 * True if every scope includes either all of these uploads of one session, or none of them. Damaged uploads count as
 * uploads without access marks, because only unrestricted viewers see them.
 */
export function areSeenAlike(uploads: readonly (MarkedFacts & Pick<Recording, 'state'>)[]): boolean {
  const [first, ...others] = uploads.map((upload) =>
    JSON.stringify(upload.state === 'damaged' ? [] : [...new Set(marksOf(upload))].toSorted()),
  );
  return others.every((marks) => marks === first);
}

/** True if a recording is within a scope. */
export function isWithin(scope: Scope, recording: MarkedFacts): boolean {
  return includesMarks(scope, marksOf(recording));
}

/** True if a scope includes recordings with these access marks. */
export function includesMarks(scope: Scope, marks: readonly string[]): boolean {
  return scope === 'everything' || marks.some((mark) => scope.includes(mark));
}

/** Finds recordings by their access marks. The time of a search depends only on the number of results. */
export interface ScopeIndex<T extends Marked> {
  /** Returns the recordings within a scope, newest first. */
  within(scope: readonly string[]): Promise<readonly T[]>;
}

/**
 * Creates an index by access mark. The access marks of a recording never change, so the index reads them only once.
 *
 * @param describe returns the recording, or undefined for a missing or unreadable recording. Restricted viewers do not
 *   see such a recording
 */
export function createScopes<T extends Marked>(
  describe: (recording: T) => Promise<MarkedFacts | undefined>,
): (recordings: readonly T[]) => Promise<ScopeIndex<T>> {
  let known = new Map<string, readonly string[]>();

  async function readUnknown(recordings: readonly T[]): Promise<void> {
    const turns = createLoopTurns();
    await forEachConcurrent(recordings, CONCURRENCY, async (recording) => {
      if (turns.isDue()) await turns.turn();
      const { id } = recording;
      if (known.has(id)) return;
      const described = await describe(recording);
      if (described !== undefined) known.set(id, marksOf(described));
    });
  }

  return async (recordings) => {
    await readUnknown(recordings);
    const turns = createLoopTurns();
    const fresh = new Map<string, readonly string[]>();
    const byMark = new Map<string, T[]>();
    for (const recording of recordings) {
      if (turns.isDue()) await turns.turn();
      const { id } = recording;
      const marks = known.get(id);
      if (marks === undefined) continue;
      fresh.set(id, marks);
      for (const mark of new Set(marks)) {
        const marked = byMark.get(mark);
        if (marked === undefined) byMark.set(mark, [recording]);
        else marked.push(recording);
      }
    }
    // Forget the access marks of removed recordings.
    known = fresh;
    return { within: (scope) => union(scope.map((mark) => byMark.get(mark) ?? [])) };
  };
}

/** Merges lists without duplicates. @param lists lists that are each sorted newest first */
async function union<T extends Marked>(lists: readonly (readonly T[])[]): Promise<readonly T[]> {
  const [only = [], ...more] = lists.filter(({ length }) => length > 0);
  if (more.length === 0) return only;
  const turns = createLoopTurns();
  const all: T[] = [];
  for (const list of [only, ...more])
    for (const recording of list) {
      if (turns.isDue()) await turns.turn();
      all.push(recording);
    }
  const sorted = await sortInTurns(all, newestFirst, turns);
  const found: T[] = [];
  /**
   * Recordings with the same time as the current recording. The set is necessary because duplicates are not always
   * adjacent.
   */
  const moment = new Set<T>();
  let order = '';
  for (const recording of sorted) {
    if (turns.isDue()) await turns.turn();
    if (recording.order !== order) moment.clear();
    order = recording.order;
    if (moment.has(recording)) continue;
    moment.add(recording);
    found.push(recording);
  }
  return found;
}

/** Compares recordings for sorting, newest first. */
export function newestFirst(left: Pick<Marked, 'order'>, right: Pick<Marked, 'order'>): number {
  if (left.order === right.order) return 0;
  return left.order < right.order ? 1 : -1;
}
