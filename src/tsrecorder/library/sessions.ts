/** Groups uploads into sessions by their object names, without reading their content. */
import { createLoopTurns } from '../../async/loop-turns.ts';
import { errorText, TailcastError } from '../../errors.ts';
import { spooledFiles } from './cast-pieces.ts';
import type { CatalogEntry } from './catalog-entry.ts';
import { isContinued, joinParts, type DescribedPart } from './join-parts.ts';
import type { LiveRecording } from './live-recording.ts';
import { isWithin } from './scope.ts';
import { sessionMark } from './session-part.ts';
import { orderOf, recordingId, type RecordingKey } from '../store/key.ts';
import type { ReadableStore, StoredRecording } from '../store/store.ts';
import type { Describe } from './describe-stored.ts';

/** An upload or a session that a list of recordings may contain. */
export interface Candidate {
  readonly key: RecordingKey;
  readonly id: string;
  /** Sort key: time with a fixed width, then the id of the tailnet node. */
  readonly order: string;
  /**
   * Session mark from the object name. Anyone with write access to the store can forge the name: see {@link isPart}.
   */
  readonly mark: string | undefined;
  describe(): Promise<DescribedPart | undefined>;
  /** Entry of the store listing; undefined if the upload is not in this store. */
  readonly stored: StoredRecording | undefined;
  /** Later uploads of the same session. A list of recordings does not show them separately. */
  readonly others: readonly Candidate[];
}

/** A recording outside this store: an open session of another recorder, or a recording in another store. */
export interface RemoteRecording {
  readonly key: RecordingKey;
  readonly sessionMark: string | undefined;
  describe(): Promise<DescribedPart | undefined>;
}

/** Creates the candidate of a recording outside this store. */
export function remoteCandidate(remote: RemoteRecording): Candidate {
  return candidateOf(remote.key, remote.sessionMark, () => remote.describe());
}

/** Creates the candidate of a recording in the spool. */
export function liveCandidate(store: ReadableStore, live: LiveRecording): Candidate {
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
  return { key, id: recordingId(key), order: orderOf(key), mark, describe, stored: undefined, others: [] };
}

/** Candidate of a stored recording. Derives all names on demand, because a store may hold a million recordings. */
export function storedCandidate(stored: StoredRecording, describe: Describe): Candidate {
  return new StoredCandidate(stored, describe);
}

class StoredCandidate implements Candidate {
  readonly stored: StoredRecording;
  readonly #describe: Describe;

  constructor(stored: StoredRecording, describe: Describe) {
    this.stored = stored;
    this.#describe = describe;
  }

  get key(): RecordingKey {
    return this.stored.key;
  }

  get id(): string {
    return recordingId(this.stored.key);
  }

  get order(): string {
    return orderOf(this.stored.key);
  }

  get mark(): string | undefined {
    return this.stored.sessionMark;
  }

  get others(): readonly Candidate[] {
    return [];
  }

  describe(): Promise<DescribedPart | undefined> {
    return this.#describe(this.stored);
  }
}

/**
 * Returns a copy of the candidate whose `describe` checks the scope again, and returns undefined for content outside
 * the scope. The index of access marks may have read an earlier object, which another program has replaced.
 */
export function candidateWithin(scope: readonly string[], candidate: Candidate): Candidate {
  const { key, id, order, mark, stored, others } = candidate;
  const describe = async (): Promise<DescribedPart | undefined> => {
    const described = await candidate.describe();
    const recording = described?.entry.recording;
    return recording !== undefined && recording.state !== 'damaged' && isWithin(scope, recording)
      ? described
      : undefined;
  };
  return { key, id, order, mark, describe, stored, others };
}

/**
 * Returns all uploads that are proven to belong to the same session as `upload`, newest first. Returns an empty list if
 * no other upload has the same session mark, or if more than {@link MAX_PARTS} uploads have it.
 */
export type FindParts = (upload: Candidate) => Promise<readonly Candidate[]>;

/**
 * Maximum number of uploads with one session mark. If there are more uploads, none of them is joined and each is
 * listed.
 */
const MAX_PARTS = 1000;
/** Number of uploads of one session that are read concurrently. */
const PARTS_BATCH = 32;

/** Returns a function that reads the uploads of each session once. */
export function createPartFinder({
  ofMark,
}: {
  readonly ofMark: (mark: string) => readonly Candidate[];
}): FindParts {
  const known = new Map<string, Promise<readonly Candidate[]>>();
  return async ({ mark }) => {
    const uploads = mark === undefined ? [] : ofMark(mark);
    if (mark === undefined || uploads.length <= 1 || uploads.length > MAX_PARTS) return [];
    const parts = known.get(mark) ?? provenParts(uploads);
    known.set(mark, parts);
    return parts;
  };
}

async function provenParts(uploads: readonly Candidate[]): Promise<readonly Candidate[]> {
  const parts: Candidate[] = [];
  for (let start = 0; start < uploads.length; start += PARTS_BATCH) {
    const batch = uploads.slice(start, start + PARTS_BATCH);
    const described = await Promise.all(batch.map((upload) => upload.describe()));
    parts.push(...batch.filter(({ mark }, at) => isPart(described[at], mark)));
  }
  return parts;
}

/**
 * True if the description of the upload names the session with this mark, and a trusted key signed the description. If
 * signatures are not checked, the description is sufficient.
 */
function isPart(described: DescribedPart | undefined, mark: string | undefined): boolean {
  if (described === undefined) return false;
  const { entry, part } = described;
  const proven = described.mark ?? sessionMark(entry.key.nodeId, part.session);
  const { trust = 'verified' } = entry.recording;
  return (trust === 'verified' || described.isPlaceProven === true) && proven === mark;
}

/** Returns the session of an upload; undefined if the upload is not the first upload of its session. */
export async function sessionOf(candidate: Candidate, findParts: FindParts): Promise<Candidate | undefined> {
  const parts = await findParts(candidate);
  const { key, id, order, mark, stored } = candidate;
  if (parts.length <= 1 || !parts.some((part) => part.id === id)) return candidate;
  if (parts.at(-1)?.id !== id) return undefined;
  return { key, id, order, mark, describe: () => candidate.describe(), stored, others: parts.slice(0, -1) };
}

/** True if `id` names the session or one of its uploads. */
export function isNamed({ id: own, others }: Candidate, id: string): boolean {
  return own === id || others.some((other) => other.id === id);
}

/** Groups uploads with the same session mark, in the given order. Uploads without a session mark are omitted. */
export async function uploadsByMark(
  sorted: Iterable<Candidate>,
  turns = createLoopTurns(),
): Promise<ReadonlyMap<string, readonly Candidate[]>> {
  const sessions = new Map<string, Candidate[]>();
  for (const upload of sorted) {
    if (turns.isDue()) await turns.turn();
    const { mark } = upload;
    if (mark === undefined) continue;
    const known = sessions.get(mark);
    if (known === undefined) sessions.set(mark, [upload]);
    else known.push(upload);
  }
  return sessions;
}

/** Describes a session and joins its uploads. Returns undefined if the session was removed. */
export async function describeCandidate(candidate: Candidate): Promise<CatalogEntry | undefined> {
  const { mark, others } = candidate;
  if (others.length === 0) return asSession(await candidate.describe(), mark);
  const found = await Promise.all([candidate, ...others].map((each) => each.describe()));
  const [first, ...rest] = found.filter((part) => part !== undefined);
  if (first === undefined) return undefined;
  try {
    return await joinParts([first, ...rest], first.entry);
  } catch (error) {
    // Anyone with write access to the store can replace the notes of a part. A replaced file must not break lists.
    const isDamaged = error instanceof TailcastError && error.code === 'ARCHIVE_DAMAGED';
    if (!isDamaged && !(error instanceof RangeError)) throw error;
    const problem = `its parts cannot be joined: ${errorText(error)}`;
    return { ...first.entry, recording: { ...first.entry.recording, problem } };
  }
}

/**
 * Describes a session with one visible upload. The description states the missing bytes. It also states the position of
 * the upload in its session, so that a viewer who may see the other uploads can join them.
 */
async function asSession(
  described: DescribedPart | undefined,
  mark: string | undefined,
): Promise<CatalogEntry | undefined> {
  if (described === undefined) return undefined;
  const { part, bodyEnd, entry: own } = described;
  const entry = part.offset === 0 ? own : await joinParts([described], own);
  const isWhole = part.offset === 0 && own.recording.state === 'completed';
  if (mark === undefined || isWhole || own.live !== undefined) return entry;
  const isProven = isPart(described, mark);
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
  // For a later upload, `joinParts` has already added the problem and the continuation to `recording.problem`.
  const more = part.offset === 0 ? [problem, ...isContinued(described)] : [recording.problem];
  const problems = more.filter((each) => each !== undefined).join('; ');
  return {
    ...entry,
    recording: {
      ...recording,
      ...(isProven ? { part: place } : {}),
      ...(problems === '' ? {} : { problem: problems }),
    },
  };
}

/** Removes candidates that are also live. While a recording moves into the store, both lists contain it. */
export function withoutCopies(
  live: readonly Candidate[],
  elsewhere: readonly Candidate[],
): readonly Candidate[] {
  const ids = new Set(live.map(({ id }) => id));
  return [...live, ...elsewhere.filter(({ id }) => !ids.has(id))];
}
