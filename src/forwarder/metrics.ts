/** What the forwarder counts. */
import { Counter, Gauge, type Registry } from 'prom-client';
import type { ForwardOutcome } from './server.ts';

export interface ForwarderMetrics {
  readonly ended: Counter<'outcome'>;
}

/** @param open how many connections there are now */
export function createForwarderMetrics(registry: Registry, open: () => number): ForwarderMetrics {
  const ended = new Counter({
    name: 'tailcast_forwarder_connections_total',
    help: 'Connections that have ended, by outcome: done, broken, unreachable (the target), refused (there were too many).',
    labelNames: ['outcome'],
    registers: [registry],
  });
  for (const outcome of ['done', 'broken', 'unreachable', 'refused'] satisfies ForwardOutcome[])
    ended.inc({ outcome }, 0);
  new Gauge({
    name: 'tailcast_forwarder_open_connections',
    help: 'Connections that are open now.',
    registers: [registry],
    collect() {
      this.set(open());
    },
  });
  return { ended };
}
