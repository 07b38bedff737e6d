/** Taps parse the bytes of a session before the relay delivers them, and create the farewell at its end. */
import { errorText, TailcastError } from '../errors.ts';
import { WireError } from '../wire/wire-error.ts';
import type { RecordingSession } from './session.ts';

/** Tap for one direction of a connection. Taps never change bytes. */
export interface Tap {
  /**
   * Reads a chunk before its delivery. If it returns a promise, the relay delivers the chunk after the promise
   * resolves.
   * @param more true if another chunk follows immediately; both are then recorded and delivered together
   * @throws TailcastError `SESSION_VIOLATED` or `RECORDER_LOST`, also as a rejection: the chunk must not be delivered
   */
  push(chunk: Uint8Array, more?: boolean): void | Promise<void>;
  /**
   * True if more chunks may be pushed before the last promise resolves. A promise covers all chunks pushed before it.
   */
  readonly gathers?: boolean;
  /** Server side: returns the place after the last pushed chunk. */
  place?(): TapPlace;
  /**
   * Reports that all pushed bytes except the last `unsent` were delivered.
   * @param until place up to which they were delivered, if more chunks were pushed since
   */
  delivered(unsent?: number, until?: TapPlace): void;
  /** Server side: number of trailing bytes that must not be delivered before more bytes arrive. */
  readonly unsentBytes?: number;
  /** Server side: number of trailing bytes that contain the exit status. They are delivered after the end is proved. */
  readonly conclusionBytes?: number;
  /** True if the delivered bytes end at a frame boundary and frames may follow. */
  readonly standsBetweenFrames?: boolean;
  /** Client side: true if the last chunk consists of complete frames and none of them is urgent. */
  readonly mayWait?: boolean;
  /**
   * Client side: number of trailing bytes that may start a heartbeat or a resize message. `mayWait` is about the bytes
   * before them.
   */
  readonly begunBytes?: number;
  /** Client side: responses of the server to the last chunk, if the chunk consists of heartbeats only. */
  readonly answers?: readonly Uint8Array[];
  /** Client side: number of the last answered ping of `probes`. Infinity if no further ping will be answered. */
  readonly answeredProbe?: number;
  /** Client side: true if the last chunk consists of responses to `probes` only. */
  readonly onlyProbes?: boolean;
}

/** State of a server-side tap at one position of the stream, kept until the bytes up to the position are delivered. */
export interface TapPlace {
  /** True at a frame boundary. */
  readonly atBoundary: boolean;
  /** Value of {@link Tap.unsentBytes} at the position. */
  readonly unsentBytes: number;
  readonly conclusionBytes: number;
  /** True if the server had started to send the exit status. */
  readonly statusBegun: boolean;
  /** True if the server had announced the end of the connection. */
  readonly closing: boolean;
  /** WebSocket: true if the last complete frame does not end its message. */
  readonly inMessage?: boolean;
  /** SPDY: streams that the server had ended. */
  readonly finished?: readonly number[];
}

/**
 * Pings that the gateway inserts between frames of the server. A response means that the client read everything before
 * the ping.
 */
export interface ClientProbes {
  /** Returns the next ping and its number, which starts at 1. Undefined while too many pings are unanswered. */
  next(): { readonly ordinal: number; readonly frame: Uint8Array } | undefined;
}

/** Taps for both directions of a session. */
export interface SessionTaps {
  readonly clientToServer: Tap;
  readonly serverToClient: Tap;
  readonly probes?: ClientProbes;
  /**
   * Returns the reason why the output and the exit status are not proved complete after the server closed its
   * connection. Undefined: they are complete, the client closed first, or the protocol has no proof.
   * @param pressed true if the gateway had stopped reading from the server
   */
  unproved(pressed: boolean): string | undefined;
  /** True if the client said that it closes, before its connection closed. */
  clientLeft?(): boolean;
  /**
   * Returns bytes that end the session with a message, to be sent after the delivered bytes. Undefined if a frame is
   * partly delivered, or if the session ended already.
   */
  farewell(message: string, httpStatus: number): Uint8Array | undefined;
}

/** Reasons why an end is not proved, as messages for the user and the recording. */
export const UNPROVED = {
  status: 'the API server closed the connection before it said how the command ended',
  output: 'the API server closed the connection before the output had ended',
  pressed: 'the API server had to wait for its client until it closed, and may have thrown output away',
} as const;

/** First version of the stream protocol in which the server always sends an exit status. */
export const STATUS_SINCE = 4;

/** Methods of a recording session that taps use. */
export type TappedSession = Pick<RecordingSession, 'output' | 'input' | 'resize' | 'exit' | 'flush'> &
  Partial<Pick<RecordingSession, 'acceptsMore'>> & {
    /** True if `output` is ignored, so that taps need not call it. */
    readonly unheard?: boolean;
  };

/** Returns the error for bytes that cannot be recorded. */
export function violation(detail: string): TailcastError {
  return new TailcastError('SESSION_VIOLATED', detail);
}

/** Flushes the output before a violation, because its bytes are not valid later. */
export function handOver(session: Pick<TappedSession, 'flush'>): void {
  try {
    void Promise.resolve(session.flush()).catch(() => {});
  } catch {
    // The code that ends the session reports a lost recorder.
  }
}

/** Translates a codec error into `SESSION_VIOLATED`; other errors stay as they are. */
export function asViolation(error: unknown): unknown {
  return error instanceof WireError
    ? new TailcastError('SESSION_VIOLATED', errorText(error), { cause: error })
    : error;
}
