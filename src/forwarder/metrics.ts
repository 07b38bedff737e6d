/** Metrics of the forwarder. */
import type { Counter, Registry } from 'prom-client';
import { createMakers } from '../observe/metric-makers.ts';
import type { ForwardOutcome } from './server.ts';

export interface ForwarderMetrics {
  readonly ended: Counter<'outcome'>;
}

/** @param open function that returns the number of open connections */
export function createForwarderMetrics(registry: Registry, open: () => number): ForwarderMetrics {
  const { gauge, labelled } = createMakers(registry);
  gauge('tailcast_forwarder_open_connections', 'Open connections.', open);
  return {
    ended: labelled(
      'tailcast_forwarder_connections_total',
      'Closed connections, by outcome: done, broken (one side was lost), unreachable (no connection to the target), ' +
        'refused (connection limit, or loopback source).',
      'outcome',
      ['done', 'broken', 'unreachable', 'refused'] satisfies ForwardOutcome[],
    ),
  };
}
