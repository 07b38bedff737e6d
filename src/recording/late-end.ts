/** The end of a recording that no recorder has acknowledged, on its way from the upload that lost its recorder to another one. */
import type { Preamble } from './preamble.ts';

/** The end of a recording that no recorder has acknowledged. */
export interface UploadRest {
  /** From here to the end of the recording, in memory of its own. */
  readonly bytes: Uint8Array;
  /** Where in the recording that begins. */
  readonly offset: number;
  /** Bytes of lines before them. */
  readonly lineBytes: number;
  readonly preamble: Preamble;
  /** Counts the uploads of the session until now. */
  readonly part: number;
  /** Whether the recorder that had the session can continue one. */
  readonly resumable: boolean;
  /** Its address, where it is known. */
  readonly recorder?: string;
}

/** The files of an end that is to be delivered. */
export interface EndJournal {
  /** Another process delivers it. */
  readonly taken: boolean;
  /** Delivered, or given up. */
  remove(): void;
  /** Offer it again when there is room. */
  wait(): void;
}

/** Whoever had the session is told what becomes of its end: once `left`, then once one of the others. */
export interface LateEvents {
  /** So many bytes are not acknowledged; none when only the last word of the recorder is missing. */
  left(bytes: number): void;
  /** All of them are durable at a recorder. */
  delivered(end: { readonly bytes: number; readonly recorder: string; readonly waitedMs: number }): void;
  /** So many of them are in no recording. */
  dropped(end: { readonly bytes: number; readonly ofBytes: number; readonly reason: string }): void;
  /** This process does not deliver them any more; they are on disk. */
  kept(end: { readonly bytes: number; readonly ofBytes: number; readonly reason: string }): void;
}

export interface LateEnd {
  readonly sessionId: string;
  /** `ip:port` in order of preference. */
  readonly recorders: readonly string[];
  readonly rest: UploadRest;
  readonly events: LateEvents;
  /** Where the end is on disk. */
  readonly journal?: EndJournal | undefined;
  /** How long it has waited already. */
  readonly waitedMs?: number;
  /** `left` was told already. */
  readonly announced?: boolean;
}
