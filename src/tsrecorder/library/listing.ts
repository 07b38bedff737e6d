/** What is in the store and with other recorders, by name: listed again when it may have changed, and kept for as long as it has not. */
import {
  candidateOf,
  groupSessions,
  newestFirst,
  remoteCandidate,
  uploadsByMark,
  withoutCopies,
  type Candidate,
  type RemoteRecording,
} from './candidates.ts';
import type { Describe } from './describe-stored.ts';
import { createScopes, type ScopeIndex } from './scope.ts';
import { recordingId } from '../store/key.ts';
import type { ReadableStore, StoredRecording } from '../store/store.ts';

/** What is in the store or with other recorders, and what questions need of it: each put together when it is first asked for. */
export interface Listing {
  /** What the store listed. */
  readonly stored: readonly StoredRecording[];
  /** What it holds, by id. */
  readonly byId: ReadonlyMap<string, Candidate>;
  /** What is with other recorders alone. */
  readonly remote: readonly Candidate[];
  /** Of each session that may have several uploads: these, newest first. */
  readonly byMark: () => ReadonlyMap<string, readonly Candidate[]>;
  /** Newest first. */
  readonly sessions: () => readonly Candidate[];
  /** By whom the recordings may be seen. */
  readonly scopes: () => Promise<ScopeIndex<Candidate>>;
}

export interface Listings {
  /** As it was `refreshMs` ago at most. */
  recent(): Promise<Listing>;
  /** Lists, for whoever asks next: that one has it looked through for what has changed since. */
  prepare(): Promise<Listing>;
  /** The next one is made anew. */
  forget(): void;
}

export interface ListingsOptions {
  readonly store: ReadableStore;
  readonly remote: (() => Promise<readonly RemoteRecording[]>) | undefined;
  readonly refreshMs: number;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  readonly describe: Describe;
  /** These are not what they were when the store was listed before, or were not there. */
  readonly onChanged: (ids: readonly string[]) => void;
}

export function createListings(options: ListingsOptions): Listings {
  const { store, remote, refreshMs, now, describe } = options;
  const readScopes = createCandidateScopes();
  const candidatesOf = createCandidates(describe, options.onChanged);
  let last: { readonly at: number; readonly found: Promise<Listing> } | undefined;

  /** When nothing has changed, what was found the last time. */
  async function listAgain(before: Promise<Listing> | undefined): Promise<Listing> {
    // NOTE: open sessions first, for the same reason as those that are live here
    const open = (await remote?.()) ?? [];
    const stored = await store.list();
    const known = await before?.catch(() => undefined);
    if (known !== undefined && open.length === 0 && known.remote.length === 0 && known.stored === stored)
      return known;
    return createListing(stored, candidatesOf(stored), open, readScopes);
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

/** Who may see what, of candidates that are read once each. */
export function createCandidateScopes(): (all: readonly Candidate[]) => Promise<ScopeIndex<Candidate>> {
  return createScopes<Candidate>(async (candidate) => {
    const { recording } = (await candidate.describe())?.entry ?? {};
    return recording?.state === 'damaged' ? undefined : recording;
  });
}

function createListing(
  stored: readonly StoredRecording[],
  byId: ReadonlyMap<string, Candidate>,
  open: readonly RemoteRecording[],
  readScopes: (all: readonly Candidate[]) => Promise<ScopeIndex<Candidate>>,
): Listing {
  const remote = open.filter(({ key }) => !byId.has(recordingId(key))).map(remoteCandidate);
  const sorted = once(() => [...byId.values(), ...remote].toSorted(newestFirst));
  const byMark = once(() => {
    const marked = [...byId.values(), ...remote].filter(({ mark }) => mark !== undefined);
    return uploadsByMark(marked.toSorted(newestFirst));
  });
  let scopes: Promise<ScopeIndex<Candidate>> | undefined;
  return {
    stored,
    byId,
    remote,
    byMark,
    sessions: once(() => groupSessions(sorted(), byMark())),
    scopes() {
      scopes ??= readScopes(sorted()).catch((error: unknown) => {
        scopes = undefined;
        throw error;
      });
      return scopes;
    },
  };
}

function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => (made ??= { value: make() }).value;
}

/** Sessions that go on here among all others: only what they are part of is put together anew. */
export function withLive(live: readonly Candidate[], listing: Listing): readonly Candidate[] {
  const byMark = listing.byMark();
  const ids = new Set(live.map(({ id }) => id));
  const marks = new Set(live.map(({ mark }) => mark).filter((mark) => mark !== undefined));
  const kept = listing
    .sessions()
    .filter(({ id, mark }) => !ids.has(id) && (mark === undefined || !marks.has(mark)));
  const changed = withoutCopies(
    live,
    [...marks].flatMap((mark) => byMark.get(mark) ?? []),
  );
  return [...groupSessions(changed.toSorted(newestFirst)), ...kept].toSorted(newestFirst);
}

/** What is known of each recording stays, for as long as the store lists it as it was. */
function createCandidates(
  describe: Describe,
  onChanged: ListingsOptions['onChanged'],
): (stored: readonly StoredRecording[]) => ReadonlyMap<string, Candidate> {
  let known: ReadonlyMap<string, Candidate> | undefined;
  return (stored) => {
    const fresh = new Map<string, Candidate>();
    const changed: string[] = [];
    for (const recording of stored) {
      const id = recordingId(recording.key);
      const before = known?.get(id);
      if (before?.stored !== undefined && isSame(before.stored, recording)) {
        fresh.set(id, before);
        continue;
      }
      changed.push(id);
      const describeIt: Candidate['describe'] = () => describe(recording);
      fresh.set(id, candidateOf(recording.key, recording.sessionMark, describeIt, recording));
    }
    if (known !== undefined && changed.length > 0) onChanged(changed);
    known = fresh;
    return fresh;
  };
}

function isSame(left: StoredRecording, right: StoredRecording): boolean {
  return (
    left === right ||
    (left.hasSidecar === right.hasSidecar &&
      left.sessionMark === right.sessionMark &&
      left.stat?.bytes === right.stat?.bytes &&
      left.stat?.modifiedAtMs === right.stat?.modifiedAtMs)
  );
}
