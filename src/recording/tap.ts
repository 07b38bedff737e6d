/** What a relay does with each chunk before it is delivered, and what a tap can do at the end. */
import { errorText, TailcastError } from '../errors.ts';
import { WireError } from '../wire/wire-error.ts';
import type { RecordingSession } from './session.ts';

/** One direction of a connection. Taps look at bytes and never change them. */
export interface Tap {
  /**
   * Looks at a chunk that is about to be delivered. A promise: deliver only after it resolved.
   * @throws TailcastError `SESSION_VIOLATED` or `RECORDER_LOST`, also as a rejection: the chunk must not be delivered
   */
  push(chunk: Uint8Array): void | Promise<void>;
  /** What was pushed was handed to the other side, but for its last `unsent` bytes. */
  delivered(unsent?: number): void;
  /** See `RelayTap`; of the server's side only. */
  readonly unsentBytes?: number;
  readonly conclusionBytes?: number;
  readonly standsBetweenFrames?: boolean;
  /** See `RelayTap`; of the client's side only. */
  readonly mayWait?: boolean;
  readonly heartbeatBytes?: number;
  readonly answers?: readonly Uint8Array[];
}

export interface SessionTaps {
  readonly clientToServer: Tap;
  readonly serverToClient: Tap;
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
export type TappedSession = Pick<RecordingSession, 'output' | 'input' | 'resize' | 'exit' | 'flush'>;

export function violation(detail: string): TailcastError {
  return new TailcastError('SESSION_VIOLATED', detail);
}

/** Codecs speak of bytes; a session speaks of what that means for it. */
export function asViolation(error: unknown): unknown {
  return error instanceof WireError
    ? new TailcastError('SESSION_VIOLATED', errorText(error), { cause: error })
    : error;
}
