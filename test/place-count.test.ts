import { describe, expect, it } from 'vitest';
import { createPlaceCount } from '../src/place-count.ts';

describe('places that are counted', () => {
  it('are counted in all and for each of those who take them', () => {
    const places = createPlaceCount();
    const [first] = [places.take('a'), places.take('a'), places.take('b')];
    expect([places.total, places.takenBy('a'), places.takenBy('b'), places.takenBy('c')]).toEqual([
      3, 2, 1, 0,
    ]);
    first();
    expect([places.total, places.takenBy('a'), places.takenBy('b')]).toEqual([2, 1, 1]);
  });

  it('are none of somebody who has given back the last one', () => {
    const places = createPlaceCount();
    for (let round = 0; round < 2; round++) {
      places.take('a')();
      expect([places.total, places.takenBy('a')]).toEqual([0, 0]);
    }
  });

  it('come back once, whoever says so again', () => {
    const places = createPlaceCount();
    const [first] = [places.take('a'), places.take('a')];
    first();
    first();
    expect([places.total, places.takenBy('a')]).toEqual([1, 1]);
  });
});
