import type { Duplex } from 'node:stream';
import type { SessionOrder } from '../wire/recorder-api/session-order.ts';
import type { Neighbours } from '../wire/recorder-api/upload-headers.ts';

/** Opens a byte stream to the address (`ip:port`) of a recorder, directly or through the tailnet node. */
export type DialRecorder = (address: string, signal: AbortSignal) => Promise<Duplex>;

/** Callbacks of an open connection. */
export interface ConnectionEvents {
  /**
   * Called when the recorder has stored the first `bytes` bytes of the session, including those of earlier
   * connections. For v1 recorders, which send no acknowledgements, called when the bytes have left this
   * machine.
   * @param lineBytes number of bytes of asciicast lines that correspond to these frames
   */
  acknowledged(bytes: number, lineBytes?: number): void;
  /**
   * Called with an order of the recorder, for example to end the session. A recorder sends orders only if {@link
   * UploadIntent.orders} is true.
   */
  ordered?(order: SessionOrder): void;
  /** Called after `finish` when the recorder has confirmed the complete upload. No other call follows. */
  finished(): void;
  /** Called when the connection is unusable. No other call follows. */
  lost(error: Error): void;
}

/** Upload to one recorder over one connection. */
export interface RecorderConnection {
  readonly address: string;
  readonly protocol: 'v2' | 'v1';
  /** True if the recorder stores annotation lines in the sidecar instead of the cast. */
  readonly annotations: boolean;
  /** True if the recorder can continue a session at an offset. */
  readonly resumable: boolean;
  /** True if the upload consists of frames, false if it consists of asciicast lines. */
  readonly frames: boolean;
  /**
   * Sets the callbacks. Must be called once, directly after opening. If the connection is
   * already lost, calls `lost` immediately.
   */
  attach(events: ConnectionEvents): void;
  send(bytes: Uint8Array): void;
  /**
   * Number of bytes passed to `send` that have not left this process. The caller must not change the memory of these
   * bytes.
   */
  readonly unwritten: number;
  /** Ends the upload. The caller must not call `send` afterwards. */
  finish(): void;
  /** Resets the connection. No callback follows. */
  destroy(): void;
}

/** Data for the headers of an upload. */
export interface UploadIntent {
  readonly sessionId: string;
  /** Number of bytes of asciicast lines that were acknowledged before this connection. */
  readonly offset: number;
  /** Number of bytes of frames that were acknowledged before this connection. */
  readonly frames: number;
  /** Number of this upload in the session, from 1. */
  readonly part: number;
  /**
   * Complete lines of the preamble, for a recorder that does not have the beginning of the session. Empty for
   * the first upload.
   */
  readonly preamble: Uint8Array;
  readonly neighbours?: Neighbours;
  /** True to announce that the gateway executes orders of the recorder, for example to end the session. */
  readonly orders?: boolean;
}

/** An upload for which no recorder is chosen yet. */
export interface SessionIntent extends Omit<UploadIntent, 'neighbours'> {
  /** Addresses of all recorders of the session, in order of preference. */
  readonly recorders: readonly string[];
  /** Address of the previous recorder of the session. */
  readonly before?: string;
}

/**
 * Forwards the events of a connection to its callbacks. Delays the report of a lost connection until the callbacks are
 * set. Forwards only the first of the events `finished` and `lost`.
 */
export function createOutcome() {
  let events: ConnectionEvents | undefined;
  let early: Error | undefined;
  let ended = false;
  return {
    get ended() {
      return ended;
    },
    attach(listener: ConnectionEvents) {
      events = listener;
      if (early !== undefined) listener.lost(early);
    },
    acknowledged(bytes: number, lineBytes?: number) {
      if (!ended) events?.acknowledged(bytes, lineBytes);
    },
    ordered(order: SessionOrder) {
      if (!ended) events?.ordered?.(order);
    },
    finished() {
      if (ended) return;
      ended = true;
      events?.finished();
    },
    lost(error: Error) {
      if (ended) return;
      ended = true;
      if (events === undefined) early = error;
      else events.lost(error);
    },
    silence() {
      ended = true;
    },
  };
}
