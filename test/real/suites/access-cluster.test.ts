/**
 * Access on request in front of a real API server with the manifests of `deploy/access`, and a plain kubectl. Three
 * gateways with one identity each share the requests: alice works at the first, bob decides at the second, and an agent
 * whose writes need approvals works at the third.
 */
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type RunningGateway } from '../../../src/compose/gateway.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { KEY, openReceiver, type Receiver } from '../../tsrecorder/search/alerts/webhook-receiver.ts';
import { createPod } from '../cases/case.ts';
import { findKubectls, runKubectl, startKubectl, type Transport } from '../rig/kubectl.ts';
import { type Kubernetes, startKubernetes } from '../rig/kubernetes.ts';
import { type Rig, createRig } from '../rig/rig.ts';
import { prepareAccess } from '../support/access-cluster.ts';
import { identityOf, startTestRecorder, type TestRecorder } from '../support/product.ts';
import { gatewaySettings } from '../../support/settings.ts';

const PATH = '/-/recordings/api/v1/access/requests';
const SRE = ['--as=me', '--as-group=sre'] as const;
const LIST = ['get', 'configmaps', ...SRE] as const;
const MAIN = fileURLToPath(new URL('../../../src/main.ts', import.meta.url));
const AGENT = { tags: ['tag:agent'], nodeName: 'agent.example.ts.net' };

let rig: Rig;
let cluster: Kubernetes;
let recorder: TestRecorder;
let alice: RunningGateway;
let bob: RunningGateway;
let agent: RunningGateway;
let receiver: Receiver;
const kubectls = await findKubectls();

async function gatewayOf(caller: Parameters<typeof identityOf>[0], token: string): Promise<RunningGateway> {
  const isAgent = 'tags' in caller;
  const name = isAgent ? 'agent' : (caller.login.split('@')[0] ?? '');
  const kubernetes = {
    impersonate: { groups: isAgent ? ['readers', 'sre'] : ['readers'] },
    recorderAddrs: [recorder.address],
  };
  const access = {
    request: isAgent ? { writes: true } : { groups: ['sre'] },
    maxDuration: '1h',
    approvers: { users: ['bob@example.com', 'alice@example.com'] },
    enforceRecorder: true,
  };
  const gateway = await startGateway({
    config: gatewaySettings({
      kubeconfig: cluster.kubeconfig(`access-${name}`, { token }),
      stateDirectory: join(rig.folder, name),
      lateKeyFile: join(rig.folder, 'late.key'),
    }),
    environment: new Map(),
    log: createSilentLogger(),
    accessSink: process.stderr,
    identity: {
      ...identityOf(caller, undefined),
      ...(name === 'bob' ? { userId: 2n } : {}),
      capabilities: new Map<string, readonly unknown[]>([
        ['tailscale.com/cap/kubernetes', [kubernetes]],
        ['tailcast.dev/cap/kubernetes-access', [access]],
      ]),
    },
  });
  rig.onStop(() => gateway.close(500));
  return gateway;
}

beforeAll(async () => {
  rig = createRig();
  cluster = await startKubernetes(rig, { node: { webSockets: true } });
  const token = await prepareAccess(cluster);
  receiver = await openReceiver();
  rig.onStop(async () => receiver[Symbol.asyncDispose]());
  const folder = join(rig.folder, 'recorder');
  mkdirSync(folder);
  writeFileSync(join(folder, 'hook.key'), KEY.toString('base64'));
  const alerts = join(folder, 'alerts.yaml');
  writeFileSync(
    alerts,
    `webhooks:
  chat:
    url: '${receiver.url}'
    secretFile: '${join(folder, 'hook.key')}'
    viewer: 'soc@example.com'
    player: 'https://gateway.example.com/-/recordings/'
rules:
  access: { accessRequests: true, webhook: chat }
`,
  );
  recorder = await startTestRecorder(folder, 'gateway.example.ts.net', undefined, true, { alerts });
  rig.onStop(() => recorder.close());
  alice = await gatewayOf({ login: 'alice@example.com' }, token);
  bob = await gatewayOf({ login: 'bob@example.com' }, token);
  agent = await gatewayOf(AGENT, token);
  await createPod(cluster, 'shell', { command: ['sleep', 'infinity'] });
});

afterAll(() => rig?.stop());

/** Calls the API of a gateway, as the page and the commands do. */
async function api(gateway: RunningGateway, method: 'GET' | 'POST', path = ''): Promise<unknown> {
  const options = {
    method,
    host: '127.0.0.1',
    port: gateway.port,
    path: `${PATH}${path}`,
    ca: gateway.caPem,
  };
  const sent = request(options);
  sent.end();
  const [response] = (await once(sent, 'response')) as [AsyncIterable<Buffer> & { statusCode: number }];
  const body: unknown = JSON.parse(await text(response));
  if (response.statusCode >= 400) throw new Error((body as { message: string }).message);
  return body;
}

const kubeconfig = (gateway: RunningGateway = alice): string =>
  cluster.kubeconfig(`through-${gateway.port}`, {
    server: `https://127.0.0.1:${gateway.port}`,
    ca: gateway.caPem ?? '',
    token: 'unused',
  });

interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

const kubectl = (...args: readonly string[]): Promise<Ran> => kubectlAt({}, args);

async function kubectlAt(
  { gateway, transport }: { readonly gateway?: RunningGateway; readonly transport?: Transport },
  args: readonly string[],
): Promise<Ran> {
  const run = { kubeconfig: kubeconfig(gateway), ...(transport === undefined ? {} : { transport }) };
  const { code, stdout, stderr } = await runKubectl(kubectls.at(-1)!, args, run);
  return { code, out: stdout.toString(), err: stderr.toString() };
}

async function pending(ran: Promise<Ran> = kubectl(...LIST)): Promise<string> {
  const { code, err } = await ran;
  const [, id = ''] = /request ([a-z0-9]{10}) needs 1 more approval/.exec(err) ?? [];
  expect([code, id === '' ? err : '']).toEqual([1, '']);
  return id;
}

/** Runs a session that prints a line and stays open; resolves with its output after its end. */
async function session(): Promise<Promise<string>[]> {
  const args = ['exec', 'shell', ...SRE, '--', 'sh', '-c', 'echo ready; sleep 600'];
  const process = startKubectl(kubectls.at(-1)!, args, { kubeconfig: kubeconfig() });
  let output = '';
  const ready = Promise.withResolvers<void>();
  for (const stream of [process.stdout, process.stderr])
    stream?.on('data', (chunk: Buffer) => {
      output += chunk.toString();
      if (output.includes('ready')) ready.resolve();
    });
  const ended = once(process, 'close').then(([code]) => `exit ${String(code)}: ${output}`);
  await Promise.race([ready.promise, ended.then((all) => Promise.reject(new Error(all)))]);
  return [ended];
}

describe('access on request at a real API server', () => {
  it('waits for another user, and the audit log names request, requester and approver', async () => {
    const id = await pending();
    await expect(api(alice, 'POST', `/${id}/approve`)).rejects.toThrow('cannot decide about the own request');
    expect(await api(bob, 'POST', `/${id}/approve?reason=ok`)).toMatchObject({ state: 'granted' });
    const used = await rig.until('the access', async () => {
      const result = await kubectl(...LIST);
      return result.code === 0 ? result : undefined;
    });
    expect(used.err).toContain('Warning: access to group sre until');
    await expect
      .poll(() =>
        cluster.audit().findLast(({ impersonatedUser }) => impersonatedUser?.groups?.includes('sre')),
      )
      .toMatchObject({
        user: { username: 'system:serviceaccount:tailcast:tailcast-gateway' },
        impersonatedUser: {
          username: 'alice@example.com',
          extra: {
            'tailcast.dev/access-request': [id],
            'tailcast.dev/requester': ['alice@example.com'],
            'tailcast.dev/approver': ['bob@example.com'],
          },
        },
      });
  });

  it('ends a session by revocation at another gateway, with its reason', async () => {
    const { requests } = (await api(bob, 'GET')) as { requests: { id: string; state: string }[] };
    const id = requests.find(({ state }) => state === 'granted')?.id ?? '';
    const [ended] = await session();
    await api(bob, 'POST', `/${id}/revoke?reason=incident+is+over`);
    expect(await ended).toContain(`access request ${id} was revoked by bob@example.com: incident is over`);
  });

  it('expires during a session', async () => {
    const { id } = (await api(alice, 'POST', '?group=sre&reason=drill&seconds=20')) as { id: string };
    await api(bob, 'POST', `/${id}/approve`);
    await rig.until('the access', async () => ((await kubectl(...LIST)).code === 0 ? true : undefined));
    const [ended] = await session();
    expect(await ended).toContain(`access request ${id} has expired`);
  });

  it('can be denied', async () => {
    const id = await pending();
    expect(await api(bob, 'POST', `/${id}/deny?reason=freeze`)).toMatchObject({ state: 'denied' });
    await rig.until('the denial', async () =>
      (await kubectl(...LIST)).err.includes('was denied by bob@example.com: freeze') ? true : undefined,
    );
  });

  it('lets an agent read, and holds back each write and exec until a person approves it', async () => {
    const create = ['create', 'configmap', 'by-agent'] as const;
    const exec = ['exec', 'shell', '--', 'sh', '-c', 'echo by-$((40 + 2))'] as const;
    const ran = (...args: readonly string[]): Promise<Ran> => kubectlAt({ gateway: agent }, args);
    expect((await ran('get', 'pods')).code).toBe(0);
    const id = await pending(ran(...exec));
    expect(await pending(ran(...create))).toBe(id);
    // kubectl sends a POST for an exec over SPDY, and a GET over WebSocket
    for (const transport of ['spdy', 'websocket'] as const)
      expect(await pending(kubectlAt({ gateway: agent, transport }, exec))).toBe(id);
    const calls = cluster
      .audit()
      .filter(({ impersonatedUser }) => impersonatedUser?.username === AGENT.nodeName)
      .map(({ verb, objectRef }) => `${verb} ${objectRef?.subresource ?? ''}`);
    expect(calls.filter((call) => !['get ', 'list '].includes(call))).toEqual([]);
    // the notification shows the approver the command
    const notices = (): unknown[] => receiver.received.map(({ data }) => data);
    await expect.poll(notices).toContainEqual(
      expect.objectContaining({
        step: 'requested',
        request: id,
        requester: AGENT.nodeName,
        call: expect.stringContaining('pods/exec shell in default: sh -c echo by-'),
      }),
    );
    // the agent waits with the `requests --wait` command from the error message
    const command = [MAIN, 'requests', '--wait', id, '--kubeconfig', kubeconfig(agent)];
    const waiting = promisify(execFile)(process.execPath, command, { env: { HOME: rig.folder } });
    await api(bob, 'POST', `/${id}/approve`);
    expect((await waiting).stdout).toContain('approved by bob@example.com');
    await rig.until('the access', async () => ((await ran(...create)).code === 0 ? true : undefined));
    for (const transport of ['spdy', 'websocket'] as const)
      expect(await kubectlAt({ gateway: agent, transport }, exec)).toMatchObject({ code: 0, out: 'by-42\n' });
    expect(
      cluster.audit().findLast(({ objectRef }) => objectRef?.subresource === 'exec')?.impersonatedUser,
    ).toMatchObject({ username: AGENT.nodeName, extra: { 'tailcast.dev/approver': ['bob@example.com'] } });
    // after the revocation, each write needs a new approval
    await api(bob, 'POST', `/${id}/revoke`);
    await rig.until('the revocation', async () => ((await ran(...exec)).code === 1 ? true : undefined));
    expect((await ran('get', 'pods')).code).toBe(0);
    await expect.poll(notices).toContainEqual(expect.objectContaining({ step: 'revoked', request: id }));
  });

  it('refuses objects that other accounts write, and lists requests for people', async () => {
    const admin = { kubeconfig: cluster.kubeconfig('access-admin', { token: cluster.tokens.admin }) };
    const removed = await runKubectl(kubectls.at(-1)!, ['delete', 'accessrequests', '--all'], admin);
    expect(removed.stderr.toString()).toContain('only a gateway of tailcast writes access requests');
    const listed = await runKubectl(kubectls.at(-1)!, ['get', 'accessrequests'], admin);
    expect(listed.stdout.toString()).toMatch(/alice@example\.com +group sre +denied/);
  });

  it('leaves its steps in the log of the recorder', async () => {
    const url = `${recorder.url}/api/v1/events?type=tailcast-access-request&limit=100`;
    const { events } = (await (await fetch(url)).json()) as {
      events: { event: { access: { step: string } } }[];
    };
    const steps = new Set(events.map(({ event }) => event.access.step));
    expect([...steps].toSorted()).toEqual(['approved', 'denied', 'granted', 'requested', 'revoked']);
  });
});
