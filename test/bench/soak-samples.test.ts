import { describe, expect, it } from 'vitest';
import { metricOf, trendsOf, type Sample } from '../../bench/soak/samples.ts';

const MEBIBYTE = 1024 ** 2;

/**
 * Creates samples for two minutes, one every two seconds. The heap follows a saw-tooth, and `heap` returns its minimum.
 */
function run(shape: (seconds: number) => { readonly heap: number; readonly fds: number }): Sample[] {
  return Array.from({ length: 60 }, (_, index) => {
    const seconds = index * 2;
    const { heap, fds } = shape(seconds);
    const sawTooth = (index % 7) * 9 * MEBIBYTE;
    return {
      seconds,
      rssBytes: 180 * MEBIBYTE,
      heapBytes: heap * MEBIBYTE + sawTooth,
      externalBytes: undefined,
      fds: fds + (index === 45 ? 500 : 0),
      handles: undefined,
    };
  });
}

function flat(samples: readonly Sample[], quantity: string): boolean | undefined {
  return trendsOf(samples).find((trend) => trend.quantity === quantity)?.flat;
}

describe('the verdict of a soak', () => {
  it('takes the collector’s saw-tooth, a warm-up and a spike for flat', () => {
    const samples = run((seconds) => ({ heap: 40 + Math.min(seconds, 40), fds: 300 }));
    expect(trendsOf(samples).map((trend) => [trend.quantity, trend.flat])).toEqual([
      ['rssBytes', true],
      ['heapBytes', true],
      ['fds', true],
    ]);
  });

  it('finds what grows under the saw-tooth, and descriptors that are not given back', () => {
    const samples = run((seconds) => ({ heap: 40 + seconds / 2, fds: 300 + seconds }));
    expect(flat(samples, 'heapBytes')).toBe(false);
    expect(flat(samples, 'fds')).toBe(false);
    expect(flat(samples, 'rssBytes')).toBe(true);
  });

  it('sums a metric over its labels', () => {
    const text = '# HELP a_total x\na_total{code="1"} 2\na_total{code="2"} 3\na_total_more 9\nb 4\n';
    expect(metricOf(text, 'a_total')).toBe(5);
    expect(metricOf(text, 'b')).toBe(4);
    expect(metricOf(text, 'c')).toBeUndefined();
  });
});
