import type { Readable, Writable } from 'node:stream';

/**
 * One output of a process, delivered to every subscriber. The source is read at the pace of the slowest subscriber and
 * not at all while there is none, so nothing is buffered without bound and nothing is lost.
 */
export interface Output {
  /** Delivers every later chunk to `sink`, which is never ended by this. Returns the way to stop. */
  subscribe(sink: Writable): () => void;
  /** Resolves when the source has ended and its last chunk was handed over, or when it broke. */
  readonly done: Promise<void>;
  /** Bytes handed over so far. */
  readonly deliveredBytes: number;
  /** Whether a slow subscriber is holding the source back. */
  readonly held: boolean;
}

/** Fans `source` out. It must not be read by anyone else. */
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
