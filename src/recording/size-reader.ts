import { createResizeParser, MAX_RESIZE_BYTES } from '../wire/remotecommand/resize.ts';
import type { TappedSession } from './tap.ts';

/**
 * Returns a function that reads terminal sizes into a session. After an unreadable size the session and its recording
 * continue without further sizes, as they do at the API server.
 */
export function createSizeReader(session: Pick<TappedSession, 'resize'>): (bytes: Uint8Array) => void {
  const parser = createResizeParser(MAX_RESIZE_BYTES, (size) => session.resize(size));
  let readable = true;
  return (bytes) => {
    if (!readable) return;
    try {
      parser.push(bytes);
    } catch {
      readable = false;
    }
  };
}
