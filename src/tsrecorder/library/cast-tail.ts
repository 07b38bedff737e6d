/** Finds the time of the last event without reading the complete cast, which may be several gigabytes long. */
import { parseCastEvent } from '../../wire/asciicast/event.ts';
import { WireError } from '../../wire/wire-error.ts';

const MIN_TAIL_BYTES = 16_384;
const MAX_TAIL_BYTES = 16_777_216;
const LINE_FEED = 0x0a;
const decoder = new TextDecoder();

/** Facts from the end of a cast. */
export interface CastTail {
  /** Time of the last event; undefined if there is no event, or the event is unreadable. */
  readonly durationSeconds: number | undefined;
  /** True if the file ends with a line feed. */
  readonly endsWithLineFeed: boolean;
}

/**
 * Reads the end of a cast.
 *
 * @param read returns the bytes `[start, end)` of the cast
 * @param bytes length of the cast
 */
export async function readCastTail(
  read: (start: number, end: number) => Promise<Uint8Array>,
  bytes: number,
): Promise<CastTail> {
  for (let tailBytes = MIN_TAIL_BYTES; ; tailBytes *= 32) {
    const start = Math.max(0, bytes - tailBytes);
    const tail = await read(start, bytes);
    const last = lastLine(tail);
    const endsWithLineFeed = tail.at(-1) === LINE_FEED;
    if (last === undefined && start > 0 && tailBytes < MAX_TAIL_BYTES) continue;
    return { durationSeconds: secondsOf(last), endsWithLineFeed };
  }
}

/**
 * Returns the last non-blank line of `tail` that has a line feed before and after it. The header line has no line feed
 * before it, so it is never the result.
 */
function lastLine(tail: Uint8Array): Uint8Array | undefined {
  for (let end = tail.lastIndexOf(LINE_FEED); end > 0;) {
    const before = tail.lastIndexOf(LINE_FEED, end - 1);
    if (before < 0) return undefined;
    const line = tail.subarray(before + 1, end);
    if (line.some((byte) => byte > 0x20)) return line;
    end = before;
  }
  return undefined;
}

function secondsOf(line: Uint8Array | undefined): number | undefined {
  if (line === undefined) return undefined;
  try {
    return parseCastEvent(decoder.decode(line)).seconds;
  } catch (error) {
    if (error instanceof WireError) return undefined;
    throw error;
  }
}
