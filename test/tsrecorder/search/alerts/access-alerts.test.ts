/** Notifications about access requests: events of gateways become messages of webhooks. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { encodeStep } from '../../../../src/access/evidence.ts';
import type { AccessRecord, Person } from '../../../../src/access/record.ts';
import type { AccessStep } from '../../../../src/access/requests.ts';
import { alertMarkName, recordingOfAlertMark } from '../../../../src/tsrecorder/store/alert-marks.ts';
import { parseRecordingId } from '../../../../src/tsrecorder/store/key.ts';
import { createRig, request, until, type Rig } from '../../recorder-rig.ts';
import { alertsFor, openReceiver, type Received, type Receiver } from './webhook-receiver.ts';

const PLAYER = 'https://gate.example.com/-/recordings/';
const LINK = `${PLAYER}access.html#k7m2p9xq4t`;

function person(name: string): Person {
  return {
    kind: 'user',
    name: `${name}@example.com`,
    nodeId: `n${name}`,
    node: `${name}.ts.net`,
    userId: name,
  };
}

const RECORD: AccessRecord = {
  id: 'k7m2p9xq4t',
  revision: 1,
  state: 'pending',
  requester: person('alice'),
  groups: ['sre'],
  user: '',
  writes: false,
  cluster: 'prod',
  namespaces: [],
  reason: 'disk `full` <!channel> @all [x](http://evil)',
  call: '',
  durationMs: 3_600_000,
  maxDurationMs: 3_600_000,
  approvers: { users: ['bob@example.com'], groups: [], tags: [], count: 1 },
  createdMs: Date.UTC(2026, 10, 28),
  expiresMs: Date.UTC(2026, 10, 29),
  decisions: [],
  recording: { mode: 'off' },
};

function decision(
  verdict: 'approved' | 'denied' | 'revoked',
  by = person('bob'),
): AccessRecord['decisions'][number] {
  return { verdict, by, groups: [], tags: [], atMs: 0, reason: verdict === 'denied' ? 'not now' : '' };
}

function alerts(url: string, more: Parameters<typeof alertsFor>[2] = {}): ReturnType<typeof alertsFor> {
  const { rules: _rules, ...settings } = alertsFor(url, 'needle', { player: PLAYER, ...more });
  return { ...settings, rules: [{ name: 'access', query: undefined, webhook: 'hook' }] };
}

async function send(
  rig: Rig,
  step: AccessStep['step'],
  record = RECORD,
  by = record.requester,
): Promise<void> {
  const body = encodeStep({ step, record, by }, Date.UTC(2026, 10, 28, 1));
  expect((await post(rig, body)).status).toBe(200);
}

function post(rig: Rig, body: string): ReturnType<typeof request> {
  return request(rig.recorder, { method: 'POST', path: '/v2/event', body });
}

function delivered({ received }: Receiver, count: number): Promise<readonly Received[]> {
  return until(async () => (received.length >= count ? received : undefined));
}

const journalOf = (rig: Rig): Promise<string> =>
  readFile(join(rig.spool, 'alerts', 'alerts.journal'), 'utf8');

describe('a step of an access request', () => {
  it('is sent signed, with a link to the page; a complete approval is only sent as granted', async () => {
    await using receiver = await openReceiver();
    await using rig = await createRig({ alerts: alerts(receiver.url) });
    const bob = person('bob');
    const granted = { ...RECORD, state: 'granted' as const, decisions: [decision('approved')] };
    await send(rig, 'requested');
    await send(rig, 'approved', granted, bob);
    await send(rig, 'granted', granted, bob);
    await send(rig, 'revoked', { ...granted, state: 'revoked' }, bob);
    await send(rig, 'expired', { ...RECORD, state: 'expired' });
    await send(rig, 'denied', { ...RECORD, state: 'denied', decisions: [decision('denied')] }, bob);
    const received = await delivered(receiver, 5);
    expect(received.map(({ data }) => (data as unknown as { step: string }).step)).toEqual([
      'requested',
      'granted',
      'revoked',
      'expired',
      'denied',
    ]);
    expect(received[1]).toMatchObject({
      id: received[1]!.data.id,
      type: 'tailcast.access',
      data: {
        rule: 'access',
        request: 'k7m2p9xq4t',
        requester: 'alice@example.com',
        groups: ['sre'],
        cluster: 'prod',
        approvers: ['bob@example.com'],
        approvalsMissing: 0,
        by: 'bob@example.com',
        gateway: 'gateway.tail1.ts.net',
        link: LINK,
      },
    });
    expect(received[4]!.data).toMatchObject({ comment: 'not now' });
    expect(new Set(received.map(({ id }) => id)).size).toBe(5);
  });

  it('of a request that needs two approvals is sent after the first one', async () => {
    await using receiver = await openReceiver();
    await using rig = await createRig({ alerts: alerts(receiver.url) });
    const two = { ...RECORD, approvers: { ...RECORD.approvers!, count: 2 } };
    await send(rig, 'approved', { ...two, decisions: [decision('approved')] }, person('bob'));
    expect((await delivered(receiver, 1))[0]!.data).toMatchObject({ step: 'approved', approvalsMissing: 1 });
  });

  it('of each request and of each person is sent', async () => {
    await using receiver = await openReceiver();
    await using rig = await createRig({ alerts: alerts(receiver.url) });
    const three = { ...RECORD, approvers: { ...RECORD.approvers!, count: 4 } };
    for (const name of ['bob', 'carol'])
      await send(rig, 'approved', { ...three, decisions: [decision('approved')] }, person(name));
    await send(rig, 'requested');
    await send(rig, 'requested', { ...RECORD, id: 'zzzzzzzzzz' });
    expect(new Set((await delivered(receiver, 4)).map(({ id }) => id)).size).toBe(4);
  });

  it('is sent again after the time that the webhook requests', async () => {
    await using receiver = await openReceiver();
    receiver.answer = 503;
    receiver.retryAfter = '1';
    await using rig = await createRig({ alerts: alerts(receiver.url) });
    await send(rig, 'requested');
    await delivered(receiver, 1);
    const refusedMs = performance.now();
    receiver.answer = 200;
    await delivered(receiver, 2);
    expect(performance.now() - refusedMs).toBeGreaterThan(900);
  });

  it('is sent until the webhook accepts it, also after a restart, and once', async () => {
    await using receiver = await openReceiver();
    receiver.answer = 503;
    await using rig = await createRig({ alerts: alerts(receiver.url) });
    await send(rig, 'requested');
    await send(rig, 'requested');
    await delivered(receiver, 2);
    const current = await rig.restart();
    receiver.answer = 200;
    await until(async () => ((await journalOf(current)).includes('"settled"') ? true : undefined));
    const count = receiver.received.length;
    await send(current, 'requested');
    await send(current, 'expired');
    await delivered(receiver, count + 1);
    expect(receiver.received).toHaveLength(count + 1);
    expect(new Set(receiver.received.map(({ id }) => id)).size).toBe(2);
    await current.recorder.close();
  });

  it('is stored as evidence while the webhook is away', async () => {
    await using receiver = await openReceiver();
    const { url } = receiver;
    await receiver[Symbol.asyncDispose]();
    await using rig = await createRig({ alerts: alerts(url) });
    await send(rig, 'requested');
    const { body } = await rig.get('/api/v1/events?type=tailcast-access-request');
    expect(body).toContain('k7m2p9xq4t');
    await using back = await openReceiver(undefined, Number(new URL(url).port));
    await delivered(back, 1);
  });

  it('is withheld from a webhook whose viewer may not see everything', async () => {
    await using receiver = await openReceiver();
    await using rig = await createRig({ alerts: alerts(receiver.url, { scope: ['namespace:dev'] }) });
    await send(rig, 'requested');
    await until(async () => ((await journalOf(rig)).includes('"settled"') ? true : undefined));
    expect(receiver.received).toEqual([]);
  });

  it.each([
    ['an invalid id', { request: '../../escape' }],
    ['another step', { step: 'approved-by-nobody' }],
    ['a long text', { reason: 'x'.repeat(2000) }],
    ['many groups', { groups: Array.from({ length: 200 }, () => 'g') }],
    ['a wrong type', { approvers: 'bob' }],
  ])('with %s is stored as evidence and not sent', async (_name, change) => {
    await using receiver = await openReceiver();
    await using rig = await createRig({ alerts: alerts(receiver.url) });
    const event = JSON.parse(encodeStep({ step: 'requested', record: RECORD, by: RECORD.requester }, 0)) as {
      access: object;
    };
    const forged = { ...event, access: { ...event.access, ...change } };
    expect((await post(rig, JSON.stringify(forged))).status).toBe(200);
    await send(rig, 'expired');
    expect((await delivered(receiver, 1))[0]!.data).toMatchObject({ step: 'expired' });
    expect(receiver.received).toHaveLength(1);
  });

  it('is ignored in an event of another type', async () => {
    await using receiver = await openReceiver();
    await using rig = await createRig({ alerts: alerts(receiver.url) });
    const step = encodeStep({ step: 'requested', record: RECORD, by: RECORD.requester }, 0);
    const text = JSON.stringify({
      ...(JSON.parse(step) as object),
      type: 'kubernetes-api-request',
      path: 'tailcast-access-request',
    });
    expect((await post(rig, text)).status).toBe(200);
    await send(rig, 'expired');
    expect((await delivered(receiver, 1)).map(({ data }) => data)).toMatchObject([{ step: 'expired' }]);
  });

  it('has marks in the store with times for retention', async () => {
    await using receiver = await openReceiver();
    await using rig = await createRig({ alerts: alerts(receiver.url) });
    await send(rig, 'requested');
    await delivered(receiver, 1);
    const [, session = ''] = /"session":"([^"]+)"/.exec(await journalOf(rig)) ?? [];
    expect(parseRecordingId(session)).toEqual({ nodeId: 'access-k7m2p9xq4t', time: '2026-11-28T01:00:00Z' });
    const id = receiver.received[0]!.id;
    expect(recordingOfAlertMark(alertMarkName(session, id, 'told'))).toBe(session);
  });
});

it('a step with a time in the far future has marks that expire', async () => {
  await using receiver = await openReceiver();
  await using rig = await createRig({ alerts: alerts(receiver.url) });
  const step = encodeStep({ step: 'requested', record: RECORD, by: RECORD.requester }, 0);
  await post(rig, JSON.stringify({ ...(JSON.parse(step) as object), timestamp: 253_402_300_799 }));
  await delivered(receiver, 1);
  const [, session = ''] = /"session":"([^"]+)"/.exec(await journalOf(rig)) ?? [];
  const ms = Date.parse(parseRecordingId(session)?.time ?? '');
  expect(Math.abs(ms - Date.now())).toBeLessThan(3_600_000);
});

describe('chat messages', () => {
  const bodyFor = async (format: 'slack' | 'teams' | 'mattermost'): Promise<string> => {
    await using receiver = await openReceiver();
    await using rig = await createRig({ alerts: alerts(receiver.url, { format }) });
    await send(rig, 'requested');
    const [message] = await delivered(receiver, 1);
    return message!.raw;
  };

  it('of Slack and Mattermost keep untrusted text in code, without mentions, links and markup', async () => {
    const slack = JSON.parse(await bodyFor('slack')) as { text: string };
    expect(slack.text.split('\n')).toEqual([
      '*Access is requested*',
      'Requester: `alice@example.com`',
      'Node: `alice.ts.net`',
      'Access: `sre`',
      'Cluster: `prod`',
      "Reason: `disk 'full' &lt;!channel&gt; @all [x](http://evil)`",
      'Duration: `60 min`',
      'Approvals needed: `1`',
      'Request: `k7m2p9xq4t`',
      `<${LINK}|Open the page>`,
    ]);
    const mattermost = JSON.parse(await bodyFor('mattermost')) as { text: string };
    expect(mattermost.text).toContain("- Reason: `disk 'full' <!channel> @all [x](http://evil)`");
    expect(mattermost.text).toContain(`[Open the page](${LINK})`);
  });

  it('separate the call that caused a request from the reason', async () => {
    await using receiver = await openReceiver();
    await using rig = await createRig({ alerts: alerts(receiver.url, { format: 'slack' }) });
    await send(rig, 'requested', { ...RECORD, reason: 'a', call: 'patch deployments web in dev' });
    const [message] = await delivered(receiver, 1);
    expect(JSON.stringify(message)).toContain('First call: `patch deployments web in dev`');
  });

  it('of Teams are cards whose text has no markup', async () => {
    const card = JSON.parse(await bodyFor('teams')) as {
      attachments: { contentType: string; content: { body: object[]; actions: object[] } }[];
    };
    const [{ contentType, content }] = card.attachments as [(typeof card.attachments)[number]];
    expect(contentType).toBe('application/vnd.microsoft.card.adaptive');
    expect(content.actions).toEqual([{ type: 'Action.OpenUrl', title: 'Open the page', url: LINK }]);
    expect(content.body.every((block) => 'type' in block && block.type === 'RichTextBlock')).toBe(true);
    expect(JSON.stringify(content.body)).toContain('disk `full` <!channel>');
  });
});
