/**
 * Finds recordings. There is no database: what is in the store and what still is in a spool is the truth, and every
 * answer is derived from it. Only what a list shows is kept in memory, and only as much as the cache may hold.
 */
import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import { spooledFiles } from './cast-pieces.ts';
import { matches, type CatalogQuery } from './catalog-query.ts';
import type { CatalogEntry } from './catalog-entry.ts';
import { createDescriber, type Describe } from './describe-stored.ts';
import type { LiveRecording } from './live-recording.ts';
import { goesOn, joinParts, type DescribedPart } from './join-parts.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import { createScopes, isWithin, type Scope, type ScopeIndex } from './scope.ts';
import { sessionMark } from './session-part.ts';
import { fixedWidth, formatTime, parseRecordingId, recordingId, type RecordingKey } from '../store/key.ts';
import type { ReadableStore, StoredRecording } from '../store/store.ts';

export interface CatalogPage {
  /** Newest first. May be shorter than `limit` although there is a `next`. */
  readonly recordings: readonly Recording[];
  /** Id of a recording within the scope: the page goes on with older ones. */
  readonly next?: string;
}

export interface Catalog {
  /** @param scope what there is for whoever asks: the rest is not even looked at. Default: everything. */
  list(query: CatalogQuery, scope?: Scope): Promise<CatalogPage>;
  /**
   * @param scope as above.
   * @returns undefined when there is no such recording, whatever `id` is.
   */
  find(id: string, scope?: Scope): Promise<CatalogEntry | undefined>;
  /**
   * Lists the store before anybody asks, so that the first to ask need not wait for that; with `scopes` reads who may see what, too.
   */
  prepare(options: { readonly scopes: boolean; readonly log: Pick<Logger, 'warn'> }): void;
  /** Something was put into the store by this process. */
  changed(): void;
}

/** A recording that is not in the store: a session that another recorder has open, or what is in another store. */
export interface RemoteRecording {
  readonly key: RecordingKey;
  readonly sessionMark: string | undefined;
  describe(): Promise<DescribedPart | undefined>;
}

export interface CatalogOptions {
  readonly store: ReadableStore;
  readonly live: () => readonly LiveRecording[];
  /** What is elsewhere. */
  readonly remote?: () => Promise<readonly RemoteRecording[]>;
  /** How long a listing of the store may be used: how late recordings of other writers show. */
  readonly refreshMs: number;
  /** Descriptions kept in memory. */
  readonly maxCached: number;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
}

/** Something that may be listed. */
interface Candidate {
  readonly key: RecordingKey;
  readonly id: string;
  /** Fixed-width time, then node: sorts by time. */
  readonly order: string;
  readonly mark: string | undefined;
  readonly describe: () => Promise<DescribedPart | undefined>;
  /** Other uploads of the same session. They are later ones, and not listed themselves. */
  readonly others: readonly Candidate[];
}

/** Recordings described for one page at most; then the page ends and says where to go on. */
const MAX_SCANNED = 5000;
const SCAN_BATCH = 32;

/** What is in the store or with other recorders, and what questions need of it. */
interface Listing {
  /** By whom the recordings may be seen. Read when it is first asked for. */
  readonly scopes: () => Promise<ScopeIndex<Candidate>>;
  /** What the store listed, if nothing else is in it. */
  readonly source: readonly StoredRecording[] | undefined;
  /** Newest first. */
  readonly sessions: readonly Candidate[];
  /** What the store holds, by id. Put together when it is first asked for. */
  readonly byId: () => ReadonlyMap<string, Candidate>;
  readonly byMark: ReadonlyMap<string, readonly Candidate[]>;
}

/** One per store. */
export function createCatalog(options: CatalogOptions): Catalog {
  const { store } = options;
  const describe = createDescriber(store, options.maxCached);
  const listings = createListings(options, describe);

  const listLive = (scope: Scope): readonly Candidate[] =>
    options
      .live()
      .filter(({ recording }) => isWithin(scope, recording))
      .map((recording) => liveCandidate(store, recording));

  /** All within the scope, newest first, each session once. */
  async function candidates(scope: Scope): Promise<readonly Candidate[]> {
    // NOTE: live ones first: a recording that moves into the store meanwhile is then in both, never in none
    const live = listLive(scope);
    const elsewhere = await listings.recent();
    if (scope === 'everything') return live.length === 0 ? elsewhere.sessions : withLive(live, elsewhere);
    const stored = (await elsewhere.scopes()).within(scope);
    return groupSessions(withoutCopies(live, stored).toSorted(newestFirst));
  }

  /** One of all, whichever of its uploads `id` names. In a store of many recordings that is most of what is asked. */
  async function candidateOfId(id: string): Promise<Candidate | undefined> {
    const live = listLive('everything');
    const { byId, byMark } = await listings.recent();
    const named = live.find((candidate) => candidate.id === id) ?? byId().get(id);
    if (named?.mark === undefined) return named;
    const uploads = withoutCopies(
      live.filter(({ mark }) => mark === named.mark),
      byMark.get(named.mark) ?? [],
    );
    return groupSessions(uploads.toSorted(newestFirst))[0];
  }

  /** The same among what is within the scope: what is hidden is as unknown as what there is not. */
  async function candidateWithin(id: string, scope: readonly string[]): Promise<Candidate | undefined> {
    const names = ({ id: own, others }: Candidate): boolean => own === id || others.some(names);
    return (await candidates(scope)).find(names);
  }

  return {
    async list(query, scope = 'everything') {
      return scan(inRange(await candidates(scope), query), query);
    },
    async find(id, scope = 'everything') {
      const key = parseRecordingId(id);
      if (key === undefined) return undefined;
      if (scope !== 'everything') {
        const visible = await candidateWithin(id, scope);
        return visible === undefined ? undefined : describeCandidate(visible);
      }
      const known = await candidateOfId(id);
      if (known !== undefined) return describeCandidate(known);
      // newer than the listing
      const hasSidecar = (await store.stat(key, 'sidecar')) !== undefined;
      return (await describe({ key, hasSidecar }))?.entry;
    },
    prepare({ scopes: wantsScopes, log }) {
      listings
        .prepare()
        .then(async ({ scopes }) => {
          if (wantsScopes) await scopes();
        })
        .catch((error: unknown) => log.warn({ error: errorText(error) }, 'recordings could not be listed'));
    },
    changed: () => listings.forget(),
  };
}

interface Listings {
  /** As it was `refreshMs` ago at most. */
  recent(): Promise<Listing>;
  /** Lists, for whoever asks next: that one has it looked through for what has changed since. */
  prepare(): Promise<Listing>;
  /** The next one is made anew. */
  forget(): void;
}

function createListings({ store, remote, refreshMs, now }: CatalogOptions, describe: Describe): Listings {
  const readScopes = createScopes<Candidate>(async (candidate) => {
    const { recording } = (await candidate.describe())?.entry ?? {};
    return recording?.state === 'damaged' ? undefined : recording;
  });
  const candidatesOf = createCandidates(describe);
  let last: { readonly at: number; readonly found: Promise<Listing> } | undefined;

  /** When nothing has changed, what was found the last time. */
  async function listAgain(before: Promise<Listing> | undefined): Promise<Listing> {
    // NOTE: open sessions first, for the same reason as those that are live here
    const open = (await remote?.()) ?? [];
    const stored = await store.list();
    const known = await before?.catch(() => undefined);
    if (known !== undefined && open.length === 0 && known.source === stored) return known;
    const all = withRemote(candidatesOf(stored), open);
    return createListing(all, readScopes, open.length === 0 ? stored : undefined);
  }

  function list(at: number): Promise<Listing> {
    const fresh = { at, found: listAgain(last?.found) };
    last = fresh;
    // a failed listing is not kept
    fresh.found.catch(() => {
      if (last === fresh) last = undefined;
    });
    return fresh.found;
  }

  return {
    recent: () => (last === undefined || now() - last.at >= refreshMs ? list(now()) : last.found),
    prepare: () => list(Number.NEGATIVE_INFINITY),
    forget() {
      last = undefined;
    },
  };
}

/** @param all newest first. */
async function scan(all: readonly Candidate[], query: CatalogQuery): Promise<CatalogPage> {
  const recordings: Recording[] = [];
  for (let start = 0; start < all.length && start < MAX_SCANNED; start += SCAN_BATCH) {
    const batch = all.slice(start, start + SCAN_BATCH);
    const described = await Promise.all(batch.map(describeCandidate));
    for (const [index, entry] of described.entries()) {
      if (entry === undefined || !matches(entry.recording, query)) continue;
      recordings.push(entry.recording);
      const isLast = start + index + 1 >= all.length;
      if (recordings.length >= query.limit)
        return isLast ? { recordings } : { recordings, next: entry.recording.id };
    }
  }
  const scanned = all[MAX_SCANNED - 1];
  return scanned === undefined || all.length <= MAX_SCANNED
    ? { recordings }
    : { recordings, next: scanned.id };
}

function createListing(
  found: readonly Candidate[],
  readScopes: (all: readonly Candidate[]) => Promise<ScopeIndex<Candidate>>,
  source: readonly StoredRecording[] | undefined,
): Listing {
  const sorted = found.toSorted(newestFirst);
  const byMark = uploadsByMark(sorted);
  let scopes: Promise<ScopeIndex<Candidate>> | undefined;
  let byId: ReadonlyMap<string, Candidate> | undefined;
  return {
    scopes() {
      scopes ??= readScopes(sorted).catch((error: unknown) => {
        scopes = undefined;
        throw error;
      });
      return scopes;
    },
    source,
    sessions: groupSessions(sorted, byMark),
    byId: () => (byId ??= new Map(sorted.map((candidate) => [candidate.id, candidate]))),
    byMark,
  };
}

/** What is live here is so elsewhere too while it moves into the store. */
function withoutCopies(live: readonly Candidate[], elsewhere: readonly Candidate[]): readonly Candidate[] {
  const ids = new Set(live.map(({ id }) => id));
  return [...live, ...elsewhere.filter(({ id }) => !ids.has(id))];
}

/** Sessions that go on here among all others: only what they are part of is put together anew. */
function withLive(live: readonly Candidate[], { sessions, byMark }: Listing): readonly Candidate[] {
  const ids = new Set(live.map(({ id }) => id));
  const marks = new Set(live.map(({ mark }) => mark).filter((mark) => mark !== undefined));
  const kept = sessions.filter(({ id, mark }) => !ids.has(id) && (mark === undefined || !marks.has(mark)));
  const changed = withoutCopies(
    live,
    [...marks].flatMap((mark) => byMark.get(mark) ?? []),
  );
  return [...groupSessions(changed.toSorted(newestFirst)), ...kept].toSorted(newestFirst);
}

/** What is known of each recording stays, for as long as the store gives the same object for it. */
function createCandidates(describe: Describe): (stored: readonly StoredRecording[]) => readonly Candidate[] {
  let known = new Map<StoredRecording, Candidate>();
  return (stored) => {
    const fresh = new Map<StoredRecording, Candidate>();
    const all = stored.map((recording) => {
      const candidate =
        known.get(recording) ?? candidateOf(recording.key, recording.sessionMark, () => describe(recording));
      fresh.set(recording, candidate);
      return candidate;
    });
    known = fresh;
    return all;
  };
}

function withRemote(stored: readonly Candidate[], open: readonly RemoteRecording[]): readonly Candidate[] {
  if (open.length === 0) return stored;
  const ids = new Set(stored.map(({ id }) => id));
  return [...stored, ...open.filter(({ key }) => !ids.has(recordingId(key))).map(remoteCandidate)];
}

function remoteCandidate(remote: RemoteRecording): Candidate {
  return candidateOf(remote.key, remote.sessionMark, () => remote.describe());
}

function liveCandidate(store: ReadableStore, live: LiveRecording): Candidate {
  const { key, part, recording, resizeOrder } = live;
  const files = spooledFiles(store, live);
  const pieces = [{ ...files.cast, start: 0 }];
  const entry = { recording, key, resizeOrder, pieces, live, version: undefined };
  return candidateOf(key, sessionMark(key.nodeId, part.session), () =>
    Promise.resolve({ entry, part, files, bodyEnd: live.durable().bodyBytes, gapCount: 0 }),
  );
}

function candidateOf(
  key: RecordingKey,
  mark: string | undefined,
  describe: Candidate['describe'],
): Candidate {
  return { key, id: recordingId(key), order: orderOf(key), mark, describe, others: [] };
}

/** @param sorted newest first. @returns the same order; the first upload of a session stands for all of them. */
function groupSessions(
  sorted: readonly Candidate[],
  sessions: ReadonlyMap<string, readonly Candidate[]> = uploadsByMark(sorted),
): readonly Candidate[] {
  if (sessions.size === 0) return sorted;
  return sorted.flatMap((candidate) => {
    const uploads = candidate.mark === undefined ? undefined : sessions.get(candidate.mark);
    if (uploads === undefined || uploads.length === 1) return [candidate];
    return uploads.at(-1) === candidate ? [{ ...candidate, others: uploads.slice(0, -1) }] : [];
  });
}

/** Of each session that may have several: its uploads, in the order they come. */
function uploadsByMark(sorted: readonly Candidate[]): ReadonlyMap<string, readonly Candidate[]> {
  const sessions = new Map<string, Candidate[]>();
  for (const candidate of sorted) {
    if (candidate.mark === undefined) continue;
    const known = sessions.get(candidate.mark);
    if (known === undefined) sessions.set(candidate.mark, [candidate]);
    else known.push(candidate);
  }
  return sessions;
}

async function describeCandidate({ describe, mark, others }: Candidate): Promise<CatalogEntry | undefined> {
  if (others.length === 0) return asWhole(await describe(), mark);
  const found = await Promise.all([describe(), ...others.map((other) => other.describe())]);
  const [first, ...rest] = found.filter((part) => part !== undefined);
  if (first === undefined) return undefined;
  return joinParts([first, ...rest], first.entry);
}

/**
 * One upload of a session whose others are not to be seen is joined with nothing: that says what is missing. What it says of its
 * place in the session lets whoever sees the others put them together.
 */
async function asWhole(
  described: DescribedPart | undefined,
  mark: string | undefined,
): Promise<CatalogEntry | undefined> {
  if (described === undefined) return undefined;
  const { part, bodyEnd, entry: own } = described;
  const entry = part.offset === 0 ? own : await joinParts([described], own);
  const isWhole = part.offset === 0 && own.recording.state === 'closed';
  if (mark === undefined || isWhole || own.live !== undefined) return entry;
  const { session: _, offset: from, ...about } = part;
  const { state, problem } = own.recording;
  const place = {
    ...about,
    session: mark,
    from,
    to: bodyEnd,
    state,
    ...(problem === undefined ? {} : { problem }),
  };
  const { recording } = entry;
  // what was joined has said it
  const more = part.offset === 0 ? [problem, ...goesOn(described)] : [recording.problem];
  const told = more.filter((each) => each !== undefined).join('; ');
  return { ...entry, recording: { ...recording, part: place, ...(told === '' ? {} : { problem: told }) } };
}

function orderOf({ nodeId, time }: RecordingKey): string {
  return `${fixedWidth(time)} ${nodeId}`;
}

function newestFirst(left: Candidate, right: Candidate): number {
  if (left.order === right.order) return 0;
  return left.order < right.order ? 1 : -1;
}

/**
 * What comes after the query's cursor, within its times.
 *
 * @param all newest first.
 */
function inRange(all: readonly Candidate[], { from, to, cursor }: CatalogQuery): readonly Candidate[] {
  const after = cursor === undefined ? undefined : parseRecordingId(cursor);
  // the order of a recording begins with its time
  const ends = [
    ...(to === undefined ? [] : [formatTime(to)]),
    ...(after === undefined ? [] : [orderOf(after)]),
  ];
  const start = Math.max(0, ...ends.map((end) => firstBefore(all, end)));
  return all.slice(start, from === undefined ? undefined : firstBefore(all, formatTime(from)));
}

/** Index of the first whose order is before `order`. @param all newest first. */
function firstBefore(all: readonly Candidate[], order: string): number {
  let low = 0;
  let high = all.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((all[middle]?.order ?? '') >= order) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** What is in a store, for the catalogue of another one. @param maxCached descriptions kept in memory. */
export function storedElsewhere(
  store: ReadableStore,
  maxCached: number,
): () => Promise<readonly RemoteRecording[]> {
  const describe = createDescriber(store, maxCached);
  return async () =>
    (await store.list()).map((recording) => ({
      key: recording.key,
      sessionMark: recording.sessionMark,
      describe: () => describe(recording),
    }));
}
