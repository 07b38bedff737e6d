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
  /** The chunk was handed to the other side. */
  delivered(): void;
  /** For how long the chunk that was pushed last may be kept back; see `RelayTap`. Of the client's side only. */
  readonly patienceMs?: number;
}

export interface SessionTaps {
  readonly clientToServer: Tap;
  readonly serverToClient: Tap;
  /**
   * The server has to say how the process ended, also when it ended well: that is how the protocol is, and the client has
   * not taken its leave before.
   */
  readonly owesStatus: boolean;
  /**
   * Bytes that end the session with a message, to be put behind what was delivered to the client; `undefined` where
   * that is impossible, because a frame is partly delivered or the protocol is past it.
   */
  farewell(message: string, httpStatus: number): Uint8Array | undefined;
}

/**
 * For how long a chunk with nothing but heartbeats of the client may wait: not long where a key that somebody presses
 * would wait behind it, and otherwise for less than clients wait for the answer (client-go 61 s over WebSocket, over SPDY
 * for ever).
 */
export const HEARTBEAT_PATIENCE_MS = { interactive: 250, spdy: 60_000, websocket: 20_000 } as const;

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
