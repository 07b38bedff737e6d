/**
 * Adapter of one session protocol. A tap parses the bytes of a session before the relay delivers them. It provides
 * everything that depends on the protocol: heartbeats, terminal sizes, the proof of a complete end, and the message
 * that ends a session. A tap never changes bytes.
 */
import { errorText, TailcastError } from '../errors.ts';
import { WireError } from '../wire/wire-error.ts';
import type { RecordingSession } from './session.ts';

export interface Tap {
  /**
   * Parses output of the server.
   * @param more true if another chunk follows immediately. Both chunks are then recorded and delivered together
   * @returns a promise if the client must not see the output yet. When it resolves, the client may see this
   * and all earlier output
   * @throws TailcastError `SESSION_VIOLATED` or `RECORDER_LOST`, also as a rejection. The chunk must then not
   * be delivered
   */
  output(chunk: Uint8Array, more?: boolean): void | Promise<void>;
  /** Returns the state after all output that was parsed so far. */
  mark(): OutputMark;
  /**
   * Parses input of the client.
   * @param kept bytes before the chunk, from `kept` of the previous result
   * @throws TailcastError `SESSION_VIOLATED` or `RECORDER_LOST`. The input must then not be delivered
   */
  input(chunk: Uint8Array, kept: Uint8Array): ClientInput;
  /**
   * Returns a ping for the client, see `client-heartbeats.ts`. Returns undefined while too many pings are
   * unanswered.
   */
  nextProbe?(): Probe | undefined;
  /**
   * Returns the reason why output and exit status are not proved complete after the server has closed its connection.
   * Returns undefined if both are proved, if the client closed first, or if the protocol has no way to prove the end.
   * @param backpressured true if the gateway had stopped reading from the server
   */
  incompleteReason(backpressured: boolean): string | undefined;
  /** Returns true if the client has sent a closing frame. */
  hasClientLeft(): boolean;
  /**
   * Returns bytes that end the session with a message. They must follow the delivered output. Returns
   * undefined if a frame is partly delivered or the session has already ended.
   */
  farewell(message: string, httpStatus: number): Uint8Array | undefined;
}

/**
 * State of the output at one position of the stream. The relay uses this state after it has delivered the bytes before
 * the position.
 */
export interface OutputMark {
  /**
   * Number of bytes before the position that must not be delivered yet. They are an incomplete frame or an exit status
   * that is not proved.
   */
  readonly heldBytes: number;
  /**
   * Value to use instead of `heldBytes` if the gateway had stopped reading from the server. The proof of an exit status
   * is stricter in this case.
   */
  readonly heldBytesBackpressured: number;
  /**
   * Called when all bytes before the position are delivered, except the last `heldBytes`.
   * @returns true if frames of the gateway may follow the delivered bytes
   */
  delivered(heldBytes: number): boolean;
}

/** Parsed input of the client. */
export interface ClientInput {
  /**
   * - `urgent`: must be forwarded immediately.
   * - `delayable`: terminal sizes and other frames that may be forwarded later.
   * - `heartbeat`: only heartbeats, which may be forwarded later or answered with `responses`.
   * - `none`: no bytes to forward now. The input consists of responses to pings of the gateway, or of the
   *   start of a heartbeat or resize message.
   */
  readonly kind: 'urgent' | 'delayable' | 'heartbeat' | 'none';
  /** Bytes to forward, including the kept bytes of the previous call. */
  readonly bytes: Uint8Array;
  /**
   * Bytes to pass to the next call: the start of a heartbeat or resize message, and the delayable frames before that
   * start.
   */
  readonly kept: Uint8Array;
  /** Responses that the server would send to the heartbeats. */
  readonly responses: readonly Uint8Array[];
  /** True if `bytes` end at a frame boundary. */
  readonly atBoundary: boolean;
  /** Number of the last ping that the client answered. Infinity if the client will answer no more pings. */
  readonly answeredProbe: number;
  /**
   * Resolves when the recording permits the delivery, or when a client that exceeded its rate has waited long enough.
   * `bytes` must not be forwarded before this promise has resolved.
   */
  readonly recorded?: Promise<void> | undefined;
}

/** A ping of the gateway and its number, from 1. The relay inserts it between frames of the server. */
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

/** Constant {@link OutputMark} for a protocol into which the gateway cannot insert frames. */
export const NO_MARK: OutputMark = { heldBytes: 0, heldBytesBackpressured: 0, delivered: () => false };

/** Reasons that `incompleteReason` returns. The gateway shows these texts to the user and records them. */
export const INCOMPLETE = {
  status: 'the API server closed the connection before it said how the command ended',
  output: 'the API server closed the connection before the output had ended',
  backpressured: 'the API server had to wait for its client until it closed, and may have thrown output away',
} as const;

/** First channel-protocol version in which the server always sends an exit status. */
export const STATUS_SINCE = 4;

/** Methods of `RecordingSession` that taps use. */
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
