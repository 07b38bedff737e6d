import type { Duplex } from 'node:stream';
import type { Neighbours } from '../wire/recorder-api/upload-headers.ts';

/** Opens a byte stream to a recorder's `ip:port`, directly or through the tailnet node. */
export type DialRecorder = (address: string, signal: AbortSignal) => Promise<Duplex>;

/** What happens to a connection after it was opened. */
export interface ConnectionEvents {
  /**
   * The recorder has the session's first `bytes` bytes, those of earlier connections included (v1: they have left this
   * machine).
   * @param lineBytes of frames: so many bytes of lines are they
   */
  acknowledged(bytes: number, lineBytes?: number): void;
  /** The recorder confirmed the whole upload, after `finish`. Nothing follows. */
  finished(): void;
  /** The connection cannot be used any more. Nothing follows. */
  lost(error: Error): void;
}

/** One upload to one recorder, over one connection. */
export interface RecorderConnection {
  readonly address: string;
  readonly protocol: 'v2' | 'v1';
  /** The recorder keeps our annotation lines out of the cast and in the sidecar. */
  readonly annotations: boolean;
  /** The recorder continues a session at an offset named by our headers. */
  readonly resumable: boolean;
  /** What is sent is frames; otherwise it is lines. */
  readonly frames: boolean;
  /** Names who is told; called once, at once after opening. A loss before that is told then. */
  attach(events: ConnectionEvents): void;
  send(bytes: Uint8Array): void;
  /** Bytes given to `send` that have not left this process: they must not change. */
  readonly unwritten: number;
  /** No more bytes follow. */
  finish(): void;
  /** Breaks the connection off; the recorder sees a reset. No event follows. */
  destroy(): void;
}

/** What an upload says about itself in the POST. */
export interface UploadIntent {
  readonly sessionId: string;
  /** How many bytes of the session's lines were acknowledged before this connection. */
  readonly offset: number;
  /** How many bytes of frames that was. */
  readonly frames: number;
  /** Counts the uploads of this session, from 1. */
  readonly part: number;
  /** What a recorder that does not have the session must know of its beginning: whole lines, none for the first upload. */
  readonly preamble: Uint8Array;
  readonly neighbours?: Neighbours;
}

/** The same before it is known which recorder takes the upload. */
export interface SessionIntent extends Omit<UploadIntent, 'neighbours'> {
  /** All that the session may be at, in order of preference. */
  readonly recorders: readonly string[];
  /** The one that had it. */
  readonly before?: string;
}

/** Keeps the last state of a connection until somebody listens; each connection ends once. */
export function createOutcome(): {
  readonly ended: boolean;
  attach(events: ConnectionEvents): void;
  acknowledged(bytes: number, lineBytes?: number): void;
  finished(): void;
  lost(error: Error): void;
  silence(): void;
} {
  let events: ConnectionEvents | undefined;
  let early: Error | undefined;
  let ended = false;
  return {
    get ended() {
      return ended;
    },
    attach(listener) {
      events = listener;
      if (early !== undefined) listener.lost(early);
    },
    acknowledged(bytes, lineBytes) {
      if (!ended) events?.acknowledged(bytes, lineBytes);
    },
    finished() {
      if (ended) return;
      ended = true;
      events?.finished();
    },
    lost(error) {
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
