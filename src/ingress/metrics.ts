/** Metrics of `tailcast ingress`. */
import type { Counter, Registry } from 'prom-client';
import { createMakers } from '../observe/metric-makers.ts';
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

/** @param open function that returns the number of in-flight requests */
export function createIngressMetrics(registry: Registry, open: () => number): IngressMetrics {
  const { gauge, labelled } = createMakers(registry);
  gauge('tailcast_ingress_open_requests', 'Requests in flight, including WebSockets.', open);
  return {
    requests: labelled(
      'tailcast_ingress_requests_total',
      'Requests that have ended, by outcome: served, redirected, refused (no route, unknown caller or stalled body), ' +
        'unreachable (no response from the Service), broken (connection lost), overloaded (too many requests).',
      'outcome',
      OUTCOMES,
    ),
  };
}
