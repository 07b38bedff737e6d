/** The lines of a cast, read in pieces from any place, a piece ahead of whoever reads. */

/** Where a cast's bytes come from. */
export interface CastBytes {
  readonly bytes: number;
  /** There may be more bytes later on: what is at the end now is no end, and no cut. */
  readonly isGrowing?: boolean;
  /** Bytes `[start, end)`. */
  read(start: number, end: number, signal: AbortSignal): Promise<Uint8Array>;
}

/** What is read at a time, and so what a seek costs beside the lines up to its moment. */
export const PIECE_BYTES = 256 * 1024;
/** Longer lines are given up, as our recorder does. */
const MAX_LINE_LENGTH = 64 * 1024 * 1024;

export interface CastLines {
  /** Begins to read before anybody waits for it. */
  start(): void;
  /** The next ones, without their line feeds; undefined at the end, of a cast that grows for now. Rejects when they cannot be read. */
  next(): Promise<readonly string[] | undefined>;
  /** After the end: the last line had no line feed. */
  readonly isCut: boolean;
  stop(): void;
}

/** @param offset where a line begins. */
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
    // the first piece ends where those end that were read for the header: they are not read again
    at = Math.min(cast.bytes, at < PIECE_BYTES ? PIECE_BYTES : at + PIECE_BYTES);
    const bytes = cast.read(start, at, stopped.signal);
    // whoever waits for it gets the error; it may also never be wanted
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
      // when it is asked again
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
