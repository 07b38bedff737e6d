import { expect, it } from 'vitest';
import { createViewings } from '../../../src/tsrecorder/serving/viewings.ts';

function bench(max = 2) {
  let now = 1_000_000;
  const recorded: string[] = [];
  const viewings = createViewings(() => now, { silenceMs: 100, longestMs: 250, max });
  return {
    recorded,
    later: (ms: number) => void (now += ms),
    look: (key: string, outcome: Promise<void> = Promise.resolve()) =>
      viewings.once(key, () => {
        recorded.push(key);
        return outcome;
      }),
  };
}

it('a viewing is recorded once, until it is silent or lasts for a long time', async () => {
  const { recorded, later, look } = bench();
  await look('a');
  later(99);
  await look('a');
  later(99);
  await look('a');
  expect(recorded).toEqual(['a']);
  // this view is 250 seconds after the start of the viewing
  later(52);
  await look('a');
  expect(recorded).toEqual(['a', 'a']);
  later(100);
  await look('a');
  expect(recorded).toEqual(['a', 'a', 'a']);
  // a clock that is set back does not extend a viewing
  later(-100);
  await look('a');
  expect(recorded).toHaveLength(4);
});

it('a limited number of viewings is known, and the oldest is forgotten first', async () => {
  const { recorded, look } = bench(2);
  for (const key of ['a', 'b', 'a', 'b', 'c', 'b', 'c', 'a']) await look(key);
  expect(recorded).toEqual(['a', 'b', 'c', 'a']);
});

it('a viewing whose event could not be stored is recorded again', async () => {
  const { recorded, look } = bench();
  await expect(look('a', Promise.reject(new Error('full')))).rejects.toThrow('full');
  await look('a');
  expect(recorded).toEqual(['a', 'a']);
});
