/** What the nameserver counts. */
import { Counter, type Registry } from 'prom-client';

export function createNameserverMetrics(registry: Registry): Counter<'transport' | 'code'> {
  return new Counter({
    name: 'tailcast_nameserver_answers_total',
    help: 'Answers, by transport and response code; NONE: what got no answer.',
    labelNames: ['transport', 'code'],
    registers: [registry],
  });
}
