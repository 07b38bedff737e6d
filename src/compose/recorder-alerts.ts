/** Opens the alerts of a recorder, and runs the actions of its alert rules. */
import { join } from 'node:path';
import { Registry } from 'prom-client';
import type { Reviews } from '../tsrecorder/evidence/reviews.ts';
import { createStatements } from '../tsrecorder/evidence/statement.ts';
import { createAlertMetrics } from '../tsrecorder/search/alerts/alert-metrics.ts';
import { openAlerts, type Alerts } from '../tsrecorder/search/alerts/alerts.ts';
import type { RecordingStore } from '../tsrecorder/store/store.ts';
import type { Intake } from './recorder-intake.ts';
import type { SettledOptions } from './recorder-options.ts';

interface AlertParts extends Pick<Intake, 'catalog' | 'evidence' | 'trusted'> {
  readonly reviews: Reviews;
}

/** Opens the alerts of a recorder, if there are rules. */
export async function openRecorderAlerts(
  { alerts, spoolDirectory, registry, clock, timing, log }: SettledOptions,
  store: RecordingStore,
  { catalog, evidence, trusted, reviews }: AlertParts,
): Promise<Alerts | undefined> {
  if (alerts === undefined) return undefined;
  return openAlerts({
    ...alerts,
    directory: join(spoolDirectory, 'alerts'),
    catalog,
    store,
    signer: createStatements('alert', evidence.key, trusted),
    leaseMs: timing.leaseMs,
    nowMs: () => clock.now(),
    now: () => clock.monotonic(),
    async order({ id }, rule, action) {
      const orders = (await catalog.find(id))?.live?.orders;
      // `orders` is undefined if another recorder receives the session. That recorder has the same rules, and sends the
      // session order itself.
      await orders?.give({ action, by: `rule ${rule}`, reason: 'the session matched it' });
      return orders !== undefined;
    },
    mark: (recording, rule, seconds) => reviews.mark(recording, rule, seconds),
    markSlow: (recording, rule) => reviews.markSlow(recording, rule),
    metrics: (status) => createAlertMetrics(registry ?? new Registry(), status),
    log,
  });
}
