import { connect } from 'node:net';
import { once } from 'node:events';
import { createServer, type AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { runChecks, type CheckFinding } from '../../src/doctor/checks.ts';
import { grantOf, grantsCheck, readGrants, type NamedCaller } from '../../src/doctor/grants-check.ts';
import { recordersCheck } from '../../src/doctor/recorder-checks.ts';
import { createLocalApi } from '../../src/tailnet/local-api.ts';
import { createWhois } from '../../src/tailnet/whois.ts';
import {
  startLocalApiDouble,
  taggedNode,
  userNode,
  type LocalApiDouble,
} from '../support/local-api-double.ts';
import {
  startRecorderDouble,
  type RecorderBehaviour,
  type RecorderDouble,
} from '../support/recorder-double.ts';
import { listenOn } from '../support/listen.ts';

const CAPABILITY = 'tailscale.com/cap/kubernetes';
const CALLERS: readonly NamedCaller[] = [
  { name: 'alice.lab.ts.net', address: '100.64.0.4' },
  { name: 'ci.lab.ts.net', address: '100.64.0.5' },
];

let double: LocalApiDouble;
const recorders: RecorderDouble[] = [];

beforeEach(async () => {
  double = await startLocalApiDouble();
  double.whois.set('100.64.0.4', userNode());
  double.whois.set('100.64.0.5', taggedNode());
});
afterEach(async () => {
  await double.close();
  await Promise.all(recorders.splice(0).map((recorder) => recorder.close()));
});

async function openRecorder(behaviour: RecorderBehaviour = {}): Promise<RecorderDouble> {
  const recorder = await startRecorderDouble(behaviour);
  recorders.push(recorder);
  return recorder;
}

function grant(...rules: readonly unknown[]): void {
  double.whois.set('100.64.0.4', { ...userNode(), CapMap: { [CAPABILITY]: rules } });
}

async function examine(
  options: { only?: string; tagged?: readonly string[]; callers?: readonly NamedCaller[] } = {},
): Promise<Record<string, CheckFinding>> {
  const localApi = createLocalApi({ socketPath: double.socketPath });
  const whois = createWhois({ localApi });
  const { only } = options;
  const facts = {
    only,
    callers: () => Promise.resolve(options.callers ?? CALLERS),
    whois: (address: string, signal: AbortSignal) =>
      whois.whois({ address, port: 1, source: 'proxy-protocol' }, signal),
  };
  const grants = (signal: AbortSignal) => readGrants(facts, signal);
  try {
    const findings = await runChecks(
      [
        grantsCheck(grants, { needs: [], only }),
        recordersCheck({
          grants,
          resolveTags: () => Promise.resolve(options.tagged ?? []),
          async dial(address, signal) {
            const socket = connect(Number(address.split(':').pop()), '127.0.0.1');
            await once(socket, 'connect', { signal });
            return socket;
          },
          nodeOf: (address) => address,
        }),
      ],
      new AbortController().signal,
    );
    return Object.fromEntries(findings.map((finding) => [finding.id, finding]));
  } finally {
    localApi.close();
  }
}

describe('the grants check', () => {
  it('shows who becomes what, and asks by address only', async () => {
    const findings = await examine();
    expect(findings['grants']).toMatchObject({
      status: 'ok',
      summary: '1 of 2 nodes have one: alice@example.com on alice.lab.ts.net → readers, not recorded',
    });
    expect(double.requests.map(({ url }) => url)).toContain('/localapi/v0/whois?proto=tcp&addr=100.64.0.4');
  });

  it('warns when nobody has one', async () => {
    double.whois.set('100.64.0.4', { ...userNode(), CapMap: null });
    expect((await examine())['grants']).toMatchObject({
      status: 'warning',
      summary: expect.stringContaining('none of 2 nodes has a grant for this gateway'),
      remedy: expect.stringContaining(CAPABILITY),
    });
  });

  it('warns of groups to which Kubernetes itself gives rights, by name', async () => {
    grant({ impersonate: { groups: ['readers', 'system:masters', 'system:authenticated'] } });
    expect((await examine())['grants']).toMatchObject({
      status: 'warning',
      summary:
        'alice@example.com on alice.lab.ts.net has system:masters, with rights in every Kubernetes cluster',
      remedy: expect.stringContaining('--claimable-groups'),
    });
    grant({ impersonate: { groups: ['system:authenticated'] } });
    expect((await examine())['grants']).toMatchObject({ status: 'ok' });
  });

  it('fails when one cannot be understood', async () => {
    grant({ impersonate: { groups: 'readers' } });
    expect((await examine())['grants']).toMatchObject({
      status: 'failed',
      summary: expect.stringMatching(/^alice@example\.com on alice\.lab\.ts\.net is refused: .*groups/),
      remedy: expect.stringContaining('fix the grant'),
    });
  });

  it('looks at one caller alone', async () => {
    expect((await examine({ only: 'alice' }))['grants']).toMatchObject({
      status: 'ok',
      summary: expect.stringContaining('1 of 1'),
    });
    expect((await examine({ only: '100.64.0.5' }))['grants']?.status).toBe('warning');
    expect((await examine({ only: 'bob' }))['grants']).toMatchObject({
      status: 'failed',
      remedy: expect.stringContaining('tailscale status'),
    });
  });

  it('says that it knows nothing when nobody is online', async () => {
    expect((await examine({ callers: [] }))['grants']).toMatchObject({
      status: 'warning',
      remedy: expect.stringContaining('another node is online'),
    });
  });

  it('fails when tailscaled cannot be asked', async () => {
    double.failure = { status: 500, body: 'no' };
    expect((await examine())['grants']).toMatchObject({ status: 'failed', remedy: expect.any(String) });
  });

  it('tells how sessions are recorded', () => {
    const rule = { enforceRecorder: true, recorder: ['tag:recorder'] };
    const identity = {
      kind: 'tagged',
      nodeId: 'n',
      nodeName: 'ci.lab.ts.net',
      tags: ['tag:ci'],
      addresses: [],
      capabilities: new Map([[CAPABILITY, [rule]]]),
    } as const;
    expect(grantOf(identity)).toMatchObject({ kind: 'granted', recording: { mode: 'failClosed' } });
  });
});

describe('the recorders check', () => {
  it('names what a recorder can do', async () => {
    const recorder = await openRecorder();
    grant({ recorderAddrs: [recorder.address], enforceRecorder: true });
    expect((await examine())['recorders']).toMatchObject({
      status: 'ok',
      summary: `${recorder.address} (tailcast)`,
    });
    expect(recorder.uploads).toHaveLength(0);
  });

  it('finds recorders by tag', async () => {
    const recorder = await openRecorder();
    grant({ recorder: ['tag:recorder'] });
    expect((await examine({ tagged: [recorder.address] }))['recorders']?.status).toBe('ok');
    expect((await examine({ tagged: [] }))['recorders']).toMatchObject({
      status: 'failed',
      summary: 'no node with tag:recorder is online',
      remedy: expect.stringContaining('start the recorder'),
    });
  });

  it('warns when nothing is recorded', async () => {
    expect((await examine())['recorders']).toMatchObject({
      status: 'warning',
      remedy: expect.stringContaining('enforceRecorder'),
    });
  });

  it('fails when recording is enforced and no recorder is named', async () => {
    grant({ enforceRecorder: true });
    expect((await examine())['recorders']).toMatchObject({
      status: 'failed',
      summary: expect.stringContaining('enforced sessions are refused'),
      remedy: expect.stringContaining('tag:<recorder>'),
    });
  });

  it('warns of a recorder that cannot take a session over', async () => {
    const recorder = await openRecorder({ upgradeOffered: false });
    grant({ recorderAddrs: [recorder.address] });
    expect((await examine())['recorders']).toMatchObject({
      status: 'warning',
      summary: expect.stringContaining('(v2)'),
      remedy: expect.any(String),
    });
  });

  it('warns of a recorder that speaks only v1', async () => {
    const recorder = await openRecorder({ v2: false });
    grant({ recorderAddrs: [recorder.address], enforceRecorder: true });
    expect((await examine())['recorders']).toMatchObject({
      status: 'warning',
      summary: expect.stringContaining('v1): sessions are recorded without acknowledgements'),
      remedy: expect.stringContaining('tailcast recorder'),
    });
    expect(recorder.uploads).toEqual([]);
  });

  it('fails when none can be reached, and only warns when another works', async () => {
    const recorder = await openRecorder();
    const gone = await startRecorderDouble();
    await gone.close();
    grant({ recorderAddrs: [gone.address], enforceRecorder: true });
    expect((await examine())['recorders']).toMatchObject({
      status: 'failed',
      summary: expect.stringContaining('enforced sessions are refused'),
      remedy: expect.stringContaining('--recorder-dial tailscale'),
    });
    grant({ recorderAddrs: [gone.address, recorder.address], enforceRecorder: true });
    expect((await examine())['recorders']).toMatchObject({
      status: 'warning',
      summary: expect.stringContaining(`working: ${recorder.address}`),
    });
  });

  it('notices that something else listens there', async () => {
    const other = createServer((socket) => socket.end('HTTP/1.1 400 Bad Request\r\n\r\n'));
    await listenOn(other);
    grant({ recorderAddrs: [`127.0.0.1:${(other.address() as AddressInfo).port}`] });
    expect((await examine())['recorders']).toMatchObject({
      status: 'failed',
      summary: expect.stringContaining('does not speak the recorder’s HTTP/2'),
    });
    other.close();
  });
});
