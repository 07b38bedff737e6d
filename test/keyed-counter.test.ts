import { describe, expect, it } from 'vitest';
import { createKeyedCounter } from '../src/keyed-counter.ts';

describe('places that are counted', () => {
  it('are counted in all and for each of those who take them', () => {
    const places = createKeyedCounter();
    const [first] = [places.take('a'), places.take('a'), places.take('b')];
    expect([places.total, places.usedBy('a'), places.usedBy('b'), places.usedBy('c')]).toEqual([3, 2, 1, 0]);
    first();
    expect([places.total, places.usedBy('a'), places.usedBy('b')]).toEqual([2, 1, 1]);
  });

  it('are none of somebody who has given back the last one', () => {
    const places = createKeyedCounter();
    for (let round = 0; round < 2; round++) {
      places.take('a')();
      expect([places.total, places.usedBy('a')]).toEqual([0, 0]);
    }
  });

  it('come back once, whoever says so again', () => {
    const places = createKeyedCounter();
    const [first] = [places.take('a'), places.take('a')];
    first();
    first();
    expect([places.total, places.usedBy('a')]).toEqual([1, 1]);
  });
});
