/** What only the primary counts. Its sessions are added to those that the workers count under the same name. */
import { Gauge, Registry, type Counter } from 'prom-client';
import { createMakers } from '../observe/metric-makers.ts';
import { endedSessions } from '../observe/metrics.ts';
import type { Worker } from './supervisor.ts';

/** @param workers asked at scrape time for all processes, those that drain included */
export function createPrimaryMetrics(workers: () => readonly Pick<Worker, 'state'>[]): {
  readonly registry: Registry;
  readonly ends: Counter<'wanted'>;
  readonly lostSessions: Counter;
  readonly sessions: Counter<'outcome'>;
} {
  const registry = new Registry();
  const makers = createMakers(registry);
  const states = new Gauge({
    name: 'tailcast_workers',
    help: 'Worker processes, by state.',
    labelNames: ['state'],
    registers: [registry],
    collect() {
      const all = workers();
      for (const state of ['starting', 'ready', 'stopping'] as const) {
        states.set({ state }, all.filter((worker) => worker.state === state).length);
      }
    },
  });
  makers.gauge('tailcast_primary_resident_memory_bytes', 'Memory of the process over the workers.', () =>
    process.memoryUsage.rss(),
  );
  return {
    registry,
    ends: makers.labelled(
      'tailcast_worker_ends_total',
      'Worker processes that ended; wanted: they had been told to.',
      'wanted',
    ),
    lostSessions: makers.counter(
      'tailcast_sessions_lost_total',
      'Interactive sessions that ended with their worker process.',
    ),
    sessions: endedSessions(makers),
  };
}
