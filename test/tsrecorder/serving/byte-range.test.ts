import { expect, it } from 'vitest';
import { parseRange } from '../../../src/tsrecorder/serving/byte-range.ts';

it.each([
  [undefined, 'whole'],
  ['bytes=0-0', { start: 0, end: 1 }],
  ['bytes=5-5', { start: 5, end: 6 }],
  ['bytes=5-4', 'whole'],
  [' bytes=2-4 ', { start: 2, end: 5 }],
  ['bytes=2-', { start: 2, end: 10 }],
  ['bytes=9-99', { start: 9, end: 10 }],
  ['bytes=10-', 'unsatisfiable'],
  ['bytes=10-10', 'unsatisfiable'],
  ['bytes=-3', { start: 7, end: 10 }],
  ['bytes=-10', { start: 0, end: 10 }],
  ['bytes=-11', { start: 0, end: 10 }],
  ['bytes=-0', 'unsatisfiable'],
  ['bytes=-', 'whole'],
  ['bytes=0-1,3-4', 'whole'],
  ['lines=0-1', 'whole'],
])('of ten bytes %j is %j', (header, expected) => {
  expect(parseRange(header, 10)).toEqual(expected);
});
