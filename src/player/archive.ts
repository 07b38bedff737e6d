/** Client of the recorder's read API (see `src/tsrecorder/serving/api.ts`). */
import {
  bytesAt,
  EMPTY_FILTER,
  JSON_HEADERS,
  listAddress,
  PAGE_SIZE,
  recordingAddress,
  type Filter,
} from './addresses.ts';
import { decodeRecording, type ListedRecording } from '../wire/recorder-api/recording.ts';
import { TRANSCRIPT_VERSION, type TranscriptDocument } from '../search/transcript-document.ts';
import { isPlayIndex, type PlayIndex, type PlayIndexPending } from '../screen/play-index.ts';
import type { FacetValue, Facets, Hit, ListSort } from '../search/search-index.ts';
import type { Review, ReviewChange } from '../wire/recorder-api/review.ts';
import type { SavedSearches, SearchChange } from '../wire/recorder-api/saved-search.ts';
import type { ThumbnailRows } from '../screen/thumbnail.ts';
import type { Ask } from './recorder-context.ts';
import { isRecord } from '../wire/is-record.ts';
import { failureOf } from './archive-error.ts';

export interface Page {
  readonly recordings: readonly Listed[];
  readonly next?: string | null;
  /** True if the recorder supports search. */
  readonly search?: boolean;
  /** State of the search index. */
  readonly index?: SearchIndexState;
  /** Login of the viewer, or name of the viewer's tailnet node, if no viewer rule matches; otherwise undefined. */
  readonly noRuleFor?: string;
}

/** A recording with its search matches. */
export interface Listed extends ListedRecording {
  readonly found?: SessionHits;
}

export interface SessionHits {
  readonly hits: readonly Hit[];
  /** True if the recording has more matches than `hits`. */
  readonly more: boolean;
  /** True if the index contains only a part of the recording's text. */
  readonly partial: boolean;
  /** Position in seconds at which indexing stopped, if the session is too expensive to render. */
  readonly stoppedAt?: number;
}

/** State of a recorder's search index. */
export interface SearchIndexState {
  /** Readiness of the index: `ready`, `building` or `unavailable`. */
  readonly state: string;
  /** Number of recordings that are not in the index yet; undefined for restricted viewers. */
  readonly backlog?: number;
  /** Delay of the index behind running sessions, in seconds; undefined for restricted viewers. */
  readonly lagSeconds?: number;
  readonly problem?: string;
}

/** Returns one page of recordings, newest first. Throws an `Error` with the recorder's message. */
export async function listRecordings(
  ask: Ask,
  filter: Filter,
  cursor: string | undefined,
  signal: AbortSignal,
  sort?: ListSort,
): Promise<Page> {
  const page = await readJson(ask, listAddress(filter, cursor, sort), signal);
  if (!isPage(page)) throw new Error('The response of the recorder is not a list of recordings.');
  return page;
}

/**
 * Returns one page of search results, newest first. Throws an `Error` with the recorder's message. If the recorder has
 * no search, returns a page without recordings, with `search: false`.
 */
export async function searchPage(
  ask: Ask,
  query: string,
  cursor: string | undefined,
  signal: AbortSignal,
): Promise<Page> {
  const asked = new URLSearchParams({ q: query, limit: String(PAGE_SIZE), view: '1' });
  if (cursor !== undefined) asked.set('cursor', cursor);
  const response = await answerOf(ask, `api/v1/search?${asked}`, signal);
  if (!response.ok) {
    const failure = await failureOf(response);
    const { search } = await listRecordings(ask, EMPTY_FILTER, undefined, signal);
    if (search === true) throw failure;
    return { recordings: [], search: false };
  }
  const body: unknown = await response.json();
  if (!isFound(body)) throw new Error('The response of the recorder is not a search result.');
  return {
    recordings: body.sessions.map(({ recording, ...found }) => ({ ...recording, found })),
    ...(body.next === undefined ? {} : { next: body.next }),
    ...(body.noRuleFor === undefined ? {} : { noRuleFor: body.noRuleFor }),
    search: true,
    index: body.index,
  };
}

interface FoundBody extends Pick<Page, 'noRuleFor'> {
  readonly sessions: readonly (SessionHits & { readonly recording: ListedRecording })[];
  readonly next?: string;
  readonly index: SearchIndexState;
}

function isFound(body: unknown): body is FoundBody {
  return (
    isRecord(body) &&
    isRecord(body['index']) &&
    Array.isArray(body['sessions']) &&
    body['sessions'].every(
      (session: unknown) =>
        isRecord(session) && decodeRecording(session['recording']) !== undefined && hasHits(session),
    )
  );
}

function hasHits(value: unknown): value is { readonly hits: readonly Hit[]; readonly more: boolean } {
  return isRecord(value) && Array.isArray(value['hits']) && value['hits'].every(isHit);
}

function isHit(value: unknown): value is Hit {
  return (
    isRecord(value) &&
    typeof value['at'] === 'number' &&
    typeof value['text'] === 'string' &&
    Array.isArray(value['marks'])
  );
}

/** Maximum number of marked matches in one recording. */
const MAX_HITS = 1000;

/** Returns the matches in one recording, in order of time. */
export async function readHits(
  ask: Ask,
  id: string,
  query: string,
  signal: AbortSignal,
): Promise<{ readonly hits: readonly Hit[]; readonly more: boolean }> {
  const asked = new URLSearchParams({ q: query, limit: String(MAX_HITS), view: '1' });
  const body = await readJson(ask, bytesAt(id, `search?${asked}`), signal);
  if (!hasHits(body)) throw new Error('The response of the recorder cannot be read.');
  return body;
}

/** Keys of the facets: fields whose common values the page shows. */
export const FACETS = ['user', 'cluster', 'ns', 'kind', 'state', 'result', 'trust'] as const;

/** Returns for each facet the most common values among the sessions that match a query, with their counts. */
export async function readFacets(ask: Ask, query: string, signal: AbortSignal): Promise<Facets> {
  const asked = new URLSearchParams({ q: query, view: '1' });
  const body = await readJson(ask, `api/v1/search/facets?${asked}`, signal);
  if (!isFacets(body)) throw new Error('The response of the recorder cannot be read.');
  return body;
}

function isFacets(body: unknown): body is Facets {
  return (
    isRecord(body) && FACETS.every((name) => Array.isArray(body[name]) && body[name].every(isFacetValue))
  );
}

function isFacetValue(value: unknown): value is FacetValue {
  return isRecord(value) && typeof value['value'] === 'string' && typeof value['count'] === 'number';
}

export async function readRecording(ask: Ask, id: string, signal: AbortSignal): Promise<ListedRecording> {
  const recording = decodeRecording(await readJson(ask, recordingAddress(id), signal));
  if (recording === undefined) throw new Error('The response of the recorder is not a recording.');
  return recording;
}

/** Returns the play index of a recording, or the progress of its build; undefined if the recorder offers no index. */
export async function readPlayIndex(
  ask: Ask,
  id: string,
  signal: AbortSignal,
): Promise<PlayIndex | PlayIndexPending | undefined> {
  return readBuilt(ask, bytesAt(id, 'playback?view=1'), signal, isPlayIndex);
}

/**
 * Returns a document that the recorder builds on demand, or the progress of the build. The progress is 0 while the
 * recorder's queue of builds is full.
 */
async function readBuilt<Document>(
  ask: Ask,
  path: string,
  signal: AbortSignal,
  isDocument: (body: unknown) => body is Document,
): Promise<Document | PlayIndexPending | undefined> {
  const response = await answerOf(ask, path, signal);
  const body: unknown = await response.json().catch(() => undefined);
  if (!response.ok) return isRecord(body) && body['code'] === 'RECORDER_BUSY' ? { progress: 0 } : undefined;
  if (isRecord(body) && typeof body['progress'] === 'number') return { progress: body['progress'] };
  return isDocument(body) ? body : undefined;
}

/** Returns the thumbnails that already exist for the given recordings, keyed by recording id. */
export async function readThumbnails(
  ask: Ask,
  ids: readonly string[],
): Promise<ReadonlyMap<string, ThumbnailRows>> {
  const asked = new URLSearchParams({ ids: ids.join(',') });
  const body = await readJson(ask, `api/v1/thumbnails?${asked}`, new AbortController().signal);
  const found = isRecord(body) && isRecord(body['thumbnails']) ? Object.entries(body['thumbnails']) : [];
  return new Map(found.filter((entry): entry is [string, ThumbnailRows] => isThumbnail(entry[1])));
}

function isThumbnail(value: unknown): value is ThumbnailRows {
  return Array.isArray(value) && value.every((row) => typeof row === 'string');
}

/** Returns the screen content at the keyframe with this index. */
export async function readFrame(ask: Ask, id: string, index: number, signal: AbortSignal): Promise<string> {
  const screen = await readJson(ask, bytesAt(id, `playback?view=1&frame=${index}`), signal);
  if (typeof screen !== 'string') throw new Error('The response of the recorder is not a screen.');
  return screen;
}

/**
 * Returns the transcript of a recording, or the progress of its build; undefined if the recorder offers no transcript.
 */
export async function readTranscript(
  ask: Ask,
  id: string,
  signal: AbortSignal,
): Promise<TranscriptDocument | PlayIndexPending | undefined> {
  return readBuilt(ask, bytesAt(id, 'transcript?view=1'), signal, isTranscript);
}

function isTranscript(body: unknown): body is TranscriptDocument {
  return (
    isRecord(body) &&
    body['version'] === TRANSCRIPT_VERSION &&
    Array.isArray(body['rows']) &&
    isRecord(body['hidden']) &&
    Array.isArray(body['hidden']['rows'])
  );
}

/** A review, and the viewer's permission to change it. */
export interface ShownReview extends Review {
  readonly mayWrite: boolean;
}

export async function readReview(ask: Ask, id: string, signal: AbortSignal): Promise<ShownReview> {
  return shownReview(await readJson(ask, bytesAt(id, 'review?view=1'), signal));
}

/** Changes the review of a recording. @returns the changed review */
export async function changeReview(ask: Ask, id: string, change: ReviewChange): Promise<ShownReview> {
  return shownReview(await postJson(ask, bytesAt(id, 'review'), change));
}

async function postJson(ask: Ask, path: string, body: unknown): Promise<unknown> {
  const { signal } = new AbortController();
  const headers = { ...JSON_HEADERS, 'content-type': 'application/json' };
  const response = await ask(path, { signal, headers, method: 'POST', body: JSON.stringify(body) }).catch(
    (error: unknown) => {
      throw new Error('The recorder cannot be reached.', { cause: error });
    },
  );
  if (!response.ok) throw await failureOf(response);
  return response.json();
}

const SEARCHES_PATH = 'api/v1/searches';

export async function readSavedSearches(ask: Ask, signal: AbortSignal): Promise<SavedSearches> {
  return savedSearchesOf(await readJson(ask, SEARCHES_PATH, signal));
}

/** Saves or removes a search on the recorder. @returns all saved searches after the change */
export async function changeSavedSearches(ask: Ask, change: SearchChange): Promise<SavedSearches> {
  return savedSearchesOf(await postJson(ask, SEARCHES_PATH, change));
}

function savedSearchesOf(body: unknown): SavedSearches {
  if (!isSavedSearches(body)) throw new Error('The response of the recorder is not a list of searches.');
  return body;
}

function isSavedSearches(body: unknown): body is SavedSearches {
  return isRecord(body) && Array.isArray(body['personal']) && Array.isArray(body['shared']);
}

function shownReview(body: unknown): ShownReview {
  if (!isShownReview(body)) throw new Error('The response of the recorder is not a review.');
  return body;
}

function isShownReview(body: unknown): body is ShownReview {
  return (
    isRecord(body) &&
    typeof body['mayWrite'] === 'boolean' &&
    Array.isArray(body['tags']) &&
    Array.isArray(body['comments'])
  );
}

function isPage(value: unknown): value is Page {
  return (
    isRecord(value) &&
    Array.isArray(value['recordings']) &&
    value['recordings'].every((entry) => decodeRecording(entry) !== undefined)
  );
}

export async function readJson(ask: Ask, path: string, signal: AbortSignal): Promise<unknown> {
  const response = await answerOf(ask, path, signal);
  if (!response.ok) throw await failureOf(response);
  return response.json().catch(() => {
    throw new Error('The response of the recorder cannot be read.');
  });
}

/** @throws Error with a sentence for the viewer if there is no response */
export async function answerOf(
  ask: Ask,
  path: string,
  signal: AbortSignal,
  headers: Readonly<Record<string, string>> = JSON_HEADERS,
): Promise<Response> {
  try {
    return await ask(path, { signal, headers });
  } catch (error) {
    // browsers do not report why a request failed
    throw signal.aborted ? error : new Error('The recorder cannot be reached.', { cause: error });
  }
}
