import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createLoopTurns, sortInTurns } from '../../src/async/loop-turns.ts';
import { turnsDuring } from '../support/loop-turns.ts';

interface Item {
  readonly value: number;
  readonly at: number;
}

const byValue = (left: Item, right: Item): number => left.value - right.value;

/**
 * Arrays that consist of runs of ascending, descending, equal and unordered items. Some arrays are too long to sort in
 * one turn of the event loop.
 */
const pieces = fc.array(
  fc
    .tuple(fc.constantFrom('up', 'down', 'same', 'none'), fc.nat(600), fc.nat(1000))
    .map(([kind, length, from]) =>
      Array.from({ length }, (_, index) => {
        if (kind === 'up') return from + index;
        if (kind === 'down') return from - index;
        return kind === 'same' ? from : (index * 7919 + from) % 1000;
      }),
    ),
  { maxLength: 6 },
);

describe('sorting in turns', () => {
  it('is sorting, and leaves what is equal in its order', async () => {
    await fc.assert(
      fc.asyncProperty(pieces, async (made) => {
        const items = made.flat().map((value, at) => ({ value, at }));
        expect(await sortInTurns(items, byValue, createLoopTurns())).toEqual(items.toSorted(byValue));
      }),
      { numRuns: 60 },
    );
  });

  it.each(['up', 'down', 'none'])('lets the loop turn, with what goes %s', async (kind) => {
    const items = Array.from({ length: 20_000 }, (_, at) => {
      if (kind === 'none') return { value: (at * 7919) % 20_011, at };
      return { value: kind === 'up' ? at : -at, at };
    });
    expect(await turnsDuring(() => sortInTurns(items, byValue, createLoopTurns()))).toBeGreaterThanOrEqual(
      30,
    );
  });
});

describe('work in turns', () => {
  it('turns after so many items, and ends when it is to', async () => {
    const closing = new AbortController();
    const turns = createLoopTurns(closing.signal, 3);
    expect([turns.isDue(), turns.isDue(), turns.isDue()]).toEqual([false, false, true]);
    await turns.turn();
    expect(turns.isDue()).toBe(false);
    const turned = turns.turn();
    closing.abort(new Error('closing'));
    await expect(turned).rejects.toThrow('closing');
  });
});

describe('several who share their turns', () => {
  it('do together what is done between two', async () => {
    const turns = createLoopTurns(undefined, 10);
    let done = 0;
    const work = async (): Promise<void> => {
      for (let at = 0; at < 100; at += 1) {
        if (turns.isDue()) await turns.turn();
        done += 1;
      }
    };
    const worked = turnsDuring(() => Promise.all([work(), work(), work(), work()]));
    expect(done).toBeLessThanOrEqual(10);
    expect(await worked).toBeGreaterThanOrEqual(30);
    expect(done).toBe(400);
  });
});
