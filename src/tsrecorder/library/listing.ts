/**
 * Listings of the store and of other recorders. A listing is renewed when it is too old, and reused if nothing changed.
 */
import { createLoopTurns, sortInTurns, type LoopTurns } from '../../async/loop-turns.ts';
import { createSequence, createSharedStep } from '../../async/sequence.ts';
import {
  addUpload,
  newestFirst,
  remoteCandidate,
  storedCandidate,
  type Candidate,
  type RemoteRecording,
} from './candidates.ts';
import type { Describe } from './describe-stored.ts';
import { arrange, indexOfId, type Arranged } from './newest.ts';
import { additionalUploads, type AdditionalUploads } from './named-list.ts';
import { createScopes, type ScopeIndex } from './scope.ts';
import { recordingId } from '../store/key.ts';
import { isSameObject, type ReadableStore, type StoredRecording } from '../store/store.ts';

/** Contents of the store and of other recorders at one moment. */
export interface Listing {
  /** Recordings of the store, newest first. */
  readonly stored: readonly StoredRecording[];
  /** Returns the candidate of a stored recording. */
  readonly candidate: (stored: StoredRecording) => Candidate;
  /** Finds a stored recording by its id. */
  find(id: string): Candidate | undefined;
  /** Recordings that only other recorders have, newest first. */
  readonly remote: readonly Candidate[];
  /** Uploads of each session with a mark, newest first. */
  readonly byMark: ReadonlyMap<string, readonly Candidate[]>;
  /** Sessions with recordings of other recorders. Computed at the first call. */
  readonly additional: () => Promise<AdditionalUploads>;
  /** Index of recordings by their access marks. Computed at the first call. */
  readonly scopes: () => Promise<ScopeIndex<Candidate>>;
}

export interface Listings {
  /** Returns a listing that is at most `refreshMs` old. */
  recent(): Promise<Listing>;
  /** Lists in advance. The next request still lists again, to find later changes. */
  prepare(): Promise<Listing>;
  /** Discards the listing, so that the next request lists again. */
  forget(): void;
}

export interface ListingsOptions {
  readonly store: ReadableStore;
  readonly remote: (() => Promise<readonly RemoteRecording[]>) | undefined;
  readonly refreshMs: number;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  readonly describe: Describe;
  /** Called with ids of recordings that were added or changed since the previous listing. */
  readonly onChanged: (ids: readonly string[]) => void;
}

/** Maximum number of changed ids per call of `onChanged`. */
const CHANGED_PAGE = 500;

/** Creates the listings of a store. */
export function createListings(options: ListingsOptions): Listings {
  const { store, remote, refreshMs, now } = options;
  const readScopes = createCandidateScopes();
  let arranged: Arranged | undefined;
  let listing: Listing | undefined;
  let last: { readonly at: number; readonly found: Promise<Listing> } | undefined;

  /** Lists again. Returns the previous listing if nothing changed. */
  async function listAgain(): Promise<Listing> {
    // NOTE: open sessions come first, for the same reason as live sessions of this recorder.
    const open = (await remote?.()) ?? [];
    const stored = await store.list();
    if (
      listing !== undefined &&
      open.length === 0 &&
      listing.remote.length === 0 &&
      arranged?.listed === stored
    )
      return listing;
    const turns = createLoopTurns();
    if (arranged?.listed !== stored) {
      const isFirst = arranged === undefined;
      const next = await arrange(stored, arranged, turns);
      if (!isFirst) await reportChanges(next, options.onChanged, turns);
      arranged = next;
    }
    listing = await createListing(arranged, open, options.describe, readScopes, turns);
    return listing;
  }

  // A request during a running listing waits for the next one, so that it sees all earlier recordings.
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

/** Creates a function that indexes candidates by access marks. Each candidate is read once. */
export function createCandidateScopes(): (all: readonly Candidate[]) => Promise<ScopeIndex<Candidate>> {
  return createScopes<Candidate>(async (candidate) => {
    const { recording } = (await candidate.describe())?.entry ?? {};
    return recording?.state === 'damaged' ? undefined : recording;
  });
}

async function createListing(
  { newest, marked }: Arranged,
  open: readonly RemoteRecording[],
  describe: Describe,
  readScopes: (all: readonly Candidate[]) => Promise<ScopeIndex<Candidate>>,
  turns: LoopTurns,
): Promise<Listing> {
  const candidate = (stored: StoredRecording): Candidate => storedCandidate(stored, describe);
  const remote = open
    .filter(({ key }) => indexOfId(newest, recordingId(key)) < 0)
    .map(remoteCandidate)
    .toSorted(newestFirst);
  const byMark = await uploadsOf(marked.map(candidate), remote, turns);
  let additional: Promise<AdditionalUploads> | undefined;
  let scopes: Promise<ScopeIndex<Candidate>> | undefined;
  return {
    stored: newest,
    candidate,
    find(id) {
      const stored = newest[indexOfId(newest, id)];
      return stored === undefined ? undefined : candidate(stored);
    },
    remote,
    byMark,
    additional() {
      additional ??= additionalUploads(remote, byMark).catch((error: unknown) => {
        additional = undefined;
        throw error;
      });
      return additional;
    },
    scopes() {
      scopes ??= allOf(newest, remote, candidate)
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
async function allOf(
  newest: readonly StoredRecording[],
  remote: readonly Candidate[],
  candidate: Listing['candidate'],
): Promise<readonly Candidate[]> {
  const turns = createLoopTurns();
  const all: Candidate[] = [...remote];
  for (const stored of newest) {
    if (turns.isDue()) await turns.turn();
    all.push(candidate(stored));
  }
  return remote.length === 0 ? all : sortInTurns(all, newestFirst, turns);
}

/** Groups the uploads of each session with a mark, newest first. */
async function uploadsOf(
  marked: readonly Candidate[],
  remote: readonly Candidate[],
  turns: LoopTurns,
): Promise<ReadonlyMap<string, readonly Candidate[]>> {
  const sessions = new Map<string, Candidate[]>();
  const uploads = [...marked, ...remote.filter(({ mark }) => mark !== undefined)];
  for (const upload of await sortInTurns(uploads, newestFirst, turns)) {
    if (turns.isDue()) await turns.turn();
    addUpload(sessions, upload);
  }
  return sessions;
}

async function reportChanges(
  { added, removed }: Arranged,
  onChanged: (ids: readonly string[]) => void,
  turns: LoopTurns,
): Promise<void> {
  if (added.length === 0) return;
  const before = new Map<string, StoredRecording>();
  for (const recording of removed) {
    if (turns.isDue()) await turns.turn();
    before.set(recordingId(recording.key), recording);
  }
  let ids: string[] = [];
  for (const recording of added) {
    const id = recordingId(recording.key);
    const known = before.get(id);
    if (known === undefined || !isSame(known, recording)) ids.push(id);
    if (turns.isDue()) await turns.turn();
    if (ids.length < CHANGED_PAGE) continue;
    onChanged(ids);
    ids = [];
    await turns.turn();
  }
  if (ids.length > 0) onChanged(ids);
}

function isSame(left: StoredRecording, right: StoredRecording): boolean {
  return (
    left.hasSidecar === right.hasSidecar &&
    left.sessionMark === right.sessionMark &&
    isSameObject(left.stat, right.stat)
  );
}
