/** What a relay does with each chunk before it is delivered, and what a tap can do at the end. */
import { errorText, TailcastError } from '../errors.ts';
import { WireError } from '../wire/wire-error.ts';
import type { RecordingSession } from './session.ts';

/** One direction of a connection. Taps look at bytes and never change them. */
export interface Tap {
  /**
   * Looks at a chunk that is about to be delivered. A promise: deliver only after it resolved.
   * @param more another chunk is pushed at once: what this one shows is recorded with it, and both are delivered after that
   * @throws TailcastError `SESSION_VIOLATED` or `RECORDER_LOST`, also as a rejection: the chunk must not be delivered
   */
  push(chunk: Uint8Array, more?: boolean): void | Promise<void>;
  /** More may be pushed before the last promise has resolved. Each promise is for all that was pushed before it, too. */
  readonly gathers?: boolean;
  /** Of the server's side: where what was pushed until now ends. */
  place?(): TapPlace;
  /**
   * What was pushed has been handed to the other end, but for the last `unsent` bytes.
   * @param until of what was pushed until then: more has been since
   */
  delivered(unsent?: number, until?: TapPlace): void;
  /** Of the server's side: so many of the bytes that were pushed last must not be delivered before more has come. */
  readonly unsentBytes?: number;
  /** So many of them say how all of it ended, which is not to be told while that is in doubt. */
  readonly conclusionBytes?: number;
  /** What was delivered ends where a frame ends, and others may follow. */
  readonly standsBetweenFrames?: boolean;
  /** Of the client's side, as all that follow: nothing in the chunk that was pushed last has to reach the other end now; it is made of whole frames. */
  readonly mayWait?: boolean;
  /** So many bytes at its end begin what may be a heartbeat or a size, and `mayWait` is said of the others: more has to come first. */
  readonly begunBytes?: number;
  /** What the other end would say to the chunk that was pushed last, where that is all it would do. */
  readonly answers?: readonly Uint8Array[];
  /** Number of the last of `probes` that was answered. Infinity: no more will be. */
  readonly answeredProbe?: number;
  /** The chunk that was pushed last is answers to `probes`, and nothing else. */
  readonly onlyProbes?: boolean;
}

/** What a tap has to remember of a place in what it was pushed, until that is delivered up to there. */
export interface TapPlace {
  /** It is where a frame ends. */
  readonly atBoundary: boolean;
  /** What these were then. */
  readonly unsentBytes: number;
  readonly conclusionBytes: number;
  /** The server had begun to say how the process ended. */
  readonly statusBegun: boolean;
  /** The server had said that it closes. */
  readonly closing: boolean;
  /** Over WebSocket: the last whole frame does not end its message. */
  readonly inMessage?: boolean;
  /** Over SPDY: streams the server had ended. */
  readonly finished?: readonly number[];
}

/** Pings that the gateway puts between the frames of the server: an answer means that the client has read what was before. */
export interface ClientProbes {
  /** The next one, and its number, from 1 on; undefined while too many have no answer. */
  next(): { readonly ordinal: number; readonly frame: Uint8Array } | undefined;
}

export interface SessionTaps {
  readonly clientToServer: Tap;
  readonly serverToClient: Tap;
  readonly probes?: ClientProbes;
  /**
   * Why it is not proved that all the process wrote has come, and how it ended, now that the server has closed its
   * connection. `undefined`: it is proved, or the client has taken its leave before, or the protocol proves nothing.
   * @param pressed the server had to wait for the gateway until it closed
   */
  unproved(pressed: boolean): string | undefined;
  /**
   * Bytes that end the session with a message, to be put behind what was delivered to the client; `undefined` where
   * that is impossible, because a frame is partly delivered or the protocol is past it.
   */
  farewell(message: string, httpStatus: number): Uint8Array | undefined;
}

/** What ends without proof, in words for the user and the recording. */
export const UNPROVED = {
  status: 'the API server closed the connection before it said how the command ended',
  output: 'the API server closed the connection before the output had ended',
  pressed: 'the API server had to wait for its client until it closed, and may have thrown output away',
} as const;

/** The first version of the stream protocol in which the server always says how a process ended. */
export const STATUS_SINCE = 4;

/** The part of a recording session a tap needs. */
export type TappedSession = Pick<RecordingSession, 'output' | 'input' | 'resize' | 'exit' | 'flush'> &
  Partial<Pick<RecordingSession, 'gathers'>> & {
    /** Nobody listens to `output`: taps need not call it. */
    readonly unheard?: boolean;
  };

export function violation(detail: string): TailcastError {
  return new TailcastError('SESSION_VIOLATED', detail);
}

/** What was seen before a violation goes where it would have gone: nobody may look at its bytes later. */
export function handOver(session: Pick<TappedSession, 'flush'>): void {
  try {
    void Promise.resolve(session.flush()).catch(() => {});
  } catch {
    // a session that has lost its recorder says so to whoever ends it
  }
}

/** Codecs speak of bytes; a session speaks of what that means for it. */
export function asViolation(error: unknown): unknown {
  return error instanceof WireError
    ? new TailcastError('SESSION_VIOLATED', errorText(error), { cause: error })
    : error;
}
