/** The recorder's read API as the page uses it (see `src/tsrecorder/serving/api.ts`). Paths are relative: the page may be mounted anywhere. */

export interface Recording {
  readonly id: string;
  readonly state: 'open' | 'closed' | 'interrupted' | 'violated' | 'damaged' | 'unknown';
  readonly startedAt: string;
  readonly durationSeconds?: number;
  readonly bytes: number;
  readonly width: number;
  readonly height: number;
  readonly command?: string;
  readonly kind: string;
  readonly source: { readonly node: string; readonly user?: string; readonly tags?: readonly string[] };
  readonly destination?: { readonly node: string };
  readonly kubernetes?: { readonly namespace: string; readonly pod: string; readonly container: string };
  readonly exitCode?: number;
  readonly problem?: string;
}

export interface Page {
  readonly recordings: readonly Recording[];
  readonly next?: string | null;
}

/** What the list can be narrowed to; an empty value does not narrow. */
export interface Filter {
  readonly text: string;
  readonly user: string;
  readonly namespace: string;
  readonly pod: string;
  readonly state: string;
  readonly from: string;
  readonly to: string;
}

export const EMPTY_FILTER: Filter = {
  text: '',
  user: '',
  namespace: '',
  pod: '',
  state: '',
  from: '',
  to: '',
};
const PAGE_SIZE = 50;

/** One page of recordings, newest first. Throws an `Error` with the recorder's own sentence. */
export async function listRecordings(
  filter: Filter,
  cursor: string | undefined,
  signal: AbortSignal,
): Promise<Page> {
  const query = new URLSearchParams({ limit: String(PAGE_SIZE) });
  for (const [name, value] of Object.entries(filterQuery(filter))) query.set(name, value);
  if (cursor !== undefined) query.set('cursor', cursor);
  const page = await fetchJson(`api/v1/recordings?${query}`, signal);
  if (!isPage(page)) throw new Error('The recorder’s answer is not a list of recordings.');
  return page;
}

export async function readRecording(id: string, signal: AbortSignal): Promise<Recording> {
  const recording = await fetchJson(`api/v1/recordings/${encodeURIComponent(id)}`, signal);
  if (!isRecording(recording)) throw new Error('The recorder’s answer is not a recording.');
  return recording;
}

/** Where the cast is; `normalise` asks for resize events as columns x rows whoever recorded them. */
export function castAddress(id: string, options: { readonly normalise: boolean }): string {
  return `api/v1/recordings/${encodeURIComponent(id)}/cast${options.normalise ? '?normalise=1' : ''}`;
}

/** Where a running session is followed from. */
export function liveAddress(id: string): string {
  const url = new URL(`api/v1/recordings/${encodeURIComponent(id)}/live`, document.baseURI);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return url.href;
}

/** The filter as query parameters: days become the instants they begin and end at, in the reader's time zone. */
export function filterQuery(filter: Filter): Record<string, string> {
  const query: Record<string, string> = {};
  for (const name of ['text', 'user', 'namespace', 'pod', 'state'] as const) {
    const value = filter[name].trim();
    if (value !== '') query[name] = value;
  }
  const from = startOfDay(filter.from, 0);
  const to = startOfDay(filter.to, 1);
  if (from !== undefined) query['from'] = from;
  if (to !== undefined) query['to'] = to;
  return query;
}

function isPage(value: unknown): value is Page {
  return isRecord(value) && Array.isArray(value['recordings']) && value['recordings'].every(isRecording);
}

function isRecording(value: unknown): value is Recording {
  return (
    isRecord(value) &&
    typeof value['id'] === 'string' &&
    typeof value['state'] === 'string' &&
    isRecord(value['source'])
  );
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

function startOfDay(day: string, daysLater: number): string | undefined {
  const match = /^(\d{4})-(\d{2})-(\d{2})$/.exec(day);
  if (match === null) return undefined;
  return new Date(Number(match[1]), Number(match[2]) - 1, Number(match[3]) + daysLater).toISOString();
}

async function fetchJson(path: string, signal: AbortSignal): Promise<unknown> {
  const response = await fetch(path, { signal, headers: { accept: 'application/json' } });
  const body: unknown = await response.json().catch(() => undefined);
  if (response.ok) return body;
  const told =
    typeof body === 'object' && body !== null && 'message' in body
      ? String(body.message)
      : response.statusText;
  throw new Error(`The recorder answered ${response.status}: ${told}`);
}
