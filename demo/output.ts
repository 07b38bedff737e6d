import type { Readable, Writable } from 'node:stream';

/**
 * One output of a process, delivered to every subscriber. It is read at the speed of the slowest subscriber, and paused
 * without subscribers, so that buffers stay bounded and no data is lost.
 */
export interface Output {
  /** Delivers later chunks to `sink`, and never ends it. Returns a function that unsubscribes. */
  subscribe(sink: Writable): () => void;
  /** Resolves after the last chunk was delivered, or after a failure. */
  readonly done: Promise<void>;
  /** Delivered bytes. */
  readonly deliveredBytes: number;
  /** True if a slow subscriber pauses the source. */
  readonly held: boolean;
}

/** Distributes `source`, which must have no other reader. */
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
