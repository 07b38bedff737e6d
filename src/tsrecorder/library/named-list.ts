/** Selects the sessions of one page by name. The cost depends on the size of the page, not on the size of the store. */
import { createLoopTurns } from '../../async/loop-turns.ts';
import {
  addUpload,
  createPartFinder,
  groupSessions,
  isNamed,
  newestFirst,
  sessionOf,
  withoutCopies,
  type Candidate,
} from './candidates.ts';
import type { CatalogQuery } from './catalog-query.ts';
import { firstOf } from './newest.ts';
import type { ScopeIndex } from './scope.ts';
import { formatTime, orderOf, parseRecordingId, type RecordingKey } from '../store/key.ts';

/** Uploads, newest first, with their candidates. */
export interface NamedUploads<T extends { readonly key: RecordingKey }> {
  readonly all: readonly T[];
  readonly candidate: (upload: T) => Candidate;
  /** Uploads of each session with a mark, newest first. */
  readonly byMark: ReadonlyMap<string, readonly Candidate[]>;
}

export interface NamedRange {
  /** Order of the first upload that is too new; undefined for no limit. */
  readonly before: string | undefined;
  /** Order of the oldest upload within the range. */
  readonly from: string;
  readonly limit: number;
}

/** Returns the range behind the cursor of the query and within its times. */
export function rangeOf({ from, to, cursor }: CatalogQuery): Omit<NamedRange, 'limit'> {
  const after = cursor === undefined ? undefined : parseRecordingId(cursor);
  // The order of a recording starts with its time.
  const ends = [
    ...(to === undefined ? [] : [formatTime(to)]),
    ...(after === undefined ? [] : [orderOf(after)]),
  ];
  return { before: ends.toSorted()[0], from: from === undefined ? '' : formatTime(from) };
}

/** Uploads outside the list, or uploads with newer facts than the list has. */
export interface AdditionalUploads {
  readonly ids: ReadonlySet<string>;
  readonly marks: ReadonlySet<string>;
  /** Their sessions, including listed uploads, newest first. */
  readonly sessions: readonly Candidate[];
}

/** Groups the uploads in `beside` by session, together with the listed uploads of these sessions. */
export async function additionalUploads(
  additional: readonly Candidate[],
  byMark: NamedUploads<Candidate>['byMark'],
): Promise<AdditionalUploads> {
  const marks = new Set(additional.map(({ mark }) => mark).filter((mark) => mark !== undefined));
  const sessions = await sessionsOf(additional, marks, byMark);
  return { ids: new Set(additional.map(({ id }) => id)), marks, sessions };
}

/** Returns sessions, newest first. The first upload represents the session. */
export async function namedSessions<T extends { readonly key: RecordingKey }>(
  { all, candidate, byMark }: NamedUploads<T>,
  { ids, marks, sessions }: AdditionalUploads,
  { before, from, limit }: NamedRange,
): Promise<readonly Candidate[]> {
  const turns = createLoopTurns();
  const startOf = <U extends object>(list: readonly U[], orderAt: (item: U) => string): number =>
    before === undefined ? 0 : firstOf(list, (item) => orderAt(item) < before);
  const findParts = createPartFinder(byMark);
  const found: Candidate[] = [];
  let next = startOf(sessions, ({ order }) => order);
  const addAdditional = (order: string): void => {
    for (let session = sessions[next]; found.length < limit; session = sessions[next]) {
      if (session === undefined || session.order < order || session.order < from) return;
      found.push(session);
      next += 1;
    }
  };
  for (let at = startOf(all, ({ key }) => orderOf(key)); found.length < limit; at += 1) {
    if (turns.isDue()) await turns.turn();
    const named = all[at];
    const upload = named === undefined ? undefined : candidate(named);
    if (upload === undefined || upload.order < from) break;
    const { mark, id } = upload;
    if (ids.has(id) || (mark !== undefined && marks.has(mark))) continue;
    addAdditional(upload.order);
    const session = mark === undefined ? upload : await sessionOf(upload, findParts);
    if (session !== undefined && found.length < limit) found.push(session);
  }
  addAdditional('');
  return found;
}

/** Returns the sessions with at least one upload in `beside`, newest first. */
async function sessionsOf(
  additional: readonly Candidate[],
  marks: ReadonlySet<string>,
  byMark: ReadonlyMap<string, readonly Candidate[]>,
): Promise<readonly Candidate[]> {
  const uploads = withoutCopies(
    additional,
    [...marks].flatMap((mark) => byMark.get(mark) ?? []),
  );
  return groupSessions(uploads.toSorted(newestFirst));
}

/** Returns the session of an upload. */
export async function sessionWith(
  named: Candidate | undefined,
  live: readonly Candidate[],
  byMark: ReadonlyMap<string, readonly Candidate[]>,
): Promise<Candidate | undefined> {
  if (named?.mark === undefined) return named;
  const ofSession = live.filter(({ mark }) => mark === named.mark);
  const sessions = await sessionsOf(ofSession, new Set([named.mark]), byMark);
  return sessions.find((session) => isNamed(session, named.id));
}

/** Returns the uploads within a scope. */
export async function visibleUploads(
  scopes: ScopeIndex<Candidate>,
  scope: readonly string[],
): Promise<NamedUploads<Candidate>> {
  const all = await scopes.within(scope);
  const turns = createLoopTurns();
  const byMark = new Map<string, Candidate[]>();
  for (const upload of all) {
    if (turns.isDue()) await turns.turn();
    addUpload(byMark, upload);
  }
  return { all, candidate: (upload) => upload, byMark };
}

/** Finds an upload by its id. @param all newest first */
export function findNamed(all: readonly Candidate[], id: string): Candidate | undefined {
  const key = parseRecordingId(id);
  if (key === undefined) return undefined;
  const order = orderOf(key);
  for (let at = firstOf(all, (upload) => upload.order <= order); all[at]?.order === order; at += 1)
    if (all[at]?.id === id) return all[at];
  return undefined;
}
