/** Alerts of a recorder, over real uploads, its real index and webhooks on loopback. */
import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import type { RecorderOptions } from '../../../../src/compose/recorder-options.ts';
import { parseQuery } from '../../../../src/search/query.ts';
import { createRig, HEADER, openUpload, until, uploadWhole, type Rig } from '../../recorder-rig.ts';
import { createTestAuthority } from '../../../support/issued-certificates.ts';
import { alertsFor, openReceiver, type Received, type Receiver } from './webhook-receiver.ts';

const SEARCHING = { searchText: 'all' } as const;

function cast(text: string, namespace = 'prod', command = 'sh -i'): string {
  const header = HEADER.replace('"Namespace":"prod"', `"Namespace":"${namespace}"`).replace(
    '"command":"sh -i"',
    `"command":${JSON.stringify(command)}`,
  );
  return `${header}${JSON.stringify([1.5, 'o', `${text}\r\n`])}\n`;
}

function delivered({ received }: Receiver, count: number): Promise<readonly Received[]> {
  return until(async () => (received.length >= count ? received : undefined));
}

/** Resolves when all stored sessions are indexed and matched against the rules. */
async function indexed(rig: Rig, sessions: number): Promise<void> {
  await until(async () => {
    const { body, status } = await rig.get('/api/v1/index');
    const { state, sessions: count } = JSON.parse(body) as { state?: string; sessions?: number };
    return status === 200 && state === 'ready' && count === sessions ? true : undefined;
  });
}

const journalOf = (rig: Rig): Promise<string> =>
  readFile(join(rig.spool, 'alerts', 'alerts.journal'), 'utf8');

async function settled(rig: Rig): Promise<void> {
  await until(async () => ((await journalOf(rig)).includes('"settled"') ? true : undefined));
}

function counted(registry: Registry, outcome: string): Promise<number> {
  return registry
    .getSingleMetric('tailcast_recorder_alerts_total')!
    .get()
    .then(({ values }) => values.find(({ labels }) => labels['outcome'] === outcome)?.value ?? 0);
}

describe('an alert', () => {
  it('is sent while the session runs, once, and without text', async () => {
    await using receiver = await openReceiver();
    await using rig = await createRig({
      ...SEARCHING,
      alerts: alertsFor(receiver.url, 'ns:prod needle', { player: 'https://gate.example.com/-/recordings/' }),
    });
    const upload = openUpload(rig.recorder);
    upload.write(cast('hay'));
    upload.write('[7.5,"o","a needle in it\\r\\n"]\n');
    const [alert] = await delivered(receiver, 1);
    expect(Math.abs(alert!.sentAt - Date.now() / 1000)).toBeLessThan(300);
    const [recording] = await rig.list();
    expect(recording?.state).toBe('running');
    expect(alert).toMatchObject({
      id: expect.stringMatching(/^alert_[0-9a-f]{32}$/),
      type: 'tailcast.alert',
      data: {
        id: alert!.id,
        rule: 'found',
        query: 'ns:prod needle',
        recording: {
          id: recording!.id,
          state: 'running',
          kind: 'exec',
          source: { user: 'a@example.com' },
          kubernetes: { namespace: 'prod', pod: 'web-0' },
        },
        at: 7.5,
        link: `https://gate.example.com/-/recordings/#/r/${encodeURIComponent(recording!.id)}?t=5`,
      },
    });
    // restricted viewers do not get screen text and commands
    for (const text of ['in it', 'sh -i']) expect(alert!.raw).not.toContain(text);
    upload.write('[9,"o","another needle\\r\\n"]\n');
    upload.end();
    await upload.over;
    await uploadWhole(rig.recorder, cast('needle', 'dev'));
    await indexed(rig, 2);
    // the alert of a later upload arrives next, which proves that the previous upload caused no alert
    await uploadWhole(rig.recorder, cast('needle of another'));
    expect((await delivered(receiver, 2)).map(({ data }) => data.recording['id'])).toEqual([
      recording!.id,
      (await rig.list('?namespace=prod'))[0]!.id,
    ]);
  });

  it('contains the matching text without secrets, if the webhook requests it', async () => {
    await using receiver = await openReceiver();
    await using rig = await createRig({
      ...SEARCHING,
      alerts: alertsFor(receiver.url, 'needle', { text: true }),
    });
    const command = 'mysql -pcanaryword';
    await uploadWhole(rig.recorder, cast('needle password=canaryword', 'prod', command));
    const [alert] = await delivered(receiver, 1);
    expect(alert!.data.hit).toEqual({
      text: 'needle password=[secret]',
      marks: [[0, 6]],
      isCommand: false,
    });
    expect(alert!.data.recording['command']).toBe('mysql -p[secret]');
    expect(`${alert!.raw}${await journalOf(rig)}`).not.toContain('canaryword');
  });

  it('is sent until it is accepted, with one id, also by the next process', async () => {
    await using receiver = await openReceiver();
    receiver.answer = 503;
    const registry = new Registry();
    await using rig = await createRig({ ...SEARCHING, registry, alerts: alertsFor(receiver.url) });
    await uploadWhole(rig.recorder, cast('needle'));
    await delivered(receiver, 3);
    expect(await registry.metrics()).toContain('tailcast_recorder_alerts_waiting 1');
    const current = await rig.restart({ registry: new Registry() });
    const before = receiver.received.length;
    await delivered(receiver, before + 2);
    receiver.answer = 200;
    await settled(current);
    expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(1);
    const count = receiver.received.length;
    const last = await current.restart({ registry: new Registry() });
    await uploadWhole(last.recorder, cast('another needle'));
    await delivered(receiver, count + 1);
    expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(2);
    expect(receiver.received).toHaveLength(count + 1);
    await last.recorder.close();
  });

  it('waits for an unavailable webhook, without delaying other alerts', async () => {
    await using gone = await openReceiver();
    await using there = await openReceiver();
    const url = gone.url;
    await gone[Symbol.asyncDispose]();
    const { webhooks, ...settings } = alertsFor(url);
    await using rig = await createRig({
      ...SEARCHING,
      alerts: {
        ...settings,
        rules: [...settings.rules, { name: 'other', query: parseQuery('needle', 0), webhook: 'there' }],
        webhooks: new Map([...webhooks, ['there', alertsFor(there.url).webhooks.get('hook')!]]),
      },
    });
    await uploadWhole(rig.recorder, cast('needle'));
    const [other] = await delivered(there, 1);
    expect(other!.data.rule).toBe('other');
    await using back = await openReceiver(undefined, Number(new URL(url).port));
    const [found] = await delivered(back, 1);
    expect(found!.data.rule).toBe('found');
    expect(found!.id).not.toBe(other!.id);
  });

  it('is not sent again after an index rebuild, and not for sessions from before the rule', async () => {
    await using receiver = await openReceiver();
    const startedAt = Date.now();
    let now = startedAt;
    const clock = { now: () => now, monotonic: () => performance.now() };
    const alerts = alertsFor(receiver.url);
    await using rig = await createRig({ ...SEARCHING, clock, alerts });
    await uploadWhole(rig.recorder, cast('needle'));
    await delivered(receiver, 1);
    await settled(rig);
    await rig.recorder.close();
    await rm(join(rig.spool, 'search'), { recursive: true });
    now = startedAt + 3_600_000;
    const rules = [...alerts.rules, { name: 'new', query: parseQuery('needle', 0), webhook: 'hook' }];
    const current = await createRig({ ...SEARCHING, clock, alerts: { ...alerts, rules } }, rig.directory);
    await indexed(current, 1);
    await uploadWhole(current.recorder, cast('needle again'));
    expect((await delivered(receiver, 3)).map(({ data }) => data.rule).toSorted()).toEqual([
      'found',
      'found',
      'new',
    ]);
    const [first, ...others] = receiver.received.map(({ data }) => data.recording['id']);
    expect(others).not.toContain(first);
    await current.recorder.close();
  });

  it('is sent only if the viewer of its webhook may see the recording at that time', async () => {
    await using receiver = await openReceiver();
    receiver.answer = 503;
    const registry = new Registry();
    const alerts = alertsFor(receiver.url, 'needle', { scope: ['namespace:dev'], text: true });
    await using rig = await createRig({ ...SEARCHING, alerts });
    await uploadWhole(rig.recorder, cast('needle hidden', 'prod'));
    await uploadWhole(rig.recorder, cast('needle shown', 'dev'));
    await delivered(receiver, 2);
    await indexed(rig, 2);
    expect(await journalOf(rig)).not.toContain('hidden');
    for (const { raw } of receiver.received) expect(raw).not.toContain('hidden');
    // the recorder's rules change while the alert waits
    const narrowed = alertsFor(receiver.url, 'needle', { scope: ['namespace:test'], text: true });
    await rig.recorder.close();
    const count = receiver.received.length;
    receiver.answer = 204;
    const current = await createRig({ ...SEARCHING, registry, alerts: narrowed }, rig.directory);
    await until(async () => ((await counted(registry, 'withheld')) === 1 ? true : undefined));
    expect(receiver.received).toHaveLength(count);
    await current.recorder.close();
  });

  it('is not sent about a recording that retention has removed meanwhile', async () => {
    await using receiver = await openReceiver();
    receiver.answer = 500;
    const startedAt = Date.now();
    let now = startedAt;
    const options: Partial<RecorderOptions> = {
      ...SEARCHING,
      clock: { now: () => now, monotonic: () => performance.now() },
      retention: { maxAgeMs: 600_000 },
      timing: { retentionMs: 20 },
      alerts: alertsFor(receiver.url, 'needle', { text: true }),
    };
    await using rig = await createRig(options);
    await uploadWhole(rig.recorder, cast('needle canaryword'));
    const [before] = await delivered(receiver, 1);
    expect(before!.raw).toContain('canaryword');
    expect(await journalOf(rig)).toContain('canaryword');
    now = startedAt + 1_200_000;
    await until(async () => ((await rig.list()).length === 0 ? true : undefined));
    await until(async () => ((await journalOf(rig)).includes('canaryword') ? undefined : true));
    receiver.answer = 204;
    await settled(rig);
    const last = receiver.received.at(-1)!;
    expect(last.raw).not.toContain('canaryword');
    expect(last.data.recording).toEqual({ id: before!.data.recording['id'], isRemoved: true });
  });

  it('is dropped after a maximum time, if its webhook is removed, and if too many alerts are pending', async () => {
    await using receiver = await openReceiver();
    receiver.answer = 404;
    const startedAt = Date.now();
    let now = startedAt;
    const clock = { now: () => now, monotonic: () => performance.now() };
    const registry = new Registry();
    const alerts = alertsFor(receiver.url);
    await using rig = await createRig({ ...SEARCHING, clock, registry, alerts });
    await uploadWhole(rig.recorder, cast('needle'));
    await delivered(receiver, 1);
    now = startedAt + alerts.giveUpMs + 1;
    await until(async () => ((await counted(registry, 'givenUp')) === 1 ? true : undefined));
    await rig.recorder.close();
    const lines = Array.from({ length: 1003 }, (_, at) => {
      const webhook = at === 0 ? 'removed' : 'hook';
      const alert = { id: `a${at}`, rule: 'r', query: 'q', webhook, session: 's', firedAtMs: now, marks: [] };
      return `${JSON.stringify({ alert })}\n`;
    });
    // inserts an alert of another rule between the alerts of a rule that exceeds its limit
    lines.splice(1001, 0, lines[1]!.replace('"a1"', '"other"').replace('"rule":"r"', '"rule":"s"'));
    await writeFile(join(rig.spool, 'alerts', 'alerts.journal'), `${lines.join('')}{"alert":{"id":"to`);
    const again = new Registry();
    const current = await createRig({ ...SEARCHING, clock, registry: again, alerts }, rig.directory);
    await until(async () => ((await counted(again, 'givenUp')) === 3 ? true : undefined));
    const open = (await journalOf(current)).split('\n').filter((line) => line.startsWith('{"settled"'));
    expect(open.map((line) => (JSON.parse(line) as { settled: string }).settled)).toEqual(['a0', 'a1', 'a2']);
    await current.recorder.close();
  });

  it('is sent to a webhook with a certificate of the named CA, and to no other', async () => {
    const authority = await createTestAuthority();
    const { certificatePem, keyPem } = await authority.issue(['127.0.0.1']);
    await using receiver = await openReceiver({ cert: certificatePem, key: keyPem });
    const { webhooks, ...settings } = alertsFor(receiver.url);
    const hook = webhooks.get('hook')!;
    const registry = new Registry();
    await using rig = await createRig({ ...SEARCHING, registry, alerts: { ...settings, webhooks } });
    await uploadWhole(rig.recorder, cast('needle'));
    await until(async () => {
      const failures = await registry
        .getSingleMetric('tailcast_recorder_alert_delivery_failures_total')!
        .get();
      return (failures.values[0]?.value ?? 0) >= 2 ? true : undefined;
    });
    expect(receiver.received).toEqual([]);
    await rig.recorder.close();
    const trusting = new Map([['hook', { ...hook, target: { ...hook.target, ca: authority.caPem } }]]);
    const current = await createRig(
      { ...SEARCHING, alerts: { ...settings, webhooks: trusting } },
      rig.directory,
    );
    expect(await delivered(receiver, 1)).toHaveLength(1);
    await current.recorder.close();
  });
});
