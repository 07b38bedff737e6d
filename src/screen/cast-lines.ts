/** Reads the lines of a cast from any offset. From the second piece on, reads one piece ahead of the caller. */

/** The bytes of a cast. */
export interface CastBytes {
  readonly bytes: number;
  /** True if the cast may still grow. A last line without a line feed is then not an error. */
  readonly isGrowing?: boolean;
  /** Bytes `[start, end)`. */
  read(start: number, end: number, signal: AbortSignal): Promise<Uint8Array>;
}

/** Number of bytes of the first read from the start of the cast. It is small, because the first screen waits for it. */
export const HEAD_BYTES = 64 * 1024;
/** Number of bytes per read. */
const PIECE_BYTES = 256 * 1024;
/** Maximum number of bytes of the first read of a seek, so that most seeks send one request. */
const MAX_FIRST_BYTES = 2 * PIECE_BYTES;
/** Maximum length of a line, in characters. Longer lines are truncated, so they count as damaged. */
const MAX_LINE_LENGTH = 64 * 1024 * 1024;

export type CastLines = ReturnType<typeof readCastLines>;

/**
 * @param offset start of a line
 * @param firstEnd preferred end of the first read
 */
export function readCastLines(cast: CastBytes, offset: number, firstEnd = 0) {
  const stopped = new AbortController();
  const decoder = new TextDecoder();
  let at = offset;
  let ahead: { readonly start: number; readonly bytes: Promise<Uint8Array> } | undefined;
  let rest = '';
  let isCut = false;

  function fetchNext(): typeof ahead {
    if (at >= cast.bytes) return undefined;
    const start = at;
    at = Math.min(cast.bytes, endOf(start));
    const bytes = cast.read(start, at, stopped.signal);
    // `next` reports the error; without this handler, the error of a piece that is never used would be an unhandled
    // rejection
    bytes.catch(() => undefined);
    return { start, bytes };
  }

  function endOf(start: number): number {
    // this read ends at the same offset as the read of the header, whose bytes are in memory
    if (start < HEAD_BYTES) return HEAD_BYTES;
    const isPreferred = start === offset && firstEnd > start && firstEnd - start <= MAX_FIRST_BYTES;
    return isPreferred ? firstEnd : start + PIECE_BYTES;
  }

  async function next(): Promise<readonly string[] | undefined> {
    ahead ??= fetchNext();
    const waiting = ahead;
    if (waiting === undefined) {
      if (cast.isGrowing === true) return undefined;
      const last = rest + decoder.decode();
      rest = '';
      if (last === '') return undefined;
      isCut = true;
      return [last];
    }
    let piece: Uint8Array;
    try {
      piece = await waiting.bytes;
    } catch (error) {
      // a retry reads this piece again
      at = waiting.start;
      ahead = undefined;
      throw error;
    }
    // a seek often ends in its first piece
    ahead = waiting.start === offset ? undefined : fetchNext();
    const lines = (rest + decoder.decode(piece, { stream: true })).split('\n');
    rest = (lines.pop() ?? '').slice(0, MAX_LINE_LENGTH);
    return lines;
  }

  return {
    /** Reads one piece ahead. */
    start(): void {
      ahead ??= fetchNext();
    },
    /**
     * Returns the next lines, without line feeds; undefined at the end, or at the current end of a growing cast.
     * Rejects if the bytes cannot be read.
     */
    next,
    /** True at the end of the cast if the last line has no line feed. */
    get isCut(): boolean {
      return isCut;
    },
    stop: (): void => stopped.abort(),
  };
}
