/**
 * Encodes and parses asciicast events, the lines `[seconds, code, data]` after the header
 * (docs.asciinema.org, asciicast v2). `seconds` is the time since the start.
 */
import { WireError } from '../wire-error.ts';

/** Event codes: output, input, resize and marker. */
export type CastCode = 'o' | 'i' | 'r' | 'm';

export interface CastEvent {
  readonly seconds: number;
  /** Usually a `CastCode`; players ignore unknown codes. */
  readonly code: string;
  readonly data: string;
}

export interface CastSize {
  readonly columns: number;
  readonly rows: number;
}

const MICROSECONDS = 1e6;

/**
 * Returns an event line, with a line break. The time is rounded to microseconds and never written with an
 * exponent.
 *
 * @param seconds 0 or more, below 10^15.
 * @throws WireError `malformed` for any other time.
 */
export function encodeCastEvent(seconds: number, code: CastCode, data: string): string {
  if (!(seconds >= 0 && seconds < 1e15))
    throw new WireError('malformed', 'the time of an event is not usable');
  // JavaScript writes fractions below 0.000001 with an exponent. After rounding, there are no such fractions.
  return `[${Math.round(seconds * MICROSECONDS) / MICROSECONDS},"${code}",${JSON.stringify(data)}]\n`;
}

/**
 * Parses an event line, with or without its line break. The caller must limit the length of the line.
 *
 * @throws WireError `malformed` unless it is `[number, string, string]` with a time of 0 or more.
 */
export function parseCastEvent(line: string): CastEvent {
  let parsed: unknown;
  try {
    parsed = JSON.parse(line);
  } catch (cause) {
    throw new WireError('malformed', 'the event is not JSON', { cause });
  }
  if (!isList(parsed) || parsed.length !== 3) {
    throw new WireError('malformed', 'the event is not a list of three');
  }
  const [seconds, code, data] = parsed;
  if (typeof seconds !== 'number' || !Number.isFinite(seconds) || seconds < 0) {
    throw new WireError('malformed', 'the time of the event is not usable');
  }
  if (typeof code !== 'string' || typeof data !== 'string') {
    throw new WireError('malformed', 'code and data of the event are not text');
  }
  return { seconds, code, data };
}

function isList(value: unknown): value is readonly unknown[] {
  return Array.isArray(value);
}

/** Returns the data of a resize event: `COLSxROWS`. */
export function formatResize({ columns, rows }: CastSize): string {
  return `${columns}x${rows}`;
}

/**
 * Parses the data of a resize event.
 *
 * @param options `reversed` for recordings with `ROWSxCOLS`, see `hasReversedResize`.
 * @throws WireError `malformed` unless it is two numbers with an `x` between them.
 */
export function parseResize(text: string, options: { readonly reversed: boolean }): CastSize {
  const match = /^(\d{1,10})x(\d{1,10})$/.exec(text);
  if (match === null) throw new WireError('malformed', 'not a terminal size');
  const first = Number(match[1]);
  const second = Number(match[2]);
  return options.reversed ? { columns: second, rows: first } : { columns: first, rows: second };
}
