/** A transcript as plain data for JSON. */

/** Version of this format. Transcripts in other versions are created again. */
export const TRANSCRIPT_VERSION = 2;

/** Rows with their time in seconds of the recording. */
export type TranscriptRows = readonly (readonly [at: number, text: string])[];

export interface TranscriptDocument {
  readonly version: typeof TRANSCRIPT_VERSION;
  readonly rows: TranscriptRows;
  /** True if rows are missing. */
  readonly isPartial: boolean;
  /** Number of printable characters that never became visible, and the first lines that contain such characters. */
  readonly hidden: {
    readonly characters: number;
    readonly rows: TranscriptRows;
    /** True if lines are missing because the list of lines has its maximum size. */
    readonly isPartial?: boolean;
  };
  /** Second of the recording at which reading stopped, because rendering the recording costs too much. */
  readonly stoppedAt?: number;
}

/** Explains `isPartial`. */
export const PARTIAL_TEXT =
  'The transcript is incomplete. It leaves out rows beyond its maximum size, rows that were overwritten ' +
  'many times, and damaged lines.';

/** Explains `hidden.isPartial`. */
export const HIDDEN_PARTIAL_TEXT =
  'The list of lines that were never visible is incomplete. It leaves out later lines beyond its maximum size.';

/**
 * Heading for text in control strings that does not count as invisible, because normal programs also send such strings.
 */
export const STRINGS_TEXT = 'Text in control strings, such as window titles';

/** Returns the notice about characters that never became visible. */
export function hiddenText(characters: number): string {
  // `toLocaleString` would load the locale data of the browser while the first screen is drawn
  const count = String(characters).replaceAll(/\B(?=(?:\d{3})+$)/g, ',');
  return characters === 1
    ? '1 character was written but never visible'
    : `${count} characters were written but never visible`;
}
