/** Metrics of `tailcast ingress`. */
import { Counter, Gauge, type Registry } from 'prom-client';
import type { RequestOutcome } from './server.ts';

export interface IngressMetrics {
  readonly requests: Counter<'outcome'>;
}

const OUTCOMES = [
  'served',
  'redirected',
  'refused',
  'unreachable',
  'broken',
  'overloaded',
] as const satisfies readonly RequestOutcome[];

/** @param open returns the number of in-flight requests */
export function createIngressMetrics(registry: Registry, open: () => number): IngressMetrics {
  const requests = new Counter({
    name: 'tailcast_ingress_requests_total',
    help: `Requests that have ended, by outcome: ${OUTCOMES.join(', ')}.`,
    labelNames: ['outcome'],
    registers: [registry],
  });
  for (const outcome of OUTCOMES) requests.inc({ outcome }, 0);
  new Gauge({
    name: 'tailcast_ingress_open_requests',
    help: 'Requests in flight, including WebSockets.',
    registers: [registry],
    collect() {
      this.set(open());
    },
  });
  return { requests };
}
