/** Reads the lines of a cast from any offset, one piece ahead of the reader. */

/** The bytes of a cast. */
export interface CastBytes {
  readonly bytes: number;
  /** True if the cast may still grow, so that its current end is neither the end nor a cut. */
  readonly isGrowing?: boolean;
  /** Bytes `[start, end)`. */
  read(start: number, end: number, signal: AbortSignal): Promise<Uint8Array>;
}

/** Bytes that are read at a time, so the cost of a seek in addition to the lines before its moment. */
export const PIECE_BYTES = 256 * 1024;
/** Longer lines are skipped, as our recorder does. */
const MAX_LINE_LENGTH = 64 * 1024 * 1024;

export interface CastLines {
  /** Starts reading ahead. */
  start(): void;
  /**
   * Returns the next lines, without line feeds; undefined at the (current) end. Rejects if the bytes cannot be
   * read.
   */
  next(): Promise<readonly string[] | undefined>;
  /** True after the end if the last line had no line feed. */
  readonly isCut: boolean;
  stop(): void;
}

/** @param offset start of a line. */
export function readCastLines(cast: CastBytes, offset: number): CastLines {
  const stopped = new AbortController();
  const decoder = new TextDecoder();
  let at = offset;
  let ahead: { readonly start: number; readonly bytes: Promise<Uint8Array> } | undefined;
  let rest = '';
  let isCut = false;

  function fetchNext(): typeof ahead {
    if (at >= cast.bytes) return undefined;
    const start = at;
    // the first piece ends where the bytes of the header end, which were read already
    at = Math.min(cast.bytes, at < PIECE_BYTES ? PIECE_BYTES : at + PIECE_BYTES);
    const bytes = cast.read(start, at, stopped.signal);
    // the reader gets the error; the piece may also be unused
    bytes.catch(() => undefined);
    return { start, bytes };
  }

  async function next(): Promise<readonly string[] | undefined> {
    const waiting = ahead ?? fetchNext();
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
      // for a retry
      at = waiting.start;
      ahead = undefined;
      throw error;
    }
    ahead = fetchNext();
    const lines = (rest + decoder.decode(piece, { stream: true })).split('\n');
    rest = (lines.pop() ?? '').slice(0, MAX_LINE_LENGTH);
    return lines;
  }

  return {
    start() {
      ahead ??= fetchNext();
    },
    next,
    get isCut() {
      return isCut;
    },
    stop: () => stopped.abort(),
  };
}
