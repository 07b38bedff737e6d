/** Metrics of alerts. */
import type { Registry } from 'prom-client';
import { createMakers } from '../../../observe/metric-makers.ts';

export interface AlertStatus {
  readonly waiting: number;
  readonly oldestSeconds: number;
  /** Number of rules that were switched off for a session since the recorder started. */
  readonly slowRules: number;
}

export type AlertMetrics = ReturnType<typeof createAlertMetrics>;

/** Creates the metrics. @param status called at each scrape */
export function createAlertMetrics(registry: Registry, status: () => AlertStatus) {
  const { counter, labelled, gauge } = createMakers(registry);
  gauge('tailcast_recorder_alerts_waiting', 'Undelivered alerts.', () => status().waiting);
  gauge(
    'tailcast_recorder_alert_oldest_waiting_seconds',
    'Age of the oldest undelivered alert; 0 if there is none.',
    () => status().oldestSeconds,
  );
  gauge(
    'tailcast_recorder_rules_slow',
    'Rules that were disabled for at least one session since the start, because their pattern was too slow.',
    () => status().slowRules,
  );
  return {
    actions: labelled(
      'tailcast_recorder_rule_actions_total',
      'Actions of rules, by outcome: the session was marked, held or ended, or the action failed.',
      'outcome',
      ['marked', 'held', 'ended', 'failed'],
    ),
    alerts: labelled(
      'tailcast_recorder_alerts_total',
      'Alerts, by outcome: made (created), delivered, elsewhere (delivered by another recorder), givenUp (too old, ' +
        'too many, no webhook), withheld (the viewer lost access).',
      'outcome',
      ['made', 'delivered', 'elsewhere', 'givenUp', 'withheld'],
    ),
    failures: counter(
      'tailcast_recorder_alert_delivery_failures_total',
      'Failed deliveries of alerts. The recorder retries.',
    ),
  };
}
