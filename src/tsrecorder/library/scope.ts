/**
 * What somebody may see of the recordings. Held against a recording before anything else is asked of it, so that no answer,
 * no page and no time that an answer takes depends on what is hidden.
 */
import { createLoopTurns, sortInTurns } from '../../async/loop-turns.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';

/** Everything, or the recordings that have one of these marks. */
export type Scope = 'everything' | readonly string[];

/** What is kept of a recording to know who may see it. */
export interface Marked {
  readonly id: string;
  /** Sorts by time. */
  readonly order: string;
}

const CONCURRENCY = 32;

/** `namespace:<name>`, `user:<login>`, and each tag (`tag:<name>`) of whose session it was. */
function marksOf({ kubernetes, source }: Pick<Recording, 'kubernetes' | 'source'>): readonly string[] {
  return [
    ...(kubernetes === undefined ? [] : [`namespace:${kubernetes.namespace}`]),
    ...(source.user === undefined ? [] : [`user:${source.user}`]),
    // a header is written by an uploader: its tags are not to pass for the two above
    ...(source.tags ?? []).filter((tag) => tag.startsWith('tag:')),
  ];
}

/** Whether nobody may see one of these, all uploads of one session, and not another. A damaged one is for those who see everything. */
export function areSeenAlike(
  uploads: readonly Pick<Recording, 'kubernetes' | 'source' | 'state'>[],
): boolean {
  const [first, ...others] = uploads.map((upload) =>
    JSON.stringify(upload.state === 'damaged' ? [] : [...new Set(marksOf(upload))].toSorted()),
  );
  return others.every((marks) => marks === first);
}

export function isWithin(scope: Scope, recording: Pick<Recording, 'kubernetes' | 'source'>): boolean {
  return scope === 'everything' || marksOf(recording).some((mark) => scope.includes(mark));
}

/** Finds recordings by their marks in a time that depends on those that are found alone. */
export interface ScopeIndex<T extends Marked> {
  /** Newest first. */
  within(scope: readonly string[]): Promise<readonly T[]>;
}

/**
 * Reads the marks of recordings, each once: they never change.
 *
 * @param describe what is there, or undefined when it is gone or cannot be read: then nobody restricted sees it
 */
export function createScopes<T extends Marked>(
  describe: (recording: T) => Promise<Pick<Recording, 'kubernetes' | 'source'> | undefined>,
): (recordings: readonly T[]) => Promise<ScopeIndex<T>> {
  let known = new Map<string, readonly string[]>();

  async function readUnknown(recordings: readonly T[]): Promise<void> {
    const left = recordings.values();
    const turns = createLoopTurns();
    const readNext = async (): Promise<void> => {
      for (const recording of left) {
        if (turns.isDue()) await turns.turn();
        const { id } = recording;
        if (known.has(id)) continue;
        const described = await describe(recording);
        if (described !== undefined) known.set(id, marksOf(described));
      }
    };
    await Promise.all(Array.from({ length: CONCURRENCY }, readNext));
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
    // what is gone from the store is forgotten
    known = fresh;
    return { within: (scope) => union(scope.map((mark) => byMark.get(mark) ?? [])) };
  };
}

/** @param lists newest first, each */
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
  const sorted = await sortInTurns(all, newestMarked, turns);
  const found: T[] = [];
  /** Those of one moment, which may stand between each other. */
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

function newestMarked(left: Marked, right: Marked): number {
  if (left.order === right.order) return 0;
  return left.order < right.order ? 1 : -1;
}
