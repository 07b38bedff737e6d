/** The unacknowledged end of a recording, which is delivered to another recorder after the upload lost its own. */
import type { Preamble } from './preamble.ts';

/** The unacknowledged end of a recording. */
export interface UploadRest {
  /** Bytes from `offset` to the end of the recording; a copy. */
  readonly bytes: Uint8Array;
  /** Offset of `bytes` in the recording. */
  readonly offset: number;
  /** Number of bytes of asciicast lines before `bytes`. */
  readonly lineBytes: number;
  readonly preamble: Preamble;
  /** Number of uploads of the session so far. */
  readonly part: number;
  /** True if the lost recorder supports continued sessions. */
  readonly resumable: boolean;
  /** Address of the lost recorder, if known. */
  readonly recorder?: string;
}

/** The journal files of an undelivered end. */
export interface EndJournal {
  /** True if another process delivers the end. */
  readonly taken: boolean;
  /** Deletes the files: the end was delivered or dropped. */
  remove(): void;
  /** Delivers the end later, when there is a free slot. */
  wait(): void;
}

/** Callbacks for the end of one session: `left` is called once, then exactly one of the others. */
export interface LateEvents {
  /** Called with the number of unacknowledged bytes; 0 if only the final confirmation is missing. */
  left(bytes: number): void;
  /** Called when a recorder has stored all bytes durably. */
  delivered(end: { readonly bytes: number; readonly recorder: string; readonly waitedMs: number }): void;
  /** Called when `bytes` of `ofBytes` are lost. */
  dropped(end: { readonly bytes: number; readonly ofBytes: number; readonly reason: string }): void;
  /** Called when the bytes stay on disk and this process does not deliver them. */
  kept(end: { readonly bytes: number; readonly ofBytes: number; readonly reason: string }): void;
}

/** The end of one session, with its recorders and callbacks. */
export interface LateEnd {
  readonly sessionId: string;
  /** `ip:port` in order of preference. */
  readonly recorders: readonly string[];
  readonly rest: UploadRest;
  readonly events: LateEvents;
  /** Journal files of the end, if any. */
  readonly journal?: EndJournal | undefined;
  /** Time since the recorder was lost, in milliseconds. */
  readonly waitedMs?: number;
  /** True if `events.left` was called already. */
  readonly announced?: boolean;
}
