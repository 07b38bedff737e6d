/** Reads recordings: a range, the complete cast, or a live cast until its session ends. */
import type { FileHandle } from 'node:fs/promises';
import { parseCastEvent } from '../../wire/asciicast/event.ts';
import { WireError } from '../../wire/wire-error.ts';
import { openSpool, piecesBytes, readPieces } from './cast-pieces.ts';
import type { CatalogEntry } from './catalog-entry.ts';
import type { LiveRecording } from './live-recording.ts';
import { readJsonObject, spliceMembers } from './json-members.ts';
import { readLines } from '../../wire/lines.ts';
import type { ByteRange } from '../files/file-range.ts';

/** Reads a range of a cast. Only the durable bytes of a live cast are readable. */
export function readCast({ pieces }: CatalogEntry, range: ByteRange): AsyncIterable<Uint8Array> {
  return readPieces(pieces, range);
}

/** Returns the length of a cast, in bytes. For a live cast, this is the durable length. */
export function castBytes({ pieces }: CatalogEntry): number {
  return piecesBytes(pieces);
}

/**
 * Reads a cast from its start. Follows a live cast until the session ends. Each chunk is read only when the consumer
 * requests it.
 */
export async function* followCast(entry: CatalogEntry, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  const { live, pieces } = entry;
  const last = pieces.at(-1);
  if (live === undefined || last === undefined) {
    yield* readPieces(pieces, { start: 0, end: Infinity });
    return;
  }
  yield* readPieces(pieces.slice(0, -1), { start: 0, end: Infinity });
  // Keep the file open, because its name disappears when the recording moves into the store.
  await using file = await openSpool(live.paths.cast);
  if (file === undefined) yield* last.read({ start: last.start, end: last.end() });
  else yield* followSpool(file, live, last.start, signal);
}

/** Yields the bytes of a growing spool file until its session ends. */
async function* followSpool(
  file: FileHandle,
  live: LiveRecording,
  start: number,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  using changes = createChanges(live, signal);
  const durableBytes = (): number => live.durable().castBytes;
  for (let position = start; ;) {
    const mayGrow = live.isOpen();
    const end = durableBytes();
    while (position < end && !signal.aborted) {
      const block = new Uint8Array(Math.min(65_536, end - position));
      const { bytesRead } = await file.read(block, 0, block.length, position);
      if (bytesRead === 0) return;
      position += bytesRead;
      yield block.subarray(0, bytesRead);
    }
    if (!mayGrow || signal.aborted) return;
    await changes.next(() => durableBytes() > position || !live.isOpen());
  }
}

/** Reasons to convert a cast before a player displays it. */
export interface Presentation {
  readonly rowsFirst: boolean;
  /**
   * True if the session had no terminal. Such a recording has no terminal size, and its lines end without carriage
   * returns.
   */
  readonly withoutTerminal: boolean;
}

/**
 * Returns the reasons to convert the cast of a recording for players, or undefined if players support the stored cast.
 */
export function presentationOf({ recording, resizeOrder }: CatalogEntry): Presentation | undefined {
  const rowsFirst = resizeOrder === 'rowsFirst';
  const withoutTerminal = recording.width === 0 || recording.height === 0;
  return rowsFirst || withoutTerminal ? { rowsFirst, withoutTerminal } : undefined;
}

/**
 * Adapts a cast for a terminal. Resize events become `COLSxROWS`. If the session had no terminal, the size becomes
 * 80x24, and each line feed becomes a carriage return and a line feed. Every chunk ends with a complete line.
 * Only one line is in memory.
 */
export async function* presentCast(
  chunks: AsyncIterable<Uint8Array>,
  presentation: Presentation,
): AsyncGenerator<Uint8Array> {
  let isHeader = true;
  for await (const lines of readLines(chunks)) {
    const parts: Uint8Array[] = [];
    for (const line of lines) {
      if (isHeader) parts.push(presentHeader(line, presentation));
      else parts.push(presentEvent(line, presentation));
      parts.push(LINE_FEED);
      isHeader = false;
    }
    yield Buffer.concat(parts);
  }
}

const LINE_FEED = Buffer.from('\n');
/** Matches the start of an event, up to its code. */
const EVENT_CODE = /^\[\s*([-+.\deE]+)\s*,\s*"([or])"/;
const RESIZE_DATA = /"(\d+)x(\d+)"\s*\]\s*$/;

function presentHeader(line: Uint8Array, { withoutTerminal }: Presentation): Uint8Array {
  const object = withoutTerminal ? readJsonObject(Buffer.from(line).toString()) : undefined;
  if (object === undefined) return line;
  const size = new Map([
    ['width', '80'],
    ['height', '24'],
  ]);
  return Buffer.from(spliceMembers(object, size));
}

function presentEvent(line: Uint8Array, { rowsFirst, withoutTerminal }: Presentation): Uint8Array {
  const [, time, code] = EVENT_CODE.exec(Buffer.from(line.subarray(0, 64)).toString('latin1')) ?? [];
  if (code === 'r' && rowsFirst) {
    const text = Buffer.from(line).toString();
    return Buffer.from(text.replace(RESIZE_DATA, '"$2x$1"]'));
  }
  if (code === 'o' && withoutTerminal) {
    try {
      const { data } = parseCastEvent(Buffer.from(line).toString());
      return Buffer.from(`[${time},"o",${JSON.stringify(data.replaceAll(/\r?\n/g, '\r\n'))}]`);
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
    }
  }
  return line;
}

interface Changes extends Disposable {
  /** Resolves when `reached` returns true or the signal aborts. */
  next(reached: () => boolean): Promise<void>;
}

function createChanges(live: LiveRecording, signal: AbortSignal): Changes {
  let wake: () => void = () => undefined;
  const onChange = (): void => wake();
  const unwatch = live.watch(onChange);
  signal.addEventListener('abort', onChange);
  return {
    async next(reached) {
      while (!reached() && !signal.aborted) {
        await new Promise<void>((resolve) => {
          wake = resolve;
        });
      }
    },
    [Symbol.dispose]() {
      unwatch();
      signal.removeEventListener('abort', onChange);
    },
  };
}
