/**
 * What there is below `/-/recordings/`: a list of what may pass, so that nothing else of a recorder can be reached. Pure.
 *
 * ```
 * /-/recordings                                        → /-/recordings/
 * /-/recordings/                                       the page
 * /-/recordings/icon.svg, assets/<file>                its files: the gateway's own
 * /-/recordings/api/v1/recordings, events, search[/facets]   asked of the recorder
 * /-/recordings/api/v1/recordings/<id>[/cast|playback|transcript|evidence|sidecar|notes|search]
 * /-/recordings/api/v1/recordings/<id>/live            a WebSocket to the recorder
 * ```
 *
 * It is matched against the one reading of the target (`kube/canonical-target`), and what the recorder is asked for is
 * written anew from what matched: the path that a client sent goes nowhere.
 */
import type { Target } from '../kube/canonical-target.ts';
import { queryValues } from '../kube/canonical-target.ts';

export const PORTAL_PATH = '/-/recordings';

export type PortalRoute =
  | { readonly kind: 'redirect'; readonly query: string }
  /** `file`: name within the built player. */
  | { readonly kind: 'page'; readonly file: string }
  | {
      readonly kind: 'data';
      /** What the recorder is asked for. */
      readonly path: string;
      /** With its `?`, unless it is empty. */
      readonly query: string;
      /** What it is, whatever the recorder calls it. */
      readonly type: string;
      /** The answer may be kept by the browser that got it, and asked for again. */
      readonly cacheable: boolean;
      /** It may be silent for long. */
      readonly follows: boolean;
    }
  | { readonly kind: 'live'; readonly path: string };

/** Far above what the page and the tools send. */
const MAX_QUERY_LENGTH = 8 * 1024;

/** `<node>_<time>` as the recorder writes it for the node IDs of tailnets (`tsrecorder/store/key`). */
const ID = '[A-Za-z0-9_-]{1,128}_[0-9T:.-]{19,29}Z';
const RECORDING = new RegExp(
  `^api/v1/recordings/(${ID})(?:/(cast|playback|transcript|evidence|sidecar|notes|search|live))?$`,
);
const FILE = /^(?:index\.html|icon\.svg|assets\/[A-Za-z0-9_-]{1,100}(?:\.[A-Za-z0-9_-]{1,100}){1,3})$/;

const LISTS: ReadonlySet<string> = new Set([
  'api/v1/recordings',
  'api/v1/events',
  'api/v1/search',
  'api/v1/search/facets',
]);
const JSON_TYPE = 'application/json; charset=utf-8';
/** What is no JSON. */
const TYPES: ReadonlyMap<string, string> = new Map([
  ['cast', 'application/x-asciicast'],
  ['notes', 'application/x-ndjson'],
]);

/** The route of a target; `undefined` when there is nothing. */
export function findRoute({ path, rawQuery, query }: Target): PortalRoute | undefined {
  if (rawQuery.length > MAX_QUERY_LENGTH) return undefined;
  const asked = rawQuery === '' ? '' : `?${rawQuery}`;
  if (path === PORTAL_PATH) return { kind: 'redirect', query: asked };
  if (!path.startsWith(`${PORTAL_PATH}/`)) return undefined;
  const rest = path.slice(PORTAL_PATH.length + 1);
  if (rest === '') return { kind: 'page', file: 'index.html' };
  if (FILE.test(rest)) return { kind: 'page', file: rest };
  if (LISTS.has(rest)) {
    return {
      kind: 'data',
      path: `/${rest}`,
      query: asked,
      type: JSON_TYPE,
      cacheable: false,
      follows: false,
    };
  }
  return findRecording(rest, asked, query);
}

function findRecording(rest: string, asked: string, query: Target['query']): PortalRoute | undefined {
  const [, id, part = ''] = RECORDING.exec(rest) ?? [];
  if (id === undefined) return undefined;
  const path = `/api/v1/recordings/${encodeURIComponent(id)}${part === '' ? '' : `/${part}`}`;
  if (part === 'live') return asked === '' ? { kind: 'live', path } : undefined;
  return {
    kind: 'data',
    path,
    query: asked,
    type: TYPES.get(part) ?? JSON_TYPE,
    cacheable: part !== '' && part !== 'search',
    follows: part === 'cast' && queryValues(query, 'follow').includes('1'),
  };
}
