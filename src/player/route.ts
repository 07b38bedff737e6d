/** The page's address: `#/` is the list with its filter, `#/r/<id>` one recording, `#/live` what runs now. Pure. */
import { EMPTY_FILTER, type Filter } from './archive.ts';

export type Route =
  | { readonly view: 'wall' }
  | { readonly view: 'list'; readonly filter: Filter }
  | {
      readonly view: 'recording';
      readonly id: string;
      readonly at: number | undefined;
      readonly find?: string;
    };

export function parseRoute(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#/, '').split('?', 2);
  const parameters = new URLSearchParams(query);
  const id = /^\/r\/(.+)$/.exec(path)?.[1];
  if (id !== undefined) {
    const at = Number(parameters.get('t') ?? Number.NaN);
    const find = parameters.get('q') ?? '';
    return {
      view: 'recording',
      id: decode(id),
      at: at >= 0 ? at : undefined,
      ...(find === '' ? {} : { find }),
    };
  }
  if (path === '/live') return { view: 'wall' };
  const filter: Record<string, string> = { ...EMPTY_FILTER };
  for (const name of Object.keys(EMPTY_FILTER)) filter[name] = parameters.get(name) ?? '';
  return { view: 'list', filter: { ...EMPTY_FILTER, ...filter } };
}

export function formatRoute(route: Route): string {
  if (route.view === 'wall') return '#/live';
  if (route.view === 'recording') {
    const { id, at, find } = route;
    const parameters = new URLSearchParams({
      ...(at === undefined ? {} : { t: at.toFixed(1) }),
      ...(find === undefined ? {} : { q: find }),
    });
    return `#/r/${encodeURIComponent(id)}${parameters.size === 0 ? '' : `?${parameters}`}`;
  }
  const parameters = new URLSearchParams(Object.entries(route.filter).filter(([, value]) => value !== ''));
  return `#/${parameters.size === 0 ? '' : `?${parameters}`}`;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
