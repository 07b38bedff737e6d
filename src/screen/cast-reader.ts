/**
 * Reads a cast for display: damaged lines are counted and skipped. Times are recording times and never decrease.
 */
import { parseCastEvent, parseResize } from '../wire/asciicast/event.ts';
import { hasReversedResize, parseCastHeader } from '../wire/asciicast/header.ts';
import type { JsonValue } from '../wire/json-value.ts';
import { WireError } from '../wire/wire-error.ts';
import { shownSize, type ScreenSize } from '../terminal/size.ts';

/** The fields of the header that playback needs. */
export interface CastStart {
  /** Initial size, limited to the supported sizes. */
  readonly size: ScreenSize;
  /** Initial size, as the session reported it. */
  readonly reportedSize: ScreenSize;
  /** True if resize events contain the rows before the columns. */
  readonly rowsFirst: boolean;
  /**
   * True if the session had no terminal. Such a session has no size, and its output has line feeds without carriage
   * returns.
   */
  readonly withoutTerminal: boolean;
  /** Maximum pause between two events when the recording is shown, in seconds: `idle_time_limit` of the header. */
  readonly idleLimitSeconds: number | undefined;
}

/** A line of a cast after the header. `seconds` is recording time. */
export type CastAction =
  | { readonly kind: 'output'; readonly seconds: number; readonly text: string }
  | {
      readonly kind: 'resize';
      readonly seconds: number;
      readonly size: ScreenSize;
      readonly reported: ScreenSize;
    }
  | { readonly kind: 'marker'; readonly seconds: number; readonly text: string }
  /** Input, or an unknown event code. */
  | { readonly kind: 'other'; readonly seconds: number }
  /** The line is not a valid asciicast event. */
  | { readonly kind: 'bad'; readonly seconds: number };

/** @throws WireError if the line is not a header. */
export function readCastStart(line: string): CastStart {
  const header = parseCastHeader(line);
  const { width: columns, height: rows } = header;
  return {
    size: shownSize({ columns, rows }),
    reportedSize: { columns, rows },
    rowsFirst: hasReversedResize(header),
    withoutTerminal: columns === 0 || rows === 0,
    idleLimitSeconds: idleLimitOf(header.extra.get('idle_time_limit')),
  };
}

function idleLimitOf(value: JsonValue | undefined): number | undefined {
  return typeof value === 'number' && value > 0 ? value : undefined;
}

/**
 * @param seconds recording time before the first line.
 * @returns the action for a line; undefined if the line has no effect on the screen.
 */
export function createCastReader(
  { rowsFirst }: Pick<CastStart, 'rowsFirst'>,
  seconds = 0,
): (line: string) => CastAction | undefined {
  let clock = seconds;
  return (line) => {
    if (line.trim() === '') return undefined;
    try {
      const event = parseCastEvent(line);
      clock = Math.max(clock, event.seconds);
      return actionOf(event.code, event.data, clock, rowsFirst);
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      return { kind: 'bad', seconds: clock };
    }
  };
}

/** @throws WireError for an invalid resize. */
function actionOf(code: string, data: string, seconds: number, reversed: boolean): CastAction {
  switch (code) {
    case 'o':
      return { kind: 'output', seconds, text: data };
    case 'r': {
      const reported = parseResize(data, { reversed });
      return { kind: 'resize', seconds, size: shownSize(reported), reported };
    }
    case 'm':
      return { kind: 'marker', seconds, text: data };
    default:
      return { kind: 'other', seconds };
  }
}
