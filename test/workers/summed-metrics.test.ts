import { Counter, Gauge, Histogram, Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { SummedMetrics } from '../../src/workers/summed-metrics.ts';

function createWorkerMetrics() {
  const registry = new Registry();
  const registers = [registry];
  return {
    registry,
    requests: new Counter({ name: 'requests_total', help: 'r', labelNames: ['code'], registers }),
    open: new Gauge({ name: 'open', help: 'o', registers }),
    seconds: new Histogram({ name: 'seconds', help: 's', buckets: [1, 2], registers }),
  };
}

describe('metrics of several workers', () => {
  it('are summed', async () => {
    const sums = new SummedMetrics();
    for (const count of [2, 3]) {
      const { registry, requests, open, seconds } = createWorkerMetrics();
      requests.inc({ code: '200' }, count);
      open.set(count);
      seconds.observe(count - 1);
      sums.update({}, await registry.getMetricsAsJSON());
    }
    const text = await sums.text([]);
    expect(text).toContain('requests_total{code="200"} 5\n');
    expect(text).toContain('open 5\n');
    expect(text).toContain('seconds_bucket{le="1"} 1\n');
    expect(text).toContain('seconds_count 2\n');
    expect(text).toContain('# TYPE requests_total counter');
  });

  it('never fall back when workers end, however many', async () => {
    const sums = new SummedMetrics();
    for (let ended = 1; ended <= 30; ended++) {
      const worker = {};
      const { registry, requests, open, seconds } = createWorkerMetrics();
      requests.inc({ code: '200' });
      open.set(7);
      seconds.observe(1);
      sums.update(worker, await registry.getMetricsAsJSON());
      sums.retire(worker);
      const text = await sums.text([]);
      expect(text).toContain(`requests_total{code="200"} ${ended}\n`);
      expect(text).toContain(`seconds_sum ${ended}\n`);
      expect(text).not.toContain('open 7');
    }
  });
});
