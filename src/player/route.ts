/**
 * Addresses of the page: `#/` is the list with its query or filter, `#/r/<id>` is a recording, `#/compare` shows two
 * recordings, and `#/live` shows the running sessions. Pure.
 */
import { EMPTY_FILTER, type Filter } from './addresses.ts';
import type { ListSort } from '../search/search-index.ts';

export type Route =
  | { readonly view: 'wall'; readonly text: string }
  | { readonly view: 'compare'; readonly ids: readonly [string, string] }
  | { readonly view: 'list'; readonly filter: Filter; readonly query: string; readonly sort?: ListSort }
  | { readonly view: 'unknown'; readonly path: string }
  | {
      readonly view: 'recording';
      readonly id: string;
      readonly at: number | undefined;
      /** Text to find in the transcript. */
      readonly find?: string;
      /** Query whose matches are marked in the recording. */
      readonly query?: string;
    };

const SORTS: readonly ListSort[] = ['newest', 'oldest', 'longest', 'largest'];

export function parseRoute(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#/, '').split('?', 2);
  const parameters = new URLSearchParams(query);
  const id = /^\/r\/(.+)$/.exec(path)?.[1];
  if (id !== undefined) return recordingRoute(decode(id), parameters);
  if (path === '/live') return { view: 'wall', text: parameters.get('text') ?? '' };
  const [first = '', second = ''] = parameters.getAll('id');
  if (path === '/compare' && first !== '' && second !== '') return { view: 'compare', ids: [first, second] };
  return path === '' || path === '/' ? listRoute(parameters) : { view: 'unknown', path };
}

function recordingRoute(id: string, parameters: URLSearchParams): Route {
  const at = Number(parameters.get('t') ?? Number.NaN);
  const find = parameters.get('q') ?? '';
  const sought = parameters.get('hits') ?? '';
  return {
    view: 'recording',
    id,
    at: at >= 0 ? at : undefined,
    ...(find === '' ? {} : { find }),
    ...(sought === '' ? {} : { query: sought }),
  };
}

function listRoute(parameters: URLSearchParams): Route {
  const sort = SORTS.find((name) => name === parameters.get('sort'));
  const filter: Record<string, string> = { ...EMPTY_FILTER };
  for (const name of Object.keys(EMPTY_FILTER)) filter[name] = parameters.get(name) ?? '';
  return {
    view: 'list',
    filter: { ...EMPTY_FILTER, ...filter },
    query: parameters.get('q') ?? '',
    ...(sort === undefined ? {} : { sort }),
  };
}

export function formatRoute(route: Route): string {
  if (route.view === 'wall')
    return route.text === '' ? '#/live' : `#/live?${new URLSearchParams({ text: route.text })}`;
  if (route.view === 'compare') return `#/compare?${new URLSearchParams(route.ids.map((id) => ['id', id]))}`;
  if (route.view === 'unknown') return `#${route.path}`;
  if (route.view === 'recording') {
    const { id, at, find, query } = route;
    const parameters = new URLSearchParams({
      ...(at === undefined ? {} : { t: timeText(at) }),
      ...(find === undefined ? {} : { q: find }),
      ...(query === undefined || query === '' ? {} : { hits: query }),
    });
    return `#/r/${encodeURIComponent(id)}${parameters.size === 0 ? '' : `?${parameters}`}`;
  }
  const parameters = new URLSearchParams(
    Object.entries({ q: route.query, sort: route.sort ?? '', ...route.filter }).filter(
      ([, value]) => value !== '',
    ),
  );
  return `#/${parameters.size === 0 ? '' : `?${parameters}`}`;
}

/** Address of the list for a query. */
export function searchAddress(query: string): string {
  return formatRoute({ view: 'list', filter: EMPTY_FILTER, query });
}

/** Goes to an address of this page without a reload. `replace`: the new address replaces the current history entry. */
export function goTo(
  address: string,
  options: { readonly replace: boolean; readonly state?: unknown },
): void {
  const { replace, state = null } = options;
  if (replace) history.replaceState(state, '', address);
  else history.pushState(state, '', address);
  dispatchEvent(new HashChangeEvent('hashchange'));
}

/** Rounds a time up to the next whole millisecond. Rounding down would show the screen before the requested event. */
function timeText(seconds: number): string {
  return String(Math.ceil(seconds * 1000 - 1e-6) / 1000);
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
