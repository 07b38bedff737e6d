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

export interface Listings {
  /** Returns a listing that is at most `refreshMs` old. */
  recent(): Promise<Listing>;
  /** Starts a listing before the first request. The next request creates another listing, to find later changes. */
  prepare(): Promise<Listing>;
  /** Discards the cached listing, so that the next request creates another one. */
  forget(): void;
}

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

/** Creates the listings of a store. */
export function createListings(options: ListingsOptions): Listings {
  const { store, remote, refreshMs, now, onChanged } = options;
  const readScopes = createCandidateScopes();
  let scanned: readonly StoredRecording[] | undefined;
  let listing: Listing | undefined;
  let last: { readonly at: number; readonly found: Promise<Listing> } | undefined;

  /** Lists again. Returns the previous listing if nothing changed. */
  async function listAgain(): Promise<Listing> {
    // NOTE: list the open sessions before the store. A session that ends between the two reads may appear in both
    // lists, but is never missing.
    const open = (await remote?.()) ?? [];
    const stored = await store.list();
    const isSame = scanned === stored;
    if (isSame && listing?.remote.length === 0 && open.length === 0) return listing;
    const turns = createLoopTurns();
    const all =
      isSame && listing !== undefined ? listing.all : await sortInTurns(stored, newestStored, turns);
    if (listing !== undefined && all !== listing.all) await reportChanged(listing.all, all, onChanged, turns);
    scanned = stored;
    listing = await createListing(all, open, options.describe, readScopes, turns);
    return listing;
  }

  // A call while a listing runs waits for the next listing, which contains all recordings that were stored before the
  // call.
  const listInTurn = createSharedStep(createSequence(), listAgain);

  function list(at: number): Promise<Listing> {
    const fresh = { at, found: listInTurn() };
    last = fresh;
    // Failed listings are not cached.
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

/** Reports the ids of recordings that are new or changed. Both lists must be sorted newest first. */
async function reportChanged(
  before: readonly StoredRecording[],
  now: readonly StoredRecording[],
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
