/**
 * Warms up a program with a JIT compiler: runs load until its speed is stable. On two busy processors, compilation
 * takes V8 many seconds, because compiler threads wait for the processors. Before the speed is
 * stable, measurements would include the work of the compiler.
 */

/** Minimum duration of one turn; a shorter load is repeated. */
export const WARM_TURN_MS = 2000;
/**
 * Maximum duration of the warm-up. If the speed is not stable after this time, the measurement starts nevertheless, and
 * the program prints a notice.
 */
export const WARM_LIMIT_MS = 24_000;
/**
 * The warm-up ends after this number of consecutive turns without improvement. A single slow turn may have another
 * cause.
 */
const FLAT_TURNS = 2;
const FASTER = 1.05;

/**
 * True if the last turns were hardly faster than the fastest earlier turn. The entries of `rates` are in the order of
 * the turns.
 */
export function isSettled(rates: readonly number[]): boolean {
  const earlier = rates.slice(0, -FLAT_TURNS);
  const last = rates.slice(-FLAT_TURNS);
  return earlier.length > 0 && Math.max(...last) <= Math.max(...earlier) * FASTER;
}

/**
 * Result of a warm-up: how much faster the fastest turn was than the first turn, and whether the speed became stable.
 */
export interface Warmth {
  readonly seconds: number;
  readonly gain: number;
  readonly settled: boolean;
}

/**
 * @param load runs one load and returns its rate; undefined for a failure, which ends the warm-up
 * @param turns maximum number of turns; default: until the rate is stable
 * @param now clock in milliseconds
 */
export async function warmUp(
  load: () => Promise<number | undefined>,
  turns = Number.POSITIVE_INFINITY,
  now = (): number => performance.now(),
): Promise<Warmth> {
  const startedAt = now();
  const passedMs = (): number => now() - startedAt;
  const rates: number[] = [];
  const warmth = (): Warmth => ({
    seconds: passedMs() / 1000,
    gain: Math.max(...rates) / (rates[0] ?? Number.NaN),
    settled: isSettled(rates),
  });
  while (rates.length < turns && !isSettled(rates) && passedMs() < WARM_LIMIT_MS) {
    const beganMs = passedMs();
    const ofTurn: number[] = [];
    do {
      const rate = await load();
      if (rate === undefined) return warmth();
      ofTurn.push(rate);
    } while (passedMs() - beganMs < WARM_TURN_MS);
    rates.push(ofTurn.reduce((sum, rate) => sum + rate, 0) / ofTurn.length);
  }
  return warmth();
}
