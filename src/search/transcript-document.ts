/** What a transcript is for whoever shows it. Plain data. */

/** Of this format; another one is made anew. */
export const TRANSCRIPT_VERSION = 1;

/** Plain data, JSON as it stands. */
export interface TranscriptDocument {
  readonly version: typeof TRANSCRIPT_VERSION;
  /** Seconds of the recording, and what stood there. */
  readonly rows: readonly (readonly [at: number, text: string])[];
  /** There was more, or something could not be read. */
  readonly isPartial: boolean;
}
