import type { Readable, Writable } from 'node:stream';

/**
 * One output of a process, which every subscriber gets. The slowest subscriber determines the speed of reading. Without
 * subscribers, reading pauses. Buffers therefore stay small, and no data is lost.
 */
export interface Output {
  /** Writes all further chunks to `sink`, but never ends `sink`. Returns a function that unsubscribes. */
  subscribe(sink: Writable): () => void;
  /** Resolves after the last chunk was written, or after an error. */
  readonly done: Promise<void>;
  /** Number of delivered bytes. */
  readonly deliveredBytes: number;
  /** True if a slow subscriber pauses the source. */
  readonly held: boolean;
}

/** Creates an output that reads `source`. Nothing else may read `source`. */
export function createOutput(source: Readable): Output {
  const sinks = new Set<Writable>();
  const full = new Set<Writable>();
  let deliveredBytes = 0;
  const settle = (): void => {
    if (sinks.size === 0 || full.size > 0) source.pause();
    else source.resume();
  };
  const drained = (sink: Writable): void => {
    full.delete(sink);
    settle();
  };
  source.pause();
  source.on('data', (chunk: Uint8Array) => {
    deliveredBytes += chunk.byteLength;
    for (const sink of sinks) {
      if (sink.destroyed || sink.writableEnded || sink.write(chunk) || full.has(sink)) continue;
      full.add(sink);
      sink.once('drain', () => {
        drained(sink);
      });
    }
    settle();
  });
  const done = new Promise<void>((resolve) => {
    for (const event of ['end', 'error', 'close']) {
      source.once(event, () => {
        resolve();
      });
    }
  });
  return {
    subscribe(sink) {
      const stop = (): void => {
        sinks.delete(sink);
        drained(sink);
      };
      sinks.add(sink);
      sink.once('close', stop);
      settle();
      return stop;
    },
    done,
    get deliveredBytes() {
      return deliveredBytes;
    },
    get held() {
      return full.size > 0;
    },
  };
}
