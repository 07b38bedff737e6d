/** What is counted of alerts. */
import type { Registry } from 'prom-client';
import { createMakers } from '../../../observe/metric-makers.ts';

export interface AlertStatus {
  readonly waiting: number;
  readonly oldestSeconds: number;
}

export type AlertMetrics = ReturnType<typeof createAlertMetrics>;

/** @param status asked for at scrape time */
export function createAlertMetrics(registry: Registry, status: () => AlertStatus) {
  const { counter, labelled, gauge } = createMakers(registry);
  gauge('tailcast_recorder_alerts_waiting', 'Alerts that no webhook has taken yet.', () => status().waiting);
  gauge(
    'tailcast_recorder_alert_oldest_waiting_seconds',
    'Age of the oldest alert that no webhook has taken yet; 0 when none waits.',
    () => status().oldestSeconds,
  );
  return {
    alerts: labelled(
      'tailcast_recorder_alerts_total',
      'Alerts, by what became of them: made, delivered, told already (mostly by another recorder of the store), given up (too old, too many of a rule, no such webhook any more), withheld (its viewer may not see the session any more).',
      'outcome',
      ['made', 'delivered', 'elsewhere', 'givenUp', 'withheld'],
    ),
    failures: counter(
      'tailcast_recorder_alert_delivery_failures_total',
      'Deliveries of alerts that failed and are tried again.',
    ),
  };
}
