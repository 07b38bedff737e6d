/**
 * Compares two taps: the first one parses output before it is delivered, the second one only delivered output. Both
 * taps must report the same state.
 */
import fc from 'fast-check';
import type { OutputMark, Tap } from '../../src/recording/tap.ts';
import { OutputSide } from './tap-sides.ts';

interface Step {
  /** Total number of bytes pushed to the tap after this step. One step pushes at most one chunk. */
  readonly pushedTo: number;
  /** Maximum number of pushed chunks that are delivered at the end of this step. */
  readonly deliver: number;
}

/** State that a tap reports after a delivery. */
interface Said {
  readonly betweenFrames: boolean | undefined;
  readonly farewell: Uint8Array | undefined;
}

export interface Delivery {
  readonly steps: readonly Step[];
  /** Maximum number of undelivered bytes. If a step exceeds it, output is delivered before the end of the step. */
  readonly mostUnsent: number;
}

/** Generates steps after which all output is delivered. */
export function deliveries(bytes: number): fc.Arbitrary<Delivery> {
  const step = fc.record({ pushedTo: fc.nat(bytes), deliver: fc.nat(3) });
  const steps = fc
    .array(step, { maxLength: 8 })
    .map((some) => [
      ...some.toSorted((left, right) => left.pushedTo - right.pushedTo),
      { pushedTo: bytes, deliver: Infinity },
    ]);
  return fc.record({ steps, mostUnsent: fc.nat(bytes) });
}

/**
 * Delivers output through two taps: `ahead` parses all pushed output, `exact` only delivered output.
 * @returns the states of both taps after each delivery
 */
export function deliverInSteps(
  all: Uint8Array,
  { steps, mostUnsent }: Delivery,
  createTap: () => Pick<Tap, 'output' | 'mark' | 'farewell'>,
): { readonly ahead: readonly Said[]; readonly exact: readonly Said[] } {
  const taps = { ahead: createTap(), exact: createTap() };
  const ahead = new OutputSide(taps.ahead);
  const exact = new OutputSide(taps.exact);
  const said = { ahead: [] as Said[], exact: [] as Said[] };
  const waiting: { readonly end: number; readonly unsent: number; readonly mark: OutputMark }[] = [];
  const pushed = { ahead: 0, exact: 0 };
  const push = (name: 'ahead' | 'exact', side: OutputSide, end: number): void => {
    void side.push(all.subarray(pushed[name], end));
    pushed[name] = end;
  };
  for (const { pushedTo, deliver } of steps) {
    if (pushedTo > pushed.ahead) {
      push('ahead', ahead, pushedTo);
      const mark = ahead.mark();
      waiting.push({ end: pushedTo, unsent: mark.heldBytes > mostUnsent ? 0 : mark.heldBytes, mark });
    }
    const portion = waiting.splice(0, deliver);
    const last = portion.at(-1);
    if (last === undefined) continue;
    ahead.delivered(last.unsent, last.mark);
    for (const { end } of portion) push('exact', exact, end);
    exact.delivered(last.unsent);
    said.ahead.push({ betweenFrames: ahead.betweenFrames, farewell: taps.ahead.farewell('x', 503) });
    said.exact.push({ betweenFrames: exact.betweenFrames, farewell: taps.exact.farewell('x', 503) });
  }
  return said;
}
