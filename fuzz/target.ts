/** What a fuzz target is, and the checks that most of them share. */
import { isDeepStrictEqual } from 'node:util';
import type { Random } from '../test/support/random.ts';

export interface FuzzTarget {
  /** Also the folder of its corpus. */
  readonly name: string;
  /** Inputs to begin with; they are written into the corpus by `npm run fuzz -- --seed-corpus`. */
  readonly seeds: readonly Uint8Array[];
  /** Words that get an input past the first checks. */
  readonly words: readonly string[];
  /**
   * Reads the input and checks every invariant.
   *
   * @returns what became of it, in few words: an input with a new outcome is kept as a base for others
   * @throws anything when an invariant does not hold
   */
  run(input: Uint8Array, random: Random): string;
}

/** An invariant does not hold. */
export class Broken extends Error {
  override readonly name = 'Broken';
}

export function ensure(holds: boolean, what: string): asserts holds {
  if (!holds) throw new Broken(what);
}

export function ensureEqual(actual: unknown, expected: unknown, what: string): void {
  if (!isDeepStrictEqual(actual, expected)) {
    throw new Broken(`${what}: ${show(actual)} is not ${show(expected)}`);
  }
}

function show(value: unknown): string {
  const text = JSON.stringify(value, (_key, member: unknown) =>
    typeof member === 'bigint' ? `${member}n` : member,
  );
  return (text ?? 'undefined').slice(0, 300);
}

/** A refusal, told from a crash. Gives a short name for it. */
export type Refusal = (error: unknown) => string | undefined;

/** Runs `read`; a refusal becomes its name, anything else that is thrown goes on. */
export function attempt<Value>(
  read: () => Value,
  refusal: Refusal,
):
  | { readonly value: Value; readonly refused?: never }
  | { readonly refused: string; readonly value?: never } {
  try {
    return { value: read() };
  } catch (error) {
    const name = refusal(error);
    if (name === undefined) throw error;
    return { refused: name };
  }
}

/** A parser that takes bytes in pieces. */
export interface StreamParser<Output> {
  push(chunk: Uint8Array): readonly Output[];
}

export interface StreamCheck<Output> {
  readonly create: () => StreamParser<Output>;
  readonly refusal: Refusal;
  /** The name of the refusal of everything after the first one; undefined when that is not promised. */
  readonly afterRefusal?: (refused: string) => string;
  /** Puts pieces together, so that it does not matter where the input was cut. Must copy what is a view. */
  readonly merge: (outputs: readonly Output[]) => readonly unknown[];
}

/** What a stream parser made of an input, fed byte by byte. */
export interface StreamResult {
  readonly merged: readonly unknown[];
  readonly refused: string | undefined;
}

/**
 * Feeds the input byte by byte, then cut at random: both must read the same, a refusal must be the same and final, and
 * the parser must not write into its input or keep it.
 */
export function checkStream<Output>(
  input: Uint8Array,
  random: Random,
  check: StreamCheck<Output>,
): StreamResult {
  const expected = feed(
    Array.from(input, (byte) => Uint8Array.of(byte)),
    check,
  );
  const actual = feed(cutAtRandom(input, random), check);
  ensure(expected.refused === actual.refused, `refusals differ: ${expected.refused} and ${actual.refused}`);
  // A chunk whose end is refused gives nothing at all, so fewer outputs are fine then.
  const comparable =
    actual.refused === undefined ? expected.merged : expected.merged.slice(0, actual.merged.length);
  const seen = actual.refused === undefined ? actual.merged : dropUnfinished(actual.merged, comparable);
  ensureEqual(seen, comparable.slice(0, seen.length), 'the reading depends on where the input is cut');
  if (actual.refused === undefined) ensure(seen.length === comparable.length, 'a reading was lost');
  return expected;
}

/** The last merged item may be part of a longer one when the rest of it went down with a refusal. */
function dropUnfinished(seen: readonly unknown[], expected: readonly unknown[]): readonly unknown[] {
  return isDeepStrictEqual(seen.at(-1), expected[seen.length - 1]) ? seen : seen.slice(0, -1);
}

function feed<Output>(chunks: readonly Uint8Array[], check: StreamCheck<Output>): StreamResult {
  const parser = check.create();
  const merged: Output[][] = [];
  for (const chunk of chunks) {
    const copy = chunk.slice();
    const { value, refused } = attempt(() => parser.push(copy), check.refusal);
    ensureEqual(copy, chunk, 'the parser wrote into its input');
    if (refused !== undefined) {
      if (check.afterRefusal !== undefined) {
        const again = attempt(() => parser.push(Uint8Array.of(0)), check.refusal);
        ensure(again.refused === check.afterRefusal(refused), `a refusal was not final: ${again.refused}`);
      }
      return { merged: check.merge(merged.flat()), refused };
    }
    ensure(value.length <= chunk.length + 1, 'more came out than went in');
    merged.push([...value]);
  }
  return { merged: check.merge(merged.flat()), refused: undefined };
}

/** Cuts bytes at random; large inputs not into too many pieces. */
export function cutAtRandom(input: Uint8Array, random: Random): readonly Uint8Array[] {
  const most = random.pick([3, 40, 1_000, 100_000]);
  const chunks: Uint8Array[] = [];
  for (let at = 0; at < input.length;) {
    const length = 1 + random.below(most);
    chunks.push(input.slice(at, at + length));
    at += length;
  }
  return chunks;
}

export function utf8(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

/** Bytes as text, invalid ones replaced. */
export function textOf(input: Uint8Array): string {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(input);
}

/** Bytes as the characters that Node gives for them in a request line. */
export function latin1Of(input: Uint8Array): string {
  return Buffer.from(input).toString('latin1');
}

/** A word list, without a line for each. The words hold no spaces. */
export function words(...lines: readonly string[]): readonly string[] {
  return lines.flatMap((line) => line.split(' '));
}

/**
 * Whether some name in a JSON text is written with an escape. Some versions of V8 read such a name as another one,
 * depending on what the process parsed before (nodejs/node#63785), so what comes of it says nothing about our code.
 */
export function hasEscapedName(text: string): boolean {
  for (const [, name = ''] of text.matchAll(/"((?:[^"\\]|\\.)*)"\s*:/gs))
    if (name.includes('\\')) return true;
  return false;
}
