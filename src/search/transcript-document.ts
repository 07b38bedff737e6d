/** A transcript as plain data, JSON as it stands. */

/** Version of this format; a document of another version is made anew. */
export const TRANSCRIPT_VERSION = 2;

/** Seconds of the recording, and the text that was there. */
export type TranscriptRows = readonly (readonly [at: number, text: string])[];

export interface TranscriptDocument {
  readonly version: typeof TRANSCRIPT_VERSION;
  readonly rows: TranscriptRows;
  /** There was more, or something could not be read. */
  readonly isPartial: boolean;
  /** Printable characters that were written and never became visible: how many, and the first lines of them. */
  readonly hidden: { readonly characters: number; readonly rows: TranscriptRows };
  /** Second at which reading stopped because the recording costs too much to render. */
  readonly stoppedAt?: number;
}

/** The notice about characters that never became visible. */
export function hiddenText(characters: number): string {
  const count = characters.toLocaleString('en-US');
  return characters === 1
    ? '1 character was written but never visible'
    : `${count} characters were written but never visible`;
}
