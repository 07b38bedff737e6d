/** Compares the delivered position of a server tap that has seen more output with that of a tap that has not. */
import fc from 'fast-check';
import type { SessionTaps, TapPlace } from '../../src/recording/tap.ts';

type Taps = Pick<SessionTaps, 'serverToClient' | 'farewell'>;

interface Step {
  /** Number of bytes that are pushed in total, in one piece if necessary. */
  readonly pushedTo: number;
  /** Number of pieces that are delivered then, as far as they exist. */
  readonly deliver: number;
}

/** Reported state at a moment. */
interface Said {
  readonly standsBetweenFrames: boolean | undefined;
  readonly farewell: Uint8Array | undefined;
}

export interface Delivery {
  readonly steps: readonly Step[];
  /** Maximum number of unsent bytes; longer output is delivered anyway. */
  readonly mostUnsent: number;
}

/** Steps that end with everything delivered. */
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

/** @returns what both say after each delivery */
export function deliverInSteps(
  all: Uint8Array,
  { steps, mostUnsent }: Delivery,
  createTaps: () => Taps,
): { readonly ahead: readonly Said[]; readonly exact: readonly Said[] } {
  const ahead = createTaps();
  const exact = createTaps();
  const said = { ahead: [] as Said[], exact: [] as Said[] };
  const waiting: { readonly end: number; readonly unsent: number; readonly place: TapPlace }[] = [];
  const pushed = { ahead: 0, exact: 0 };
  const push = (name: 'ahead' | 'exact', { serverToClient }: Taps, end: number): void => {
    void serverToClient.push(all.subarray(pushed[name], end));
    pushed[name] = end;
  };
  for (const { pushedTo, deliver } of steps) {
    if (pushedTo > pushed.ahead) {
      push('ahead', ahead, pushedTo);
      const place = ahead.serverToClient.place?.();
      if (place === undefined) throw new Error('the tap knows no places');
      const unsent = place.unsentBytes > mostUnsent ? 0 : place.unsentBytes;
      waiting.push({ end: pushedTo, unsent, place });
    }
    const portion = waiting.splice(0, deliver);
    const last = portion.at(-1);
    if (last === undefined) continue;
    ahead.serverToClient.delivered(last.unsent, waiting.length === 0 ? undefined : last.place);
    for (const { end } of portion) push('exact', exact, end);
    exact.serverToClient.delivered(last.unsent);
    said.ahead.push(say(ahead));
    said.exact.push(say(exact));
  }
  return said;
}

function say({ serverToClient, farewell }: Taps): Said {
  return { standsBetweenFrames: serverToClient.standsBetweenFrames, farewell: farewell('x', 503) };
}
