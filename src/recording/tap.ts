/**
 * Adapter of one session protocol. A tap parses the bytes of a session before the relay delivers them. It provides
 * everything that the relay needs to know about the protocol: heartbeats, terminal sizes, the proof of a complete
 * end, and the message that ends a session. A tap never changes bytes.
 */
import { errorText, TailcastError } from '../errors.ts';
import { WireError } from '../wire/wire-error.ts';
import type { RecordingSession } from './session.ts';

export interface Tap {
  /**
   * Parses output of the server.
   * @param more true if another chunk follows immediately; both are then recorded and delivered together
   * @returns a promise if the client must not see the output before it resolves; it covers all earlier output
   * @throws TailcastError `SESSION_VIOLATED` or `RECORDER_LOST`, also as a rejection: the chunk must not be delivered
   */
  output(chunk: Uint8Array, more?: boolean): void | Promise<void>;
  /** Returns the state after the output that was parsed so far. */
  mark(): OutputMark;
  /**
   * Parses input of the client.
   * @param kept bytes before the chunk that an earlier result kept
   * @throws TailcastError `SESSION_VIOLATED` or `RECORDER_LOST`: the input must not be delivered
   */
  input(chunk: Uint8Array, kept: Uint8Array): ClientInput;
  /** Returns a ping for the client, see `client-heartbeats.ts`. Undefined while too many pings have no response. */
  nextProbe?(): Probe | undefined;
  /**
   * Returns the reason why the output and the exit status are not proved complete after the server closed its
   * connection. Undefined if both are complete, the client closed first, or the protocol has no proof.
   * @param backpressured true if the gateway had stopped reading from the server
   */
  incompleteReason(backpressured: boolean): string | undefined;
  /** True if the client announced the close before its connection closed. */
  hasClientLeft(): boolean;
  /**
   * Returns bytes that end the session with a message, to be sent after the delivered output. Undefined if a frame is
   * partly delivered, or if the session ended already.
   */
  farewell(message: string, httpStatus: number): Uint8Array | undefined;
}

/** State of the output at one position of the stream, used when the bytes before the position are delivered. */
export interface OutputMark {
  /** Number of last bytes that must not be delivered yet: an incomplete frame, an unproved exit status. */
  readonly heldBytes: number;
  /** The same if the gateway had stopped reading from the server, which makes more exit statuses unproved. */
  readonly heldBytesBackpressured: number;
  /**
   * Reports that all bytes before the position except the last `heldBytes` are delivered.
   * @returns true if frames of the gateway may follow them
   */
  delivered(heldBytes: number): boolean;
}

/** Parsed input of the client. */
export interface ClientInput {
  /**
   * - `urgent`: must be forwarded immediately.
   * - `delayable`: terminal sizes and other frames that may be forwarded later.
   * - `heartbeat`: may be forwarded later, or answered with `responses`.
   * - `none`: nothing to forward now: responses to pings of the gateway, or the start of a heartbeat or resize message.
   */
  readonly kind: 'urgent' | 'delayable' | 'heartbeat' | 'none';
  /** Bytes to forward, including kept bytes. */
  readonly bytes: Uint8Array;
  /** Bytes for the next call: the start of a heartbeat or resize message, and delayable frames before it. */
  readonly kept: Uint8Array;
  /** Responses of the server to heartbeats. */
  readonly responses: readonly Uint8Array[];
  /** True if `bytes` end at a frame boundary. */
  readonly atBoundary: boolean;
  /** Number of the last ping that the client answered. Infinity if the client will answer no more pings. */
  readonly answeredProbe: number;
  /** Promise of the recorder; `bytes` must not be forwarded before it resolves. */
  readonly recorded?: Promise<void> | undefined;
}

/** A ping of the gateway between frames of the server, with its number. The first number is 1. */
export interface Probe {
  readonly ordinal: number;
  readonly frame: Uint8Array;
}

export const NO_BYTES = new Uint8Array(0);

/** Returns input that is forwarded unchanged. */
export function urgentInput(chunk: Uint8Array, kept: Uint8Array): ClientInput {
  const bytes = joined(kept, chunk);
  return { kind: 'urgent', bytes, kept: NO_BYTES, responses: [], atBoundary: false, answeredProbe: 0 };
}

/** Returns the chunk with the kept bytes before it. */
export function joined(kept: Uint8Array, chunk: Uint8Array): Uint8Array {
  return kept.length === 0 ? chunk : Buffer.concat([kept, chunk]);
}

/** State of a protocol without frames that the gateway could add. */
export const NO_MARK: OutputMark = { heldBytes: 0, heldBytesBackpressured: 0, delivered: () => false };

/** Reasons for `incompleteReason`, as messages for the user and the recording. */
export const INCOMPLETE = {
  status: 'the API server closed the connection before it said how the command ended',
  output: 'the API server closed the connection before the output had ended',
  backpressured: 'the API server had to wait for its client until it closed, and may have thrown output away',
} as const;

/** First version of the stream protocol in which the server always sends an exit status. */
export const STATUS_SINCE = 4;

/** Methods of a recording session that taps use. */
export type TappedSession = Pick<RecordingSession, 'output' | 'input' | 'resize' | 'exit' | 'flush'> & {
  /** True if `output` is ignored, so that taps need not call it. */
  readonly ignoresOutput?: boolean;
};

/** Returns the error for bytes that cannot be recorded. */
export function violation(detail: string): TailcastError {
  return new TailcastError('SESSION_VIOLATED', detail);
}

/** Translates a codec error into `SESSION_VIOLATED`; other errors are not changed. */
export function asViolation(error: unknown): unknown {
  return error instanceof WireError
    ? new TailcastError('SESSION_VIOLATED', errorText(error), { cause: error })
    : error;
}
