/**
 * Lists the recordings in the store and at other recorders, for the catalogue. A listing is cached until its maximum
 * age. If the store did not change and there are no other recordings, the next listing is the same JavaScript object.
 */
import { createLoopTurns, sortInTurns, type LoopTurns } from '../../async/loop-turns.ts';
import { createSequence, createSharedStep } from '../../async/sequence.ts';
import type { Describe } from './describe-stored.ts';
import { createScopes, newestFirst, type ScopeIndex } from './scope.ts';
import {
  remoteCandidate,
  storedCandidate,
  uploadsByMark,
  type Candidate,
  type RemoteRecording,
} from './sessions.ts';
import { indexOfId, newestStored, type ListedUploads } from './uploads.ts';
import { recordingId } from '../store/key.ts';
import { isSameObject, type ReadableStore, type StoredRecording } from '../store/store.ts';

/** Contents of the store and of other recorders at one moment. */
export interface Listing extends ListedUploads<StoredRecording> {
  /** Recordings that only other recorders have, newest first. */
  readonly remote: readonly Candidate[];
  /** Returns an index that finds recordings through their access marks. The first call computes the index. */
  readonly scopes: () => Promise<ScopeIndex<Candidate>>;
}

/** A listing, and the recordings that this process has stored since. */
export interface CurrentListing extends Listing {
  /** Map keys: id of the recording. Recordings that were stored during the listing may also be in `all`. */
  readonly added: ReadonlyMap<string, Candidate>;
}

export type Listings = ReturnType<typeof createListings>;

export interface ListingsOptions {
  readonly store: ReadableStore;
  readonly remote: (() => Promise<readonly RemoteRecording[]>) | undefined;
  readonly refreshMs: number;
  /** Returns the time of a monotonic clock, in milliseconds. */
  readonly now: () => number;
  readonly describe: Describe;
  /** Called with ids of recordings that were added or changed since the previous listing. */
  readonly onChanged: (ids: readonly string[]) => void;
}

/** Maximum number of changed ids per call of `onChanged`. */
const CHANGED_PAGE = 500;
/** Maximum number of recordings that are added to a listing. After that, the next request lists the store again. */
const MAX_ADDED = 1000;

/** The last requested listing. */
interface Last {
  readonly at: number;
  readonly added: Map<string, Candidate>;
  readonly found: Promise<Listing>;
}

/** Creates the listings of a store. */
export function createListings(options: ListingsOptions) {
  const { store, remote, refreshMs, now, onChanged } = options;
  const readScopes = createCandidateScopes();
  let scanned: readonly StoredRecording[] | undefined;
  let listing: Listing | undefined;
  let last: Last | undefined;
  /**
   * Recordings that were added since the last list of the store. The index is already notified of these recordings. Map
   * keys: recording id.
   */
  let own = new Map<string, StoredRecording>();

  /** Lists again. Returns the previous listing if nothing changed. */
  async function listAgain(): Promise<Listing> {
    // NOTE: list the open sessions before the store. A session that ends between the two reads may appear in both
    // lists, but is never missing.
    const open = (await remote?.()) ?? [];
    const reported = own;
    own = new Map();
    const stored = await store.list();
    const isUnchanged = scanned === stored;
    if (isUnchanged && listing?.remote.length === 0 && open.length === 0) return listing;
    const turns = createLoopTurns();
    const all =
      isUnchanged && listing !== undefined ? listing.all : await sortInTurns(stored, newestStored, turns);
    const isReported = (recording: StoredRecording): boolean => {
      const added = reported.get(recordingId(recording.key));
      // Size and time of the object are not compared, because a list of a bucket contains them, but `added` does not.
      return added?.hasSidecar === recording.hasSidecar && added.sessionMark === recording.sessionMark;
    };
    if (listing !== undefined && all !== listing.all)
      await reportChanged(listing.all, all, isReported, onChanged, turns);
    scanned = stored;
    listing = await createListing(all, open, options.describe, readScopes, turns);
    return listing;
  }

  // A call while a listing runs waits for the next listing, which contains all recordings that were stored before the
  // call.
  const listInTurn = createSharedStep(createSequence(), listAgain);

  function list(at: number): Promise<CurrentListing> {
    const fresh = { at, added: new Map<string, Candidate>(), found: listInTurn() };
    last = fresh;
    // Failed listings are not cached.
    fresh.found.catch(() => {
      if (last === fresh) last = undefined;
    });
    return withAdded(fresh);
  }
  const anew = (): Promise<CurrentListing> => list(now());

  return {
    /** Returns a listing that is at most `refreshMs` old. */
    recent: () => (last === undefined || now() - last.at >= refreshMs ? anew() : withAdded(last)),
    /** Returns the last listing of any age. */
    last: () => (last === undefined ? anew() : withAdded(last)),
    /** Lists the store again. */
    anew,
    /** Starts a listing before the first request. The next request creates another listing, to find later changes. */
    prepare: () => list(Number.NEGATIVE_INFINITY),
    /** Adds a recording that this process has stored to the last listing. */
    add(stored: StoredRecording) {
      if (last === undefined) return;
      if (last.added.size >= MAX_ADDED) last = undefined;
      else {
        const id = recordingId(stored.key);
        last.added.set(id, storedCandidate(stored, options.describe));
        own.set(id, stored);
      }
    },
    /** Discards the cached listing, so that the next request creates a new listing. */
    forget() {
      last = undefined;
    },
  };
}

async function withAdded({ found, added }: Last): Promise<CurrentListing> {
  const listing = await found;
  return { ...listing, remote: listing.remote.filter(({ id }) => !added.has(id)), added };
}

/** Creates a function that builds an index of candidates by access mark. Each candidate is read once. */
export function createCandidateScopes(): (all: readonly Candidate[]) => Promise<ScopeIndex<Candidate>> {
  return createScopes<Candidate>(async (candidate) => {
    const { recording } = (await candidate.describe())?.entry ?? {};
    return recording?.state === 'damaged' ? undefined : recording;
  });
}

async function createListing(
  all: readonly StoredRecording[],
  open: readonly RemoteRecording[],
  describe: Describe,
  readScopes: (all: readonly Candidate[]) => Promise<ScopeIndex<Candidate>>,
  turns: LoopTurns,
): Promise<Listing> {
  const candidate = (stored: StoredRecording): Candidate => storedCandidate(stored, describe);
  const remote = open
    .filter(({ key }) => indexOfId(all, recordingId(key)) < 0)
    .map(remoteCandidate)
    .toSorted(newestFirst);
  const marked: Candidate[] = remote.filter(({ mark }) => mark !== undefined);
  for (const stored of all) {
    if (turns.isDue()) await turns.turn();
    if (stored.sessionMark !== undefined) marked.push(candidate(stored));
  }
  let scopes: Promise<ScopeIndex<Candidate>> | undefined;
  return {
    all,
    candidate,
    remote,
    byMark: await uploadsByMark(await sortInTurns(marked, newestFirst, turns), turns),
    scopes() {
      scopes ??= candidatesOf(all, remote, candidate)
        .then(readScopes)
        .catch((error: unknown) => {
          scopes = undefined;
          throw error;
        });
      return scopes;
    },
  };
}

/** Returns all candidates, newest first. */
async function candidatesOf(
  stored: readonly StoredRecording[],
  remote: readonly Candidate[],
  candidate: Listing['candidate'],
): Promise<readonly Candidate[]> {
  const turns = createLoopTurns();
  const all: Candidate[] = [...remote];
  for (const recording of stored) {
    if (turns.isDue()) await turns.turn();
    all.push(candidate(recording));
  }
  return remote.length === 0 ? all : sortInTurns(all, newestFirst, turns);
}

/**
 * Reports the ids of recordings that are new or changed. Both lists must be sorted newest first.
 * @param isReported true if the index knows the recording
 */
async function reportChanged(
  before: readonly StoredRecording[],
  now: readonly StoredRecording[],
  isReported: (recording: StoredRecording) => boolean,
  report: (ids: readonly string[]) => void,
  turns: LoopTurns,
): Promise<void> {
  let ids: string[] = [];
  let at = 0;
  for (const recording of now) {
    if (turns.isDue()) await turns.turn();
    let known = before[at];
    for (; known !== undefined && newestStored(known, recording) < 0; known = before[at]) at += 1;
    if (known !== undefined && isSame(known, recording)) {
      at += 1;
      continue;
    }
    if (isReported(recording)) continue;
    ids.push(recordingId(recording.key));
    if (ids.length < CHANGED_PAGE) continue;
    report(ids);
    ids = [];
    await turns.turn();
  }
  if (ids.length > 0) report(ids);
}

function isSame(left: StoredRecording, right: StoredRecording): boolean {
  return (
    left === right ||
    (left.key.time === right.key.time &&
      left.key.nodeId === right.key.nodeId &&
      left.hasSidecar === right.hasSidecar &&
      left.sessionMark === right.sessionMark &&
      isSameObject(left.stat, right.stat))
  );
}
