/**
 * Opens a shell through the gateway, and then its recording through the gateway's portal. Gateways and recorder run in
 * separate processes; doubles of their tailscaleds identify the callers.
 */
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { get } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { startDemoCluster } from '../../demo/cluster.ts';
import { mergeKubeconfig } from '../../src/kube/kubeconfig-write.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import type { Recording } from '../../src/wire/recorder-api/recording.ts';
import { GATEWAY_HOST, introduce, sendHttp1, sendHttp2, type Outcome } from '../attack/arena.ts';
import { openExec, type ExecClient } from '../support/exec-client.ts';
import { startLocalApiDouble, taggedNode, type LocalApiDouble } from '../support/local-api-double.ts';
import { eventually, startRole, type RoleProcess } from '../support/role-process.ts';

const ALICE = { address: '100.64.0.4', login: 'alice@example.com', groups: [] };
const BOB = { address: '100.64.0.5', login: 'bob@example.com', groups: [] };
const PORTAL = '/-/recordings';
const LIST = `${PORTAL}/api/v1/recordings`;

const stack = new AsyncDisposableStack();
let directory: string;
/** The node that the recorder's tailscaled returns for connections of the gateways. */
let gatewayNode: Record<string, unknown> | undefined;
let recorder: RoleProcess;
/** Gateway that treats all callers as alice; kubectl sessions use this gateway. */
let forAlice: RoleProcess;
/** Gateway in mode `noauth` that identifies callers by their tailnet address. */
let forAll: RoleProcess;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tailcast-portal-'));
  stack.defer(() => rm(directory, { recursive: true, force: true }));
  const cluster = await startDemoCluster({ log: createSilentLogger() });
  stack.defer(() => cluster.close());
  const upstream = join(directory, 'upstream');
  const entry = { name: 'up', server: cluster.url, caPem: cluster.caPem, userName: 'admin' };
  const kubeconfig = mergeKubeconfig(undefined, { ...entry, token: cluster.adminToken }, upstream);
  await writeFile(upstream, kubeconfig, { mode: 0o600 });

  gatewayNode = taggedNode(['tag:k8s-gateway']);
  const behindRecorder = await openLocalApi();
  // connections of the gateways come from any port
  behindRecorder.whois.get = () => gatewayNode;
  recorder = await startRole([
    'recorder',
    ...words({
      store: join(directory, 'recordings'),
      socket: behindRecorder.socketPath,
      listen: '127.0.0.1:0',
      viewers: `${ALICE.login}=namespace:default,carol@example.com`,
      'trusted-gateways': 'tag:k8s-gateway',
      'drain-seconds': '1',
    }),
  ]);
  stack.defer(async () => void (await recorder.stop()));
  const rule = {
    impersonate: { groups: ['system:masters'] },
    recorderAddrs: [`127.0.0.1:${recorder.port}`],
    enforceRecorder: true,
  };
  const identity = join(directory, 'identity.json');
  const capabilities = { 'tailscale.com/cap/kubernetes': [rule] };
  const node = { nodeId: 'nLAPTOP', nodeName: 'laptop.test', login: ALICE.login };
  await writeFile(identity, JSON.stringify({ ...node, capabilities }));
  const common = {
    kubeconfig: upstream,
    'state-directory': join(directory, 'gateway'),
    'drain-seconds': '1',
  };
  forAlice = await startRole([
    'gateway',
    ...words({ ...common, identity: 'static', 'static-identity': identity, listen: '127.0.0.1:0' }),
  ]);
  stack.defer(async () => void (await forAlice.stop()));
  const behindGateway = await openLocalApi();
  for (const caller of [ALICE, BOB]) introduce(behindGateway, caller, [rule]);
  forAll = await startRole([
    'gateway',
    ...words({
      ...common,
      mode: 'noauth',
      socket: behindGateway.socketPath,
      'proxy-protocol': 'require',
      tls: 'self-signed',
      'tls-names': GATEWAY_HOST,
      listen: '127.0.0.77:0',
    }),
  ]);
  stack.defer(async () => void (await forAll.stop()));
});
afterAll(() => stack.disposeAsync());

async function openLocalApi(): Promise<LocalApiDouble> {
  const double = await startLocalApiDouble();
  stack.defer(() => double.close());
  return double;
}

function words(flags: Readonly<Record<string, string>>): readonly string[] {
  return Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value]);
}

const caPem = (): Promise<string> => readFile(join(directory, 'gateway', 'ca', 'ca.crt'), 'utf8');

async function shell(): Promise<ExecClient> {
  const url = `https://127.0.0.1:${forAlice.port}`;
  return openExec({ url, caPem: await caPem(), pod: 'shell', command: ['cat'] });
}

async function asAlice(path: string): Promise<{ readonly status: number; readonly body: Buffer }> {
  const options = { port: forAlice.port, host: '127.0.0.1', path, ca: await caPem(), agent: false } as const;
  const [response] = await once(get(options), 'response');
  return { status: response.statusCode, body: Buffer.concat(await response.toArray()) };
}

async function listed(): Promise<readonly Recording[]> {
  const { status, body } = await asAlice(LIST);
  if (status !== 200) throw new Error(`${status} ${body.toString()}`);
  return (JSON.parse(body.toString()) as { recordings: Recording[] }).recordings;
}

/** Sends a caller's request to the gateway `forAll` over one of the protocols. */
async function by(caller: typeof ALICE, path: string, protocol: 'h1' | 'h2'): Promise<Outcome> {
  const gateway = { port: forAll.port, caPem: await caPem() };
  if (protocol === 'h1') {
    return sendHttp1(gateway, caller, `GET ${path} HTTP/1.1\r\nHost: ${GATEWAY_HOST}\r\n\r\n`);
  }
  return sendHttp2(gateway, caller, [
    [':method', 'GET'],
    [':scheme', 'https'],
    [':path', path],
    [':authority', GATEWAY_HOST],
  ]);
}

const bodyOf = (outcome: Outcome): string => (outcome.kind === 'response' ? outcome.body : '');

describe('a recording', () => {
  let recording: Recording;
  let stored: Buffer;
  beforeAll(async () => {
    const session = await shell();
    session.write('seen through the portal\n');
    await session.until('seen through the portal\n');
    session.close();
    recording = await eventually('the recording is in the list', async () =>
      (await listed()).find(({ result }) => result === 'client disconnected'),
    );
    const [folder = '', time = ''] = recording.id.split('_');
    stored = await eventually('the recording is in the store', () =>
      readFile(join(directory, 'recordings', folder, `${time}.cast`)).catch(() => undefined),
    );
  });

  it('is listed, played and downloaded, byte for byte', async () => {
    const one = `${LIST}/${encodeURIComponent(recording.id)}`;
    expect(JSON.parse((await asAlice(one)).body.toString())).toMatchObject({ id: recording.id });
    const download = await asAlice(`${one}/cast`);
    expect(download.status).toBe(200);
    expect(download.body.equals(stored)).toBe(true);
    const played = (await asAlice(`${one}/cast?normalise=1`)).body.toString();
    expect(played).toContain('seen through the portal');
    const notes = await eventually('the notes are there', async () => {
      const answer = await asAlice(`${one}/notes`);
      return answer.status === 200 ? answer.body.toString() : undefined;
    });
    expect(notes).toContain('"kind":"session"');
  });

  it.each(['h1', 'h2'] as const)(
    'is shown to whom the recorder shows it and to nobody else (%s)',
    async (protocol) => {
      const one = `${LIST}/${encodeURIComponent(recording.id)}`;
      expect(bodyOf(await by(ALICE, LIST, protocol))).toContain(recording.id);
      expect(bodyOf(await by(ALICE, `${one}/cast`, protocol))).toBe(stored.toString('latin1'));
      expect(JSON.parse(bodyOf(await by(BOB, LIST, protocol)))).toMatchObject({ recordings: [] });
      for (const part of ['', '/cast', '/sidecar', '/notes']) {
        expect(await by(BOB, `${one}${part}`, protocol)).toMatchObject({ status: 404 });
      }
      expect(await by(ALICE, `${PORTAL}/api/v1/events`, protocol)).toMatchObject({ status: 403 });
      const unknown = { ...ALICE, address: '100.64.0.99' };
      expect(await by(unknown, LIST, protocol)).toMatchObject({ status: 401 });
    },
  );

  it('leaves events that name who looked and through which gateway', async () => {
    await by(BOB, LIST, 'h1');
    // read from the recorder's disk, because the API would need an unrestricted viewer
    const events = await eventually('the events are on disk', async () => {
      const answer = await fetch(`http://127.0.0.1:${recorder.port}/api/v1/events`, {
        headers: {
          'tailscale-user-login': 'carol@example.com',
          'x-tailcast-viewer-node': 'carol.test',
          'x-tailcast-viewer-node-id': 'nCarol',
          'x-tailcast-viewer-address': '100.64.0.6',
        },
      });
      return answer.ok ? await answer.text() : undefined;
    });
    const looked = (JSON.parse(events) as { events: { event: Record<string, unknown> }[] }).events.map(
      ({ event }) => event,
    );
    const gateway = { node: 'ci.lab.ts.net', nodeID: 'nCi', address: '127.0.0.1' };
    for (const [action, nodeUser] of [
      ['list', BOB.login],
      ['list', ALICE.login],
      ['play', ALICE.login],
      ['download', ALICE.login],
    ]) {
      const found = looked.find(
        ({ action: done, source }) =>
          done === action && (source as { nodeUser?: string }).nodeUser === nodeUser,
      );
      expect(found, `${action} by ${nodeUser}`).toMatchObject({ gateway });
    }
  });

  it('is followed while it is made', async () => {
    const session = await shell();
    const open = await eventually('the session is listed', async () =>
      (await listed()).find(({ state }) => state === 'running'),
    );
    const path = `${LIST}/${encodeURIComponent(open.id)}/live`;
    const origin = `https://127.0.0.1:${forAlice.port}`;
    const address = `wss://127.0.0.1:${forAlice.port}${path}`;
    const viewer = new WebSocket(address, ['v2.asciicast'], { ca: await caPem(), origin });
    const seen: string[] = [];
    viewer.on('message', (data: Buffer) => seen.push(data.toString()));
    await once(viewer, 'open');
    session.write('as it happens\n');
    await eventually('it is seen', async () =>
      seen.some((line) => line.includes('as it happens')) ? true : undefined,
    );
    session.close();
    expect((await once(viewer, 'close'))[0]).toBe(1000);
  });
});

describe('a gateway that the recorder does not name', () => {
  it('shows nothing, and says why', async () => {
    const trusted = gatewayNode;
    gatewayNode = taggedNode(['tag:somebody-else']);
    try {
      // the recorder's whois cache does not match, because its entries are for other ports
      const answer = await asAlice(LIST);
      expect(answer.status).toBe(502);
      expect(answer.body.toString()).toContain('does not trust this gateway to name viewers');
    } finally {
      gatewayNode = trusted;
    }
  });
});

describe('a portal that is off', () => {
  it('is not there', async () => {
    const off = await startRole([
      'gateway',
      ...words({
        kubeconfig: join(directory, 'upstream'),
        identity: 'static',
        'static-identity': join(directory, 'identity.json'),
        listen: '127.0.0.1:0',
        'state-directory': join(directory, 'gateway'),
        portal: 'false',
      }),
    ]);
    const before = forAlice;
    try {
      forAlice = off;
      expect((await asAlice(LIST)).status).toBe(404);
      expect((await asAlice(`${PORTAL}/`)).status).toBe(404);
    } finally {
      forAlice = before;
      await off.stop();
    }
  });
});
