/** The time of a cast's last event, from its last line: casts may be gigabytes long. */
import { parseCastEvent } from '../../wire/asciicast/event.ts';
import { WireError } from '../../wire/wire-error.ts';

const FIRST_LOOK_BYTES = 16_384;
const LONGEST_LOOK_BYTES = 16_777_216;
const LINE_FEED = 0x0a;
const decoder = new TextDecoder();

/** What the end of a cast says. */
export interface CastTail {
  /** Time of the last event; undefined when there is none, it cannot be read, or the format counts otherwise. */
  readonly durationSeconds: number | undefined;
  /** Whether the file ends in a line feed. */
  readonly endsWhole: boolean;
}

/**
 * @param read bytes `[start, end)` of the cast.
 * @param bytes its length.
 */
export async function readCastTail(
  read: (start: number, end: number) => Promise<Uint8Array>,
  bytes: number,
  version: 2 | 3,
): Promise<CastTail> {
  for (let look = FIRST_LOOK_BYTES; ; look *= 32) {
    const start = Math.max(0, bytes - look);
    const tail = await read(start, bytes);
    const last = lastLine(tail);
    const endsWhole = tail.at(-1) === LINE_FEED;
    if (last !== undefined || start === 0 || look >= LONGEST_LOOK_BYTES) {
      // times of version 3 are intervals: only the whole file would tell
      return { durationSeconds: version === 2 ? secondsOf(last) : undefined, endsWhole };
    }
  }
}

/** The last line that stands whole in `tail`, line feeds on both sides: so never the header. */
function lastLine(tail: Uint8Array): Uint8Array | undefined {
  const end = tail.lastIndexOf(LINE_FEED);
  const before = end <= 0 ? -1 : tail.lastIndexOf(LINE_FEED, end - 1);
  return before < 0 ? undefined : tail.subarray(before + 1, end);
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
