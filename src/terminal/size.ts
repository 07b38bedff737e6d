/** Sizes of a terminal. A recording may contain any size, because uploaders choose it. Pure. */

/** Columns and rows. */
export interface ScreenSize {
  readonly columns: number;
  readonly rows: number;
}

/** Size for a recording that does not contain a size. */
export const UNKNOWN_SIZE: ScreenSize = { columns: 80, rows: 24 };
/** Maximum size in all views, because each cell needs memory. */
export const MAX_SIZE: ScreenSize = { columns: 1000, rows: 500 };
/** Minimum size for transcripts, search and alerts. */
const MIN_READ_SIZE: ScreenSize = { columns: 20, rows: 5 };

/**
 * Returns the size in which the player shows a session: integers within the limits. The default replaces values of 0 or
 * less.
 */
export function shownSize({ columns, rows }: ScreenSize): ScreenSize {
  if (!(columns > 0 && rows > 0)) return UNKNOWN_SIZE;
  return {
    columns: Math.min(MAX_SIZE.columns, Math.max(2, Math.floor(columns))),
    rows: Math.min(MAX_SIZE.rows, Math.max(1, Math.floor(rows))),
  };
}

/**
 * Returns the size in which transcript, search and alerts read a session. The minimum size prevents a client from
 * hiding output with a tiny terminal.
 */
export function readSize(size: ScreenSize): ScreenSize {
  return isTiny(size) ? UNKNOWN_SIZE : shownSize(size);
}

/** True if a session reported a terminal that is too small to read. */
export function isTiny({ columns, rows }: ScreenSize): boolean {
  return columns > 0 && rows > 0 && (columns < MIN_READ_SIZE.columns || rows < MIN_READ_SIZE.rows);
}
