/**
 * What somebody may see of the recordings. Held against a recording before anything else is asked of it, so that no answer,
 * no page and no time that an answer takes depends on what is hidden.
 */
import { createGatekeeper } from '../../async/gatekeeper.ts';
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
  within(scope: readonly string[]): readonly T[];
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

  return async (recordings) => {
    const gatekeeper = createGatekeeper({ maxActive: CONCURRENCY });
    const fresh = new Map<string, readonly string[]>();
    const byMark = new Map<string, T[]>();
    const unknown = recordings.filter(({ id }) => !known.has(id));
    await Promise.all(
      unknown.map((recording) =>
        gatekeeper.run(async () => {
          const described = await describe(recording);
          if (described !== undefined) known.set(recording.id, marksOf(described));
        }),
      ),
    );
    for (const recording of recordings) {
      const marks = known.get(recording.id);
      if (marks === undefined) continue;
      fresh.set(recording.id, marks);
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
function union<T extends Marked>(lists: readonly (readonly T[])[]): readonly T[] {
  const [only = [], ...more] = lists.filter(({ length }) => length > 0);
  if (more.length === 0) return only;
  const all = new Map([only, ...more].flat().map((recording) => [recording.id, recording]));
  return [...all.values()].toSorted((left, right) => (left.order < right.order ? 1 : -1));
}
