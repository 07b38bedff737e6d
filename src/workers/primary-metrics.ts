/** What only the primary counts. Its sessions are added to those that the workers count under the same name. */
import { Counter, Gauge, Registry } from 'prom-client';
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
  const registers = [registry];
  const states = new Gauge({
    name: 'tailcast_workers',
    help: 'Worker processes, by state.',
    labelNames: ['state'],
    registers,
    collect() {
      const all = workers();
      for (const state of ['starting', 'ready', 'stopping'] as const) {
        states.set({ state }, all.filter((worker) => worker.state === state).length);
      }
    },
  });
  const resident: Gauge = new Gauge({
    name: 'tailcast_primary_resident_memory_bytes',
    help: 'Memory of the process over the workers.',
    registers,
    collect: () => resident.set(process.memoryUsage.rss()),
  });
  return {
    registry,
    ends: new Counter({
      name: 'tailcast_worker_ends_total',
      help: 'Worker processes that ended; wanted: they had been told to.',
      labelNames: ['wanted'],
      registers,
    }),
    lostSessions: new Counter({
      name: 'tailcast_sessions_lost_total',
      help: 'Interactive sessions that ended with their worker process.',
      registers,
    }),
    sessions: endedSessions(registers),
  };
}
