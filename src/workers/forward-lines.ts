/**
 * Passes what workers print on to the primary's own output, whole lines at a time: several processes that write to one
 * pipe would cut each other's lines.
 */
import type { Readable, Writable } from 'node:stream';

/** A line that is longer than this is passed on in pieces. */
const MAX_LINE_BYTES = 256 * 1024;
const LINE_FEED = 0x0a;

export interface LineForwarder {
  /** Passes on everything from `source` until its end. */
  take(source: Readable): void;
}

/** One per output. While the output is full, nothing is read from any source. */
export function createLineForwarder(sink: Pick<Writable, 'write' | 'once'>): LineForwarder {
  const sources = new Set<Readable>();
  let full = false;

  const write = (bytes: Uint8Array): void => {
    if (bytes.length === 0 || sink.write(bytes) || full) return;
    full = true;
    for (const source of sources) source.pause();
    sink.once('drain', () => {
      full = false;
      for (const source of sources) source.resume();
    });
  };

  return {
    take(source) {
      let begun: Uint8Array = new Uint8Array(0);
      sources.add(source);
      source.on('data', (chunk: Uint8Array) => {
        const bytes = begun.length === 0 ? chunk : Buffer.concat([begun, chunk]);
        const end = bytes.length > MAX_LINE_BYTES ? bytes.length : bytes.lastIndexOf(LINE_FEED) + 1;
        begun = bytes.subarray(end);
        write(bytes.subarray(0, end));
      });
      source.once('close', () => {
        sources.delete(source);
        if (begun.length > 0) write(Buffer.concat([begun, Uint8Array.of(LINE_FEED)]));
      });
      source.on('error', () => source.destroy());
      if (full) source.pause();
    },
  };
}
