/**
 * First requests of a view. A small script sends them before the script of the page has arrived, so that the recorder
 * responds while the browser loads and renders the view.
 */
import { HEAD_BYTES } from '../screen/cast-lines.ts';
import {
  bytesAt,
  castAddress,
  JSON_HEADERS,
  listAddress,
  rangeHeaders,
  recordingAddress,
} from './addresses.ts';
import type { Ask } from './recorder-context.ts';
import type { Route } from './route.ts';

/** Time after which an unused response is discarded, in milliseconds. */
const UNUSED_MS = 10_000;

export interface FirstRequests {
  /**
   * Sends the first requests of a view. @param isHidden true if the tab is in the background. A list in the background
   * sends no requests.
   */
  readonly askFirst: (route: Route, isHidden: boolean) => void;
  /** Sends a request. Uses each response to a first request once instead. */
  readonly ask: Ask;
}

interface First {
  readonly response: Promise<Response>;
  readonly gone: AbortController;
  /** True if the response is still correct when the view reads it. */
  readonly isUsable: (response: Response) => boolean;
}

/** @param send sends a request */
export function createFirstRequests(send: Ask): FirstRequests {
  const unused = new Map<string, First>();
  const askOnce = (
    path: string,
    headers: Readonly<Record<string, string>>,
    isUsable: First['isUsable'] = () => true,
  ): void => {
    const key = JSON.stringify([path, headers]);
    const gone = new AbortController();
    const response = send(path, { headers, signal: gone.signal });
    // the view reports the error
    response.then((found) => isUsable(found) || gone.abort()).catch(() => undefined);
    const first = { response, gone, isUsable };
    unused.set(key, first);
    // a later view needs a current response
    setTimeout(() => {
      if (unused.get(key) !== first) return;
      unused.delete(key);
      gone.abort();
    }, UNUSED_MS);
  };
  return {
    async ask(path, options) {
      const key = JSON.stringify([path, options.headers]);
      const first = unused.get(key);
      if (first === undefined) return send(path, options);
      unused.delete(key);
      options.signal.addEventListener('abort', () => first.gone.abort());
      const response = await first.response;
      return first.isUsable(response) ? response : send(path, options);
    },
    askFirst(route, isHidden) {
      if (route.view === 'list' && route.query === '' && !isHidden)
        askOnce(listAddress(route.filter, undefined, route.sort), JSON_HEADERS);
      if (route.view !== 'recording') return;
      const { id, at } = route;
      askOnce(recordingAddress(id), JSON_HEADERS);
      askOnce(castAddress(id, { watched: true }), rangeHeaders(0, HEAD_BYTES), isFinished);
      if (at !== undefined) askOnce(bytesAt(id, 'playback?view=1'), JSON_HEADERS);
    },
  };
}

/**
 * True if the response contains the cast of a finished session: only such a response has an ETag. The cast of a running
 * session may grow before a view uses the response.
 */
function isFinished({ headers }: Response): boolean {
  return headers.has('etag');
}
