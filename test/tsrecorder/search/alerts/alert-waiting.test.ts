/** Delivery times of webhooks, with a clock that the test controls. */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Registry } from 'prom-client';
import { beforeEach, describe, expect, it } from 'vitest';
import { TailcastError } from '../../../../src/errors.ts';
import { createSilentLogger } from '../../../../src/observe/logger.ts';
import { generateSigningKey } from '../../../../src/tsrecorder/evidence/signing-key.ts';
import { createStatements } from '../../../../src/tsrecorder/evidence/statement.ts';
import { createAlertMetrics } from '../../../../src/tsrecorder/search/alerts/alert-metrics.ts';
import { openAlerts, type AlertSettings } from '../../../../src/tsrecorder/search/alerts/alerts.ts';
import type { Alert } from '../../../../src/tsrecorder/search/alerts/alert.ts';
import { MAX_WAITING, WebhookSender } from '../../../../src/tsrecorder/search/alerts/webhook-sender.ts';
import { createDiskStore } from '../../../../src/tsrecorder/store/disk.ts';
import { ACCESS_EVENT_TYPE } from '../../../../src/wire/recorder-api/access-event.ts';
import type { Recording } from '../../../../src/wire/recorder-api/recording.ts';
import { until } from '../../recorder-rig.ts';
import { alertsFor, openReceiver } from './webhook-receiver.ts';

let directory: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tcalerts-'));
});

function recordingOf(id: string, namespace = 'prod'): Recording {
  return {
    id,
    key: `${id}.cast`,
    state: 'completed',
    startedAt: '2027-01-15T08:00:00Z',
    bytes: 1,
    width: 80,
    height: 24,
    kind: 'exec',
    source: { node: 'laptop', nodeId: 'nLAPTOP', user: 'alice@example.com' },
    destination: { node: 'gate', nodeId: 'nGATE' },
    kubernetes: { namespace, pod: 'web-0', container: 'app' },
  };
}

const KEY = generateSigningKey();

async function openWith(settings: AlertSettings) {
  const clock = { seconds: 0 };
  /** Times at which alerts were sent, in seconds of the test clock. */
  const sentAt: number[] = [];
  let failures = 0;
  const recordings = new Map<string, Recording>();
  const disk = await createDiskStore(join(directory, 'store'));
  const store = { isFull: false, claims: 0 };
  const alerts = await openAlerts({
    ...settings,
    retry: { baseMs: 5, maxMs: 50 },
    directory,
    catalog: {
      find: async (id) => {
        const recording = recordings.get(id);
        return recording === undefined ? undefined : ({ recording } as never);
      },
    },
    store: {
      ...disk,
      async claimDocument(name, content) {
        store.claims += 1;
        if (store.isFull) throw new TailcastError('STORE_FAILED', 'ENOSPC');
        return disk.claimDocument(name, content);
      },
    },
    signer: createStatements('alert', KEY, new Map([[KEY.public.id, KEY.public]])),
    leaseMs: 60_000,
    nowMs: () => 1_800_000_000_000 + clock.seconds * 1000,
    now: () => clock.seconds * 1000,
    metrics: (status) => {
      const metrics = createAlertMetrics(new Registry(), status);
      return { ...metrics, failures: { inc: () => void (failures += 1) } as typeof metrics.failures };
    },
    log: createSilentLogger(),
    onStep: (step) => void (step === 'sending' && sentAt.push(clock.seconds)),
  });
  const [rule] = alerts.rules;
  return {
    alerts,
    clock,
    sentAt,
    store,
    marks: () => disk.listDocuments('.alerts/'),
    failed: () => failures,
    change: (recording: Recording) => void recordings.set(recording.id, recording),
    match(recording: Recording): Promise<void> {
      recordings.set(recording.id, recording);
      return alerts.matched(recording, [{ rule: rule!.id }]);
    },
  };
}

it('an event is stored although its notification cannot be stored', async () => {
  await using receiver = await openReceiver();
  receiver.answer = 503;
  const rules = [{ name: 'access', query: undefined, webhook: 'hook' }];
  const { alerts } = await openWith({ ...alertsFor(receiver.url), rules });
  const access = {
    step: 'requested',
    request: 'k7m2p9xq4t',
    requester: 'alice@example.com',
    node: 'laptop',
    groups: ['sre'],
    user: '',
    writes: false,
    namespaces: [],
    reason: '',
    call: '',
    durationSeconds: 60,
    expires: '',
    approvers: [],
    approvalsMissing: 1,
    comment: '',
  };
  const place = { source: { node: 'laptop' }, destination: { node: 'gate' } };
  const stored = (more: object): string =>
    JSON.stringify({
      stableID: 'nGATE',
      event: { type: ACCESS_EVENT_TYPE, timestamp: 1, access: { ...access, ...more }, ...place },
    });
  await alerts.eventStored(stored({}));
  expect(alerts.status().waiting).toBe(1);
  // closes the journal, so that it rejects all later writes
  await alerts.close();
  await expect(alerts.eventStored(stored({ step: 'denied' }))).resolves.toBeUndefined();
});

describe('too many pending alerts of a rule', () => {
  const alertOf = (id: string, more: Partial<Alert>): Alert => ({
    id,
    rule: 'access',
    query: '',
    webhook: 'hook',
    session: id,
    firedAtMs: 0,
    marks: [],
    ...more,
  });

  it.each<[string, Partial<Alert>, Partial<Alert>]>([
    ['user', { marks: ['user:alice@example.com'] }, { marks: ['user:eve@example.com'] }],
    ['gateway', { access: { gateway: 'gate' } as never }, { access: { gateway: 'forger' } as never }],
  ])('drop the oldest one of the %s with the most', (_name, quiet, flooding) => {
    const sender = new WebhookSender({
      name: 'hook',
      journal: { recorder: 'r' },
      signal: AbortSignal.abort(),
      now: () => 0,
      leaseMs: 1000,
    } as never);
    const dropped: string[] = [];
    const add = (alert: Alert): void => void dropped.push(...[sender.add(alert)].flatMap((a) => a?.id ?? []));
    add(alertOf('first', quiet));
    for (let at = 0; at < MAX_WAITING + 1; at += 1) add(alertOf(`flood-${at}`, flooding));
    add(alertOf('last', quiet));
    expect(dropped).toEqual(['flood-0', 'flood-1', 'flood-2']);
  });
});

describe('a webhook', () => {
  it.each([
    [429, 60],
    [500, 60],
    [503, 60],
  ])('that responds with %i gets none of its alerts for the requested time', async (answer, wait) => {
    await using receiver = await openReceiver();
    receiver.answer = answer;
    receiver.retryAfter = String(wait);
    const { alerts, clock, sentAt, failed, match } = await openWith(alertsFor(receiver.url));
    await match(recordingOf('one'));
    await until(async () => (failed() === 1 ? true : undefined));
    // a new alert is stored and wakes the sender, but must not send the waiting alert early
    await match(recordingOf('two'));
    clock.seconds = wait - 1;
    await match(recordingOf('three'));
    expect(sentAt).toEqual([0]);
    receiver.answer = 204;
    clock.seconds = wait;
    await match(recordingOf('four'));
    await until(async () => (alerts.status().waiting === 0 ? true : undefined));
    expect(sentAt).toEqual([0, wait, wait, wait, wait]);
    await alerts.close();
  });

  it('gets an alert whose recording was changed while the alert was pending', async () => {
    await using receiver = await openReceiver();
    receiver.answer = 503;
    const settings = alertsFor(receiver.url, 'needle', { scope: ['namespace:prod'], text: true });
    const { alerts, clock, failed, match, change } = await openWith(settings);
    await match(recordingOf('one'));
    await until(async () => (failed() === 1 ? true : undefined));
    change({ ...recordingOf('one', 'elsewhere'), trust: 'failed' });
    receiver.answer = 204;
    clock.seconds = 120;
    await match(recordingOf('two'));
    await until(async () => (alerts.status().waiting === 0 ? true : undefined));
    const messages = receiver.received.map(({ data }) => data.recording);
    expect(messages).toContainEqual({ id: 'one', isChanged: true });
    expect(receiver.received.map(({ raw }) => raw).join('')).not.toContain('elsewhere');
    await alerts.close();
  });

  it('that does not accept one alert gets the others', async () => {
    await using receiver = await openReceiver();
    receiver.answer = 404;
    receiver.retryAfter = '60';
    const { alerts, sentAt, failed, match } = await openWith(alertsFor(receiver.url));
    await match(recordingOf('one'));
    await match(recordingOf('two'));
    await until(async () => (failed() >= 2 ? true : undefined));
    expect(new Set(receiver.received.map(({ data }) => data.recording['id']))).toEqual(
      new Set(['one', 'two']),
    );
    expect(sentAt.every((seconds) => seconds === 0)).toBe(true);
    await alerts.close();
  });

  it('does not get alerts that its viewer may not see, whatever the index contains', async () => {
    await using receiver = await openReceiver();
    const { alerts, match } = await openWith(alertsFor(receiver.url, 'needle', { scope: ['namespace:dev'] }));
    await match(recordingOf('hidden', 'prod'));
    await match(recordingOf('shown', 'dev'));
    await until(async () => (receiver.received.length > 0 ? true : undefined));
    expect(receiver.received.map(({ data }) => data.recording['id'])).toEqual(['shown']);
    await alerts.close();
  });

  it('gets an alert without a claim if the store accepts none for a lease, and the mark is written later', async () => {
    await using receiver = await openReceiver();
    const { alerts, clock, sentAt, store, marks, match } = await openWith(alertsFor(receiver.url));
    store.isFull = true;
    await match(recordingOf('one'));
    for (const [at, seconds] of [0, 30, 59].entries()) {
      clock.seconds = seconds;
      await until(async () => (store.claims > at ? true : undefined));
    }
    expect([store.claims, sentAt]).toEqual([3, []]);
    clock.seconds = 60;
    await until(async () => (alerts.status().waiting === 0 ? true : undefined));
    // the long delay of the first alert does not apply to later alerts
    await match(recordingOf('two'));
    await until(async () => {
      // advances the test clock, which determines when waiting alerts are due
      clock.seconds += 1;
      return alerts.status().waiting === 0 ? true : undefined;
    });
    expect(sentAt).toHaveLength(2);
    expect(await marks()).toEqual([]);
    store.isFull = false;
    await until(async () => {
      clock.seconds += 1;
      return (await marks()).filter((name) => name.endsWith('.told')).length === 2 ? true : undefined;
    });
    expect(receiver.received.map(({ data }) => data.recording['id'])).toEqual(['one', 'two']);
    await alerts.close();
  });
});
