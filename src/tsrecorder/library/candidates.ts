/** What may be listed, before anything of it was read but its name: uploads, and the sessions that they are of. */
import { spooledFiles } from './cast-pieces.ts';
import type { CatalogEntry } from './catalog-entry.ts';
import { goesOn, joinParts, type DescribedPart } from './join-parts.ts';
import type { LiveRecording } from './live-recording.ts';
import { sessionMark } from './session-part.ts';
import { orderOf, recordingId, type RecordingKey } from '../store/key.ts';
import type { ReadableStore, StoredRecording } from '../store/store.ts';
import type { Describe } from './describe-stored.ts';

/** Something that may be listed. */
export interface Candidate {
  readonly key: RecordingKey;
  readonly id: string;
  /** Fixed-width time, then node: sorts by time. */
  readonly order: string;
  /** Session that the name of an object assigns the upload to. Anybody can write such a name: see {@link isPart}. */
  readonly mark: string | undefined;
  describe(): Promise<DescribedPart | undefined>;
  /** As the store lists it; undefined when it is elsewhere. */
  readonly stored: StoredRecording | undefined;
  /** Other uploads of the same session. They are later ones, and not listed themselves. */
  readonly others: readonly Candidate[];
}

/** A recording that is not in the store: a session that another recorder has open, or what is in another store. */
export interface RemoteRecording {
  readonly key: RecordingKey;
  readonly sessionMark: string | undefined;
  describe(): Promise<DescribedPart | undefined>;
}

export function remoteCandidate(remote: RemoteRecording): Candidate {
  return candidateOf(remote.key, remote.sessionMark, () => remote.describe());
}

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

/** What is in the store. There may be a million, of which most are never asked for more than their time. */
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

/** @param sorted newest first. @returns the same order; the first upload of a session represents all of them. */
export async function groupSessions(sorted: readonly Candidate[]): Promise<readonly Candidate[]> {
  const uploads = uploadsByMark(sorted);
  if (uploads.size === 0) return sorted;
  const findParts = createPartFinder(uploads);
  const sessions: Candidate[] = [];
  for (const candidate of sorted) {
    const session = await sessionOf(candidate, findParts);
    if (session !== undefined) sessions.push(session);
  }
  return sessions;
}

/** Returns the proven uploads of the session that an upload is assigned to, in the order of the uploads. */
export type FindParts = (upload: Candidate) => Promise<readonly Candidate[]>;

/** Maximum number of uploads with one mark. If there are more, none of them is joined and each is listed. */
const MAX_PARTS = 1000;
/** Uploads of one session that are read at a time. */
const PARTS_BATCH = 32;

/** Reads the uploads of each session once. */
export function createPartFinder(byMark: ReadonlyMap<string, readonly Candidate[]>): FindParts {
  const known = new Map<string, Promise<readonly Candidate[]>>();
  return async ({ mark }) => {
    const uploads = mark === undefined ? [] : (byMark.get(mark) ?? []);
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
 * True if the description of an upload names the session of `mark`, and that description is signed by a trusted key. Where
 * nothing checks signatures, the description is sufficient.
 */
function isPart(described: DescribedPart | undefined, mark: string | undefined): boolean {
  if (described === undefined) return false;
  const { entry, part } = described;
  const proven = described.mark ?? sessionMark(entry.key.nodeId, part.session);
  const { trust = 'verified' } = entry.recording;
  return trust === 'verified' && proven === mark;
}

/** Returns the session of an upload; undefined if an earlier upload represents the session. */
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

/** Of each session that may have several: its uploads, in the order they come. */
export function uploadsByMark(sorted: readonly Candidate[]): ReadonlyMap<string, readonly Candidate[]> {
  const sessions = new Map<string, Candidate[]>();
  for (const candidate of sorted) addUpload(sessions, candidate);
  return sessions;
}

/** The same, one after the other. */
export function addUpload(sessions: Map<string, Candidate[]>, upload: Candidate): void {
  if (upload.mark === undefined) return;
  const known = sessions.get(upload.mark);
  if (known === undefined) sessions.set(upload.mark, [upload]);
  else known.push(upload);
}

export async function describeCandidate(candidate: Candidate): Promise<CatalogEntry | undefined> {
  const { mark, others } = candidate;
  if (others.length === 0) return asWhole(await candidate.describe(), mark);
  const found = await Promise.all([candidate, ...others].map((each) => each.describe()));
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
  // what was joined has said it
  const more = part.offset === 0 ? [problem, ...goesOn(described)] : [recording.problem];
  const told = more.filter((each) => each !== undefined).join('; ');
  return {
    ...entry,
    recording: {
      ...recording,
      ...(isProven ? { part: place } : {}),
      ...(told === '' ? {} : { problem: told }),
    },
  };
}

export function newestFirst(left: Candidate, right: Candidate): number {
  if (left.order === right.order) return 0;
  return left.order < right.order ? 1 : -1;
}

/** What is live here is so elsewhere too while it moves into the store. */
export function withoutCopies(
  live: readonly Candidate[],
  elsewhere: readonly Candidate[],
): readonly Candidate[] {
  const ids = new Set(live.map(({ id }) => id));
  return [...live, ...elsewhere.filter(({ id }) => !ids.has(id))];
}
