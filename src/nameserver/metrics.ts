/** Metrics of the nameserver. */
import { Counter, type Registry } from 'prom-client';

export function createNameserverMetrics(registry: Registry): Counter<'transport' | 'code'> {
  return new Counter({
    name: 'tailcast_nameserver_answers_total',
    help: 'Responses, by transport (udp, tcp) and DNS response code. NONE: invalid queries that got no response.',
    labelNames: ['transport', 'code'],
    registers: [registry],
  });
}
