import type { Readable, Writable } from 'node:stream';
import type { StatusToSend } from '../src/wire/remotecommand/exit-status.ts';
import { createResizeParser, type TerminalSize } from '../src/wire/remotecommand/resize.ts';

/** Streams that an exec or attach request enables. */
export interface StreamOptions {
  readonly stdin: boolean;
  readonly stdout: boolean;
  readonly stderr: boolean;
  readonly tty: boolean;
}

/** The client of an exec or attach session, for all protocols. */
export interface RemoteStreams {
  /**
   * Input from the client. The stream ends when the client closes its input. With version 1 of the channel protocol,
   * clients cannot close their input. Over WebSocket, only version 5 lets clients close their input.
   */
  readonly stdin: Readable | undefined;
  readonly stdout: Writable | undefined;
  readonly stderr: Writable | undefined;
  /**
   * Calls `listener` for every new size. If a size is already known, calls `listener` immediately with the latest size.
   */
  onResize(listener: (size: TerminalSize) => void): void;
  /** Aborts when the client has disconnected. */
  readonly gone: AbortSignal;
  /** Sends the rest of the output, then `status`, and ends the session. */
  finish(status: StatusToSend): Promise<void>;
}

/** Parser for the terminal sizes in a resize stream. */
export interface Sizes {
  /** Parses bytes of the stream, in chunks of any size. Throws `WireError` for invalid bytes. */
  readonly push: (bytes: Uint8Array) => void;
  readonly onResize: RemoteStreams['onResize'];
}

/** Creates a parser that calls its listeners with each complete size. */
export function createSizes(): Sizes {
  const parser = createResizeParser();
  const listeners: ((size: TerminalSize) => void)[] = [];
  let latest: TerminalSize | undefined;
  return {
    push(bytes) {
      for (const size of parser.push(bytes)) {
        latest = size;
        for (const listener of listeners) listener(size);
      }
    },
    onResize(listener) {
      listeners.push(listener);
      if (latest !== undefined) listener(latest);
    },
  };
}

/** Returns a function that calls `push`. If `push` throws, the function calls `refuse`. */
export function guarded(push: (bytes: Uint8Array) => void, refuse: () => void): (bytes: Uint8Array) => void {
  return (bytes) => {
    try {
      push(bytes);
    } catch {
      refuse();
    }
  };
}

/** Ends a stream. Resolves after all data was written, or after an error. */
export function endOf(stream: Writable | undefined): Promise<void> {
  return new Promise((resolve) => {
    if (stream === undefined || stream.destroyed || stream.writableFinished) {
      resolve();
      return;
    }
    stream.once('close', resolve);
    stream.once('finish', resolve);
    if (!stream.writableEnded) stream.end();
  });
}
