/** Finds the time of the last event without reading the complete cast, which may be several gigabytes long. */
import { isCastComment, parseCastEvent } from '../../wire/asciicast/event.ts';
import { readLines } from '../../wire/lines.ts';
import { WireError } from '../../wire/wire-error.ts';

const MIN_TAIL_BYTES = 16_384;
const MAX_TAIL_BYTES = 16_777_216;
/**
 * Maximum size of a version 3 cast whose event times are summed, in bytes. Events of version 3 contain intervals, so
 * the time of the last event is the sum of all intervals.
 */
const MAX_SUMMED_BYTES = 67_108_864;
const LINE_FEED = 0x0a;
const decoder = new TextDecoder();

/** Facts from the end of a cast. */
export interface CastTail {
  /**
   * Time of the last event; undefined if there is no event, the event is unreadable, or the cast is too long to sum.
   */
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
  version: 2 | 3,
): Promise<CastTail> {
  for (let tailBytes = MIN_TAIL_BYTES; ; tailBytes *= 32) {
    const start = Math.max(0, bytes - tailBytes);
    const tail = await read(start, bytes);
    const last = lastLine(tail);
    const endsWithLineFeed = tail.at(-1) === LINE_FEED;
    if (last === undefined && start > 0 && tailBytes < MAX_TAIL_BYTES) continue;
    const durationSeconds = version === 2 ? secondsOf(last) : await summedSeconds(read, bytes);
    return { durationSeconds, endsWithLineFeed };
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

/** Returns the sum of the intervals of a version 3 cast. An incomplete last line does not count. */
async function summedSeconds(
  read: (start: number, end: number) => Promise<Uint8Array>,
  bytes: number,
): Promise<number | undefined> {
  if (bytes > MAX_SUMMED_BYTES) return undefined;
  async function* chunks(): AsyncGenerator<Uint8Array> {
    for (let at = 0; at < bytes; at += MAX_TAIL_BYTES)
      yield await read(at, Math.min(bytes, at + MAX_TAIL_BYTES));
  }
  let seconds: number | undefined;
  let isHeader = true;
  for await (const lines of readLines(chunks())) {
    for (const line of lines) {
      const interval = isHeader ? undefined : secondsOf(line);
      isHeader = false;
      if (interval !== undefined) seconds = (seconds ?? 0) + interval;
    }
  }
  return seconds;
}

function secondsOf(line: Uint8Array | undefined): number | undefined {
  if (line === undefined) return undefined;
  const text = decoder.decode(line);
  if (text.trim() === '' || isCastComment(text)) return undefined;
  try {
    return parseCastEvent(text).seconds;
  } catch (error) {
    if (error instanceof WireError) return undefined;
    throw error;
  }
}
