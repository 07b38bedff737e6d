/**
 * Data types for the unacknowledged tail (the last bytes) of a recording. After the upload lost its recorder, the tail
 * is delivered to another recorder.
 */
import type { Preamble } from './preamble.ts';

/** Unacknowledged tail of a recording. */
export interface UploadRest {
  /** Copy of the bytes from `offset` to the end of the recording. */
  readonly bytes: Uint8Array;
  /** Offset of `bytes` in the recording. */
  readonly offset: number;
  /** Total size of the asciicast lines that precede `bytes` in the recording, in bytes. */
  readonly lineBytes: number;
  readonly preamble: Preamble;
  /** Number of uploads of the session so far. */
  readonly part: number;
  /** Number of bytes at the start of `bytes` that the journal contains. Default: all bytes, if there is a journal. */
  readonly journaled?: number;
  /** True if the lost recorder supports continued sessions. */
  readonly resumable: boolean;
  /** Address of the lost recorder, if known. */
  readonly recorder?: string;
}

/** The journal files of an undelivered tail. */
export interface EndJournal {
  /** True if another process delivers the tail. */
  readonly taken: boolean;
  /** Deletes the files after the tail was delivered or dropped. */
  remove(): void;
  /** Postpones the delivery until the queue has space. */
  wait(): void;
}

/**
 * Callbacks for the tail of one recording. First, `left` is called, and then exactly one of the other callbacks.
 * Exception: if only the first bytes of a tail are on disk, `dropped` reports the loss of the other bytes. The bytes on
 * disk then become a new tail: `left` is called again, and then one of the other callbacks.
 */
export interface LateEvents {
  /**
   * Called when the recording has an unacknowledged tail. The number of bytes is 0 if only the final
   * confirmation is missing.
   */
  left(bytes: number): void;
  /** Called when a recorder has stored all bytes durably. */
  delivered(end: { readonly bytes: number; readonly recorder: string; readonly waitedMs: number }): void;
  /** Called when a part of the tail is lost: `bytes` of `ofBytes`. */
  dropped(end: { readonly bytes: number; readonly ofBytes: number; readonly reason: string }): void;
  /** Called when a part of the tail (`bytes` of `ofBytes`) stays on disk, and this process does not deliver it. */
  kept(end: { readonly bytes: number; readonly ofBytes: number; readonly reason: string }): void;
}

/** Tail of one recording, with its recorders and callbacks. */
export interface LateEnd {
  readonly sessionId: string;
  /** User whose share of the queue the tail uses. */
  readonly user: string;
  /** Addresses (`ip:port`) of recorders, in order of preference. */
  readonly recorders: readonly string[];
  /** Returns the current addresses. Called before each delivery. Default: `recorders`. */
  readonly find?: ((signal: AbortSignal) => Promise<readonly string[]>) | undefined;
  readonly rest: UploadRest;
  readonly events: LateEvents;
  /** Journal files with the undelivered end of the session, if any. */
  readonly journal?: EndJournal | undefined;
  /** Time since the recorder was lost, in milliseconds. */
  readonly waitedMs?: number;
  /** True if `events.left` was already called. */
  readonly announced?: boolean;
}
