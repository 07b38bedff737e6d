/**
 * Addresses of the recorder's read API (see `src/tsrecorder/serving/api.ts`). They are relative, because a server may
 * serve the page below any path. The script with the first requests contains this module, so it imports no other.
 */
import type { ListSort } from '../search/search-index.ts';

/** Filter of the list. An empty field matches all recordings. */
export interface Filter {
  readonly text: string;
  readonly user: string;
  readonly cluster: string;
  readonly namespace: string;
  readonly pod: string;
  readonly state: string;
  readonly from: string;
  readonly to: string;
}

/** Filter that matches all recordings. */
export const EMPTY_FILTER: Filter = {
  text: '',
  user: '',
  cluster: '',
  namespace: '',
  pod: '',
  state: '',
  from: '',
  to: '',
};
/** Number of recordings in the first page of the list. Later pages are larger. */
export const PAGE_SIZE = 50;
const NEXT_SIZE = 200;

/** Headers of a request for JSON. */
export const JSON_HEADERS = { accept: 'application/json' } as const;

/** Headers of a request for the bytes `[start, end)`. */
export function rangeHeaders(start: number, end: number): { readonly range: string } {
  return { range: `bytes=${start}-${end - 1}` };
}

/** URL of a page of the list. */
export function listAddress(filter: Filter, cursor?: string, sort?: ListSort): string {
  const query = new URLSearchParams({ limit: String(cursor === undefined ? PAGE_SIZE : NEXT_SIZE) });
  for (const [name, value] of Object.entries(filterQuery(filter))) query.set(name, value);
  if (cursor !== undefined) query.set('cursor', cursor);
  if (sort !== undefined && sort !== 'newest') query.set('sort', sort);
  return `api/v1/recordings?${query}`;
}

/** URL of the description of a recording, for its view in the page. */
export function recordingAddress(id: string): string {
  return `${pathOf(id)}?view=1`;
}

/** URL of the asciicast file. `watched` is true for playback in the page, and false for a download. */
export function castAddress(id: string, options: { readonly watched: boolean }): string {
  return `${pathOf(id)}/cast${options.watched ? '?view=1' : ''}`;
}

/** URL of a document that belongs to a recording. */
export function bytesAt(id: string, name: string): string {
  return `${pathOf(id)}/${name}`;
}

function pathOf(id: string): string {
  return `api/v1/recordings/${encodeURIComponent(id)}`;
}

/** URL of the live view of a running session. */
export function liveAddress(id: string): string {
  const url = new URL(`${pathOf(id)}/live`, document.baseURI);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return url.href;
}

/** Converts the filter to query parameters. Days are converted to timestamps in the viewer's time zone. */
export function filterQuery(filter: Filter): Record<string, string> {
  const query: Record<string, string> = {};
  for (const name of ['text', 'user', 'cluster', 'namespace', 'pod', 'state'] as const) {
    const value = filter[name].trim();
    if (value !== '') query[name] = value;
  }
  const from = startOfDay(filter.from, 0);
  const to = startOfDay(filter.to, 1);
  if (from !== undefined) query['from'] = from;
  if (to !== undefined) query['to'] = to;
  return query;
}

function startOfDay(day: string, daysLater: number): string | undefined {
  const match = /^(\d{4})-(\d{2})-(\d{2})$/.exec(day);
  if (match === null) return undefined;
  return new Date(Number(match[1]), Number(match[2]) - 1, Number(match[3]) + daysLater).toISOString();
}
