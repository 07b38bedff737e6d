/**
 * A small mutational fuzzer: takes inputs from a corpus, changes them, and runs a target on the result. The fuzzer
 * does not measure coverage. An input with a new outcome becomes a base for other inputs.
 */
import { damage, join } from '../test/support/damage.ts';
import { createRandom, type Random } from '../test/support/random.ts';
import { utf8, type FuzzTarget } from './target.ts';

/** Maximum size of an input. */
const MAX_INPUT_BYTES = 16 * 1024;
/** Maximum CPU time of a run. The limit is generous, because a garbage collection may happen during a run. */
const MAX_CPU_MS = 2_000;
const MAX_BASES = 2_000;
const MINIMISING_RUNS = 2_000;

export interface FuzzFailure {
  readonly input: Uint8Array;
  readonly error: unknown;
}

export interface FuzzReport {
  readonly runs: number;
  readonly outcomes: number;
  readonly failure: FuzzFailure | undefined;
}

/**
 * Thrown if an input exceeds the time limit. Such an input is not minimised, because each step would take as much time.
 */
class TooSlow extends Error {
  override readonly name = 'TooSlow';
}

/** Runs the target with one input, with the same random numbers as in `fuzz`: they depend only on the input. */
export function replay(target: FuzzTarget, input: Uint8Array): string {
  return runOnce(target, input, MAX_CPU_MS).outcome;
}

/**
 * @param options.until time of the end, in milliseconds of `performance.now()`; at least one input is tried
 * @param options.maxRuns maximum number of inputs; if all of them run before `until`, a run with the same seed is the
 * same on every machine
 * @returns the first failure, minimised
 */
export function fuzz(
  target: FuzzTarget,
  corpus: readonly Uint8Array[],
  options: {
    readonly seed: number;
    readonly until: number;
    readonly maxRuns?: number;
    readonly maxCpuMs?: number;
  },
): FuzzReport {
  const random = createRandom(options.seed);
  const { maxCpuMs = MAX_CPU_MS, maxRuns = Infinity } = options;
  const bases = [...corpus, ...target.seeds];
  const outcomes = new Set<string>();
  let runs = 0;
  do {
    const input = nextInput(random, target, bases, runs);
    runs++;
    try {
      const { outcome } = runOnce(target, input, maxCpuMs);
      if (!outcomes.has(outcome) && outcomes.size < MAX_BASES) {
        outcomes.add(outcome);
        bases.push(input);
      }
    } catch (error) {
      return { runs, outcomes: outcomes.size, failure: minimise(target, { input, error }) };
    }
  } while (performance.now() < options.until && runs < maxRuns);
  return { runs, outcomes: outcomes.size, failure: undefined };
}

function runOnce(target: FuzzTarget, input: Uint8Array, maxCpuMs: number): { readonly outcome: string } {
  const before = process.cpuUsage();
  // Cut points must depend only on the input; otherwise a stored input would not fail again.
  const outcome = target.run(input, createRandom(hashOf(input)));
  const { user, system } = process.cpuUsage(before);
  const spentMs = (user + system) / 1000;
  if (spentMs > maxCpuMs) throw new TooSlow(`${input.length} bytes took ${Math.round(spentMs)} ms`);
  return { outcome };
}

/** FNV-1a. */
function hashOf(input: Uint8Array): number {
  let hash = 0x811c9dc5;
  for (const byte of input) hash = Math.imul(hash ^ byte, 0x01000193);
  return hash >>> 0;
}

function nextInput(
  random: Random,
  target: FuzzTarget,
  bases: readonly Uint8Array[],
  runs: number,
): Uint8Array {
  // First run all known inputs unchanged.
  const known = bases[runs];
  if (known !== undefined && runs < bases.length && runs < MAX_BASES) return known;
  const base = random.oneIn(20) || bases.length === 0 ? random.bytes(random.below(64)) : random.pick(bases);
  let input = base;
  if (random.oneIn(5) && bases.length > 0) input = splice(random, input, random.pick(bases));
  for (let steps = random.below(4); steps > 0; steps--) {
    input =
      random.oneIn(3) && target.words.length > 0 ? withWord(random, input, target) : damage(random, input);
  }
  return input.subarray(0, MAX_INPUT_BYTES);
}

function splice(random: Random, first: Uint8Array, second: Uint8Array): Uint8Array {
  return join(
    first.subarray(0, random.below(first.length + 1)),
    second.subarray(random.below(second.length + 1)),
  );
}

function withWord(random: Random, input: Uint8Array, target: FuzzTarget): Uint8Array {
  const word = utf8(random.pick(target.words));
  const at = random.below(input.length + 1);
  const replaced = random.oneIn(2) ? word.length : 0;
  return join(input.subarray(0, at), word, input.subarray(at + replaced));
}

/** Removes the parts of the input that the failure does not need. */
function minimise(target: FuzzTarget, failure: FuzzFailure): FuzzFailure {
  if (failure.error instanceof TooSlow) return failure;
  let smallest = failure;
  let runs = 0;
  for (
    let span = Math.ceil(failure.input.length / 2);
    span >= 1;
    span = span === 1 ? 0 : Math.ceil(span / 2)
  ) {
    for (let at = 0; at < smallest.input.length && runs < MINIMISING_RUNS; runs++) {
      const shorter = join(smallest.input.subarray(0, at), smallest.input.subarray(at + span));
      const error = failureOf(target, shorter);
      if (error === undefined) at += span;
      else smallest = { input: shorter, error };
    }
  }
  return smallest;
}

function failureOf(target: FuzzTarget, input: Uint8Array): unknown {
  try {
    runOnce(target, input, Infinity);
    return undefined;
  } catch (error) {
    return error;
  }
}
