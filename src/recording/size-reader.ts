import { createResizeParser, MAX_RESIZE_BYTES } from '../wire/remotecommand/resize.ts';
import type { TappedSession } from './tap.ts';

/**
 * Reads terminal sizes into a session. A client that sends sizes nobody can read keeps its session and its recording;
 * only the sizes from there on are missing, as they are for the API server.
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
