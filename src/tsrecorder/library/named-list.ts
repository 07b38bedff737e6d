/** A list that is made of names: what may be on a page, in a time that depends on the page and not on how much there is. */
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

/** Uploads, newest first, and what they are. */
export interface NamedUploads<T extends { readonly key: RecordingKey }> {
  readonly all: readonly T[];
  readonly candidate: (upload: T) => Candidate;
  /** Of each session that may have several: these, newest first. */
  readonly byMark: ReadonlyMap<string, readonly Candidate[]>;
}

export interface NamedRange {
  /** Order of the first that is too new; none: undefined. */
  readonly before: string | undefined;
  /** Order of the last that is not too old. */
  readonly from: string;
  readonly limit: number;
}

/** What comes after the query's cursor, within its times. */
export function rangeOf({ from, to, cursor }: CatalogQuery): Omit<NamedRange, 'limit'> {
  const after = cursor === undefined ? undefined : parseRecordingId(cursor);
  // the order of a recording begins with its time
  const ends = [
    ...(to === undefined ? [] : [formatTime(to)]),
    ...(after === undefined ? [] : [orderOf(after)]),
  ];
  return { before: ends.toSorted()[0], from: from === undefined ? '' : formatTime(from) };
}

/** What is not among the uploads that are listed, or is known better than there. */
export interface BesideUploads {
  readonly ids: ReadonlySet<string>;
  readonly marks: ReadonlySet<string>;
  /** Their sessions, with what of these is listed. Newest first. */
  readonly sessions: readonly Candidate[];
}

export async function besideUploads(
  beside: readonly Candidate[],
  byMark: NamedUploads<Candidate>['byMark'],
): Promise<BesideUploads> {
  const marks = new Set(beside.map(({ mark }) => mark).filter((mark) => mark !== undefined));
  const sessions = await sessionsOf(beside, marks, byMark);
  return { ids: new Set(beside.map(({ id }) => id)), marks, sessions };
}

/** Newest first, each session once: the first upload of a session stands for all of them. */
export async function namedSessions<T extends { readonly key: RecordingKey }>(
  { all, candidate, byMark }: NamedUploads<T>,
  { ids, marks, sessions }: BesideUploads,
  { before, from, limit }: NamedRange,
): Promise<readonly Candidate[]> {
  const turns = createLoopTurns();
  const startOf = <U extends object>(list: readonly U[], orderAt: (item: U) => string): number =>
    before === undefined ? 0 : firstOf(list, (item) => orderAt(item) < before);
  const findParts = createPartFinder(byMark);
  const found: Candidate[] = [];
  let next = startOf(sessions, ({ order }) => order);
  const addBeside = (order: string): void => {
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
    addBeside(upload.order);
    const session = mark === undefined ? upload : await sessionOf(upload, findParts);
    if (session !== undefined && found.length < limit) found.push(session);
  }
  addBeside('');
  return found;
}

/** Sessions of which at least one upload is `beside` others. Newest first. */
async function sessionsOf(
  beside: readonly Candidate[],
  marks: ReadonlySet<string>,
  byMark: ReadonlyMap<string, readonly Candidate[]>,
): Promise<readonly Candidate[]> {
  const uploads = withoutCopies(
    beside,
    [...marks].flatMap((mark) => byMark.get(mark) ?? []),
  );
  return groupSessions(uploads.toSorted(newestFirst));
}

/** The session of an upload. */
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

/** What somebody may see. */
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

/** @param all newest first */
export function findNamed(all: readonly Candidate[], id: string): Candidate | undefined {
  const key = parseRecordingId(id);
  if (key === undefined) return undefined;
  const order = orderOf(key);
  for (let at = firstOf(all, (upload) => upload.order <= order); all[at]?.order === order; at += 1)
    if (all[at]?.id === id) return all[at];
  return undefined;
}
