import { expect, it } from 'vitest';
import { BoundedMap } from '../src/bounded-map.ts';

it('a bounded map drops its oldest entry for a new one, and an entry that is set again is the newest', () => {
  const map = new BoundedMap<number>(2);
  map.set('a', 1).set('b', 2).set('a', 3);
  expect([...map]).toEqual([
    ['b', 2],
    ['a', 3],
  ]);
  map.set('c', 4);
  expect([...map]).toEqual([
    ['a', 3],
    ['c', 4],
  ]);
});
