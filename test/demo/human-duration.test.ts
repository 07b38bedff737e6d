import { expect, it } from 'vitest';
import { humanDuration } from '../../demo/human-duration.ts';

const [S, M, H, D] = [1000, 60_000, 3_600_000, 86_400_000];

// Cases from the tests of apimachinery.
it.each([
  [-S, '0s'],
  [0, '0s'],
  [119 * S, '119s'],
  [2 * M, '2m'],
  [3 * M + 3 * S, '3m3s'],
  [9 * M + 59 * S, '9m59s'],
  [10 * M + 5 * S, '10m'],
  [179 * M, '179m'],
  [3 * H + 5 * M, '3h5m'],
  [8 * H + 5 * M, '8h'],
  [47 * H, '47h'],
  [2 * D + 3 * H, '2d3h'],
  [8 * D + 3 * H, '8d'],
  [729 * D, '729d'],
  [2 * 365 * D, '2y'],
  [3 * 365 * D + 10 * D, '3y10d'],
  [8 * 365 * D + 10 * D, '8y'],
])('%d ms is %s', (ms, text) => {
  expect(humanDuration(ms)).toBe(text);
});
