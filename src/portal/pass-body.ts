import type { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { errorText } from '../errors.ts';
import { createDeadline } from '../async/deadline.ts';

/**
 * Relays a body at the speed of the client. Aborts a body that makes no progress.
 * @throws Error if the body is incomplete; `sink` is destroyed
 */
export async function passBody(
  source: Readable,
  sink: Writable,
  options: {
    readonly stallMs: number;
    /**
     * True if the source may be silent for any length of time. The client must still read each piece within the
     * timeout.
     */
    readonly follows: boolean;
    readonly signal: AbortSignal;
    readonly sent: (bytes: number) => void;
  },
): Promise<void> {
  const { stallMs, follows, sent } = options;
  const stalled = new AbortController();
  const stall = createDeadline(stallMs, () => stalled.abort(new Error(`nothing moved for ${stallMs} ms`)));
  let isClientsTurn = false;
  const patience = follows
    ? setInterval(() => {
        if (!isClientsTurn) stall.extend();
      }, stallMs / 4)
    : undefined;
  try {
    await pipeline(
      source,
      async function* watched(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
        for await (const chunk of chunks) {
          stall.extend();
          sent(chunk.length);
          isClientsTurn = true;
          yield chunk;
          isClientsTurn = false;
          stall.extend();
        }
      },
      sink,
      { signal: AbortSignal.any([options.signal, stalled.signal]) },
    );
  } catch (error) {
    throw new Error(stalled.signal.aborted ? errorText(stalled.signal.reason) : errorText(error), {
      cause: error,
    });
  } finally {
    clearInterval(patience);
    stall.clear();
  }
}
