/**
 * First requests of a view. The requests are sent as soon as the script of the page starts, so that the recorder
 * responds while the browser loads and renders the view.
 */
import { listRecordings, readRecording } from './archive.ts';
import { openCast } from './cast-source.ts';
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
  /**
   * Sends a request. If an equal first request was sent, returns its response instead; each such response is used once.
   */
  readonly ask: Ask;
}

/** @param send sends a request */
export function createFirstRequests(send: Ask): FirstRequests {
  const unused = new Map<string, { readonly response: Promise<Response>; readonly gone: AbortController }>();
  const keyOf = (...[path, { headers }]: Parameters<Ask>): string => JSON.stringify([path, headers]);
  const { signal } = new AbortController();
  /** Requests the cast of a completed session. Another recording may grow until the view needs the cast. */
  const askCast = async (id: string, description: Response): Promise<Response> => {
    // the view reports the error
    const found = await readRecording(async () => description.clone(), id, signal).catch(() => undefined);
    if (found?.state === 'completed') void openCast(sendFirst, id, signal);
    return description;
  };
  const sendFirst = (
    path: string,
    options: Parameters<Ask>[1],
    prepare?: (response: Response) => Promise<Response>,
  ): Promise<never> => {
    const key = keyOf(path, options);
    const gone = new AbortController();
    const response = send(path, { ...options, signal: gone.signal }).then(prepare);
    // the view reports the error
    response.catch(() => undefined);
    const first = { response, gone };
    unused.set(key, first);
    // discard an unused response, because a later view needs a current response
    setTimeout(() => {
      if (unused.get(key) !== first) return;
      unused.delete(key);
      gone.abort();
    }, UNUSED_MS);
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
    askFirst(route, isHidden) {
      if (route.view === 'list' && route.query === '' && !isHidden) {
        const { filter, sort } = route;
        void listRecordings(sendFirst, filter, undefined, signal, sort === 'newest' ? undefined : sort);
      }
      if (route.view !== 'recording') return;
      const { id } = route;
      void readRecording((...request) => sendFirst(...request, (found) => askCast(id, found)), id, signal);
    },
  };
}
