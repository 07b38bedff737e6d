import { Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { createSearchMetrics } from '../../../src/tsrecorder/search/search-metrics.ts';

describe('the metrics of a search', () => {
  it('count a failed query by its code, but not an invalid query or a successful one', async () => {
    const registry = new Registry();
    const metrics = createSearchMetrics(registry);
    for (const code of [undefined, 'SEARCH_BUSY', 'SEARCH_UNAVAILABLE', 'SEARCH_BUSY', 'REQUEST_MALFORMED'])
      metrics.asked('find', 0.001, code);
    const failures = (await registry.metrics()).match(/^tailcast_search_query_failures_total\{.*$/gm);
    expect(failures).toEqual([
      'tailcast_search_query_failures_total{code="SEARCH_BUSY"} 2',
      'tailcast_search_query_failures_total{code="SEARCH_UNAVAILABLE"} 1',
    ]);
  });
});
