/** The interface of a fuzz target. Contains the checks that most targets use. */
import { isDeepStrictEqual } from 'node:util';
import type { Random } from '../test/support/random.ts';

export interface FuzzTarget {
  /** Name of the target, and of its folder in the corpus. */
  readonly name: string;
  /** Initial inputs; `npm run fuzz -- --seed-corpus` writes them into the corpus. */
  readonly seeds: readonly Uint8Array[];
  /** Words that the fuzzer inserts into inputs, so that they pass the first checks of the parser. */
  readonly words: readonly string[];
  /**
   * Reads the input and checks every invariant.
   *
   * @returns a short description of the outcome; an input with a new outcome becomes a base for other inputs
   * @throws any error if an invariant is violated
   */
  run(input: Uint8Array, random: Random): string;
}

/** Thrown if an invariant is violated. */
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

/** Returns a short name if the error is a rejection of the input; undefined if it is a crash. */
export type Refusal = (error: unknown) => string | undefined;

/** Runs `read`, and returns its value or the name of a rejection. Rethrows any other error. */
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
  /**
   * Returns the name of the error with which the parser must reject all input after the first rejection. If the
   * function is missing, later input can have any result.
   */
  readonly afterRefusal?: (refused: string) => string;
  /**
   * Joins outputs that belong together, so that the cuts of the input do not affect the comparison. Must copy outputs
   * that are views of the parser's buffers.
   */
  readonly merge: (outputs: readonly Output[]) => readonly unknown[];
}

/** Output and error of a stream parser. */
export interface StreamResult {
  readonly merged: readonly unknown[];
  readonly refused: string | undefined;
}

/**
 * Feeds the input to a parser byte by byte, and then to another parser in random pieces. Both parsers must return the
 * same output and the same error. With `afterRefusal`, an error must be final. A parser must not change its input.
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
  // If the parser rejects the end of a chunk, it returns no output for this chunk. Output that precedes the error may
  // therefore be missing.
  const comparable =
    actual.refused === undefined ? expected.merged : expected.merged.slice(0, actual.merged.length);
  const seen = actual.refused === undefined ? actual.merged : dropUnfinished(actual.merged, comparable);
  ensureEqual(seen, comparable.slice(0, seen.length), 'the reading depends on where the input is cut');
  if (actual.refused === undefined) ensure(seen.length === comparable.length, 'a reading was lost');
  return expected;
}

/** Removes the last merged item if it is incomplete, because the parser stopped at an error inside the item. */
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

/** Cuts bytes into pieces of random length. The maximum length of the pieces is also random. */
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

/** Returns bytes as text; invalid bytes are replaced. */
export function textOf(input: Uint8Array): string {
  return new TextDecoder('utf-8', { ignoreBOM: true }).decode(input);
}

/** Decodes bytes as Node decodes a request line. */
export function latin1Of(input: Uint8Array): string {
  return Buffer.from(input).toString('latin1');
}

/** Splits lines at spaces, so that a list of words needs few lines of source. */
export function words(...lines: readonly string[]): readonly string[] {
  return lines.flatMap((line) => line.split(' '));
}

/**
 * Returns true if a name in a JSON text contains an escape. Some versions of V8 parse such a name incorrectly after
 * certain other texts (nodejs/node#63785), so these inputs prove nothing about tailcast.
 */
export function hasEscapedName(text: string): boolean {
  for (const [, name = ''] of text.matchAll(/"((?:[^"\\]|\\.)*)"\s*:/gs))
    if (name.includes('\\')) return true;
  return false;
}
