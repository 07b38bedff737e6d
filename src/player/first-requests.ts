/**
 * First requests of a view. They are sent as soon as the script of the page starts, so that the recorder responds while
 * the browser loads and renders the view.
 */
import { listRecordings, readRecording } from './archive.ts';
import { openCast } from './cast-source.ts';
import type { Ask } from './recorder-context.ts';
import type { Route } from './route.ts';

/** Time after which an unused response is discarded, in milliseconds. */
const UNUSED_MS = 10_000;

export interface FirstRequests {
  /** Sends the first requests of a view. */
  readonly askFirst: (route: Route) => void;
  /** Sends a request. Uses each response to a first request once instead. */
  readonly ask: Ask;
}

/** @param send sends a request */
export function createFirstRequests(send: Ask): FirstRequests {
  const unused = new Map<string, { readonly response: Promise<Response>; readonly gone: AbortController }>();
  const keyOf = (...[path, { headers }]: Parameters<Ask>): string => JSON.stringify([path, headers]);
  const sendFirst: Ask = (path, options) => {
    const gone = new AbortController();
    const response = send(path, { ...options, signal: gone.signal });
    // the view reports the error
    response.catch(() => undefined);
    unused.set(keyOf(path, options), { response, gone });
    // only the view reads the response
    return new Promise(() => undefined);
  };
  return {
    ask(path, options) {
      const key = keyOf(path, options);
      const first = unused.get(key);
      if (first === undefined) return send(path, options);
      unused.delete(key);
      options.signal.addEventListener('abort', () => first.gone.abort());
      return first.response;
    },
    askFirst(route) {
      const { signal } = new AbortController();
      if (route.view === 'list' && route.query === '') {
        const { filter, sort } = route;
        void listRecordings(sendFirst, filter, undefined, signal, sort === 'newest' ? undefined : sort);
      }
      if (route.view !== 'recording') return;
      void readRecording(sendFirst, route.id, signal);
      void openCast(sendFirst, route.id, signal);
      // a later look-back into a running session needs its current bytes
      setTimeout(() => {
        for (const { gone } of unused.values()) gone.abort();
        unused.clear();
      }, UNUSED_MS);
    },
  };
}
