/** Metrics of the forwarder. */
import { Counter, Gauge, type Registry } from 'prom-client';
import type { ForwardOutcome } from './server.ts';

export interface ForwarderMetrics {
  readonly ended: Counter<'outcome'>;
}

/** @param open returns the number of open connections */
export function createForwarderMetrics(registry: Registry, open: () => number): ForwarderMetrics {
  const ended = new Counter({
    name: 'tailcast_forwarder_connections_total',
    help: 'Closed connections, by outcome: done, broken, unreachable, or refused at the limit.',
    labelNames: ['outcome'],
    registers: [registry],
  });
  for (const outcome of ['done', 'broken', 'unreachable', 'refused'] satisfies ForwardOutcome[])
    ended.inc({ outcome }, 0);
  new Gauge({
    name: 'tailcast_forwarder_open_connections',
    help: 'Open connections.',
    registers: [registry],
    collect() {
      this.set(open());
    },
  });
  return { ended };
}
