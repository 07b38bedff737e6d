/**
 * Access on request with a plain kubectl, through a real tailnet, in front of a real API server with the manifests of
 * `deploy/access`: request, approve as another user, work, expire, revoke, deny. The audit log of the API server names
 * requester, approver and request.
 */
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { request } from 'node:https';
import { text } from 'node:stream/consumers';
import { connect as connectTls } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createPod } from '../cases/case.ts';
import { runKubectl, startKubectl } from '../rig/kubectl.ts';
import { type Rig, createRig } from '../rig/rig.ts';
import { prepareAccess } from '../support/access-cluster.ts';
import { kubeconfigAt, type SiteGateway, sitePolicy, startSiteGateway } from '../support/site.ts';
import { ensureTailnetSite, startTailnetSite, type TailnetSite } from '../support/tailnet-site.ts';

const PATH = '/-/recordings/api/v1/access/requests';
const APPROVERS = { users: ['bob@example.com', 'alice@example.com'] };

let rig: Rig;
let site: TailnetSite;
let gateway: SiteGateway;

beforeAll(async () => {
  await ensureTailnetSite();
  rig = createRig();
  site = await startTailnetSite(rig, [
    { name: 'alice', user: 'alice@example.com' },
    { name: 'alice2', user: 'alice@example.com' },
    { name: 'bob', user: 'bob@example.com' },
    { name: 'mallory', user: 'mallory@example.com' },
    { name: 'ci', tags: ['tag:ci'] },
  ]);
  const { cluster } = site;
  const token = await prepareAccess(cluster);
  gateway = await startSiteGateway(rig, {
    name: 'gateway-access',
    node: site.proxy,
    cluster,
    settings: { kubeconfig: cluster.kubeconfig('gateway-access', { token }) },
  });
  await setRules('1h');
  await createPod(cluster, 'shell', { command: ['sleep', 'infinity'] });
});

afterAll(() => rig?.stop());

/**
 * Alice and the tagged node may read. Alice may request the group `sre`; every write of the tagged node needs an
 * approval.
 */
async function setRules(maxDuration: string): Promise<void> {
  const recorder = [site.recorder.address];
  const policy = sitePolicy(
    ['alice@example.com', 'bob@example.com', 'mallory@example.com', 'tag:ci'].map((src) => ({
      src,
      groups: src === 'tag:ci' ? ['readers', 'sre'] : ['readers'],
      recorder,
    })),
  ) as { grants: object[] };
  const rules: readonly (readonly [string, object])[] = [
    ['alice@example.com', { groups: ['sre'] }],
    ['tag:ci', { writes: true }],
  ];
  for (const [src, access] of rules)
    policy.grants.push({
      src: [src],
      dst: ['tag:k8s'],
      app: {
        'tailcast.dev/cap/kubernetes-access': [
          { request: access, maxDuration, approvers: APPROVERS, enforceRecorder: true },
        ],
      },
    });
  site.tailnet.setPolicy(policy);
  await rig.until('the rules', async () => {
    const { requestable } = (await api('alice', 'GET')) as { requestable: { maxDurationSeconds: number }[] };
    const seconds = maxDuration === '1h' ? 3600 : 20;
    return requestable[0]?.maxDurationSeconds === seconds || undefined;
  });
}

/** Calls the gateway's API from a node, as the page and the commands do. */
async function api(from: string, method: 'GET' | 'POST', path = ''): Promise<unknown> {
  const [address] = site.proxy.addresses;
  const socket = connectTls({
    socket: await site.tailnet.node(from).connect(address, gateway.port),
    ca: gateway.ca,
    servername: site.proxy.dnsName,
  });
  const sent = request({
    method,
    path: `${PATH}${path}`,
    createConnection: () => socket,
    host: site.proxy.dnsName,
  });
  sent.end();
  const [response] = (await once(sent, 'response')) as [AsyncIterable<Buffer> & { statusCode: number }];
  const body: unknown = JSON.parse(await text(response));
  if (response.statusCode >= 400) throw new Error((body as { message: string }).message);
  return body;
}

function kubeconfig(from: string): string {
  const { cluster, proxy, tailnet } = site;
  return kubeconfigAt(tailnet.node(from), { node: proxy, port: gateway.port, ca: gateway.ca, cluster });
}

async function kubectl(
  from: string,
  ...args: readonly string[]
): Promise<{ code: number; out: string; err: string }> {
  const { code, stdout, stderr } = await runKubectl(site.kubectl, args, { kubeconfig: kubeconfig(from) });
  return { code, out: stdout.toString(), err: stderr.toString() };
}

const SRE = ['--as=me', '--as-group=sre'] as const;
const LIST = ['get', 'configmaps', ...SRE] as const;

/** Runs a kubectl command that needs an approval. @returns the id of the access request */
async function pending(from: string, args: readonly string[] = LIST): Promise<string> {
  const { code, err } = await kubectl(from, ...args);
  const [, id = ''] = /request ([a-z0-9]{10}) needs 1 more approval/.exec(err) ?? [];
  expect([code, id === '' ? err : '']).toEqual([1, '']);
  return id;
}

/** Runs a session that prints a line and stays open. */
async function session(): Promise<{ readonly process: ChildProcess; readonly ended: Promise<string> }> {
  const args = ['exec', 'shell', ...SRE, '--', 'sh', '-c', 'echo ready; sleep 600'];
  const process = startKubectl(site.kubectl, args, { kubeconfig: kubeconfig('alice') });
  let output = '';
  const ready = Promise.withResolvers<void>();
  process.stdout?.on('data', (chunk: Buffer) => {
    output += chunk.toString();
    if (output.includes('ready')) ready.resolve();
  });
  process.stderr?.on('data', (chunk: Buffer) => void (output += chunk.toString()));
  const ended = once(process, 'close').then(([code]) => `exit ${String(code)}: ${output}`);
  await Promise.race([ready.promise, ended.then((all) => ready.reject(new Error(all)))]);
  return { process, ended };
}

describe('access on request', () => {
  it('waits for another user, and the audit log names request, requester and approver', async () => {
    const id = await pending('alice');
    await expect(api('alice', 'POST', `/${id}/approve`)).rejects.toThrow(
      'cannot decide about the own request',
    );
    await expect(api('alice2', 'POST', `/${id}/approve`)).rejects.toThrow(
      'cannot decide about the own request',
    );
    await expect(api('mallory', 'POST', `/${id}/approve`)).rejects.toThrow('you may not decide');
    expect(await api('bob', 'POST', `/${id}/approve?reason=ok`)).toMatchObject({ state: 'granted' });
    const { code, err } = await kubectl('alice', ...LIST);
    expect([code, err]).toEqual([
      0,
      expect.stringMatching(`Warning: access to group sre until .*request ${id}`),
    ]);
    // the same user at another node has no access
    expect(await pending('alice2')).not.toBe(id);
    await expect
      .poll(() =>
        site.cluster.audit().findLast(({ impersonatedUser }) => impersonatedUser?.groups?.includes('sre')),
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

  it('is recorded, and revocation ends the session with its reason', async () => {
    const { requests } = (await api('bob', 'GET')) as { requests: { id: string; state: string }[] };
    const id = requests.find(({ state }) => state === 'granted')?.id ?? '';
    const running = await session();
    await api('bob', 'POST', `/${id}/revoke?reason=incident+is+over`);
    expect(await running.ended).toContain(
      `access request ${id} was revoked by bob@example.com: incident is over`,
    );
    const [recording] = await site.archive.whole(['shell'], 1);
    expect(recording?.state).toBe('interrupted');
  });

  it('can be denied', async () => {
    const id = await pending('alice');
    expect(await api('bob', 'POST', `/${id}/deny?reason=freeze`)).toMatchObject({ state: 'denied' });
    expect((await kubectl('alice', ...LIST)).err).toContain('was denied by bob@example.com: freeze');
  });

  it('expires during a session', async () => {
    await setRules('20s');
    const { id } = (await api('alice', 'POST', '?group=sre&reason=drill')) as { id: string };
    await api('bob', 'POST', `/${id}/approve`);
    const running = await session();
    expect(await running.ended).toContain(`access request ${id} has expired`);
  });

  it('holds back writes of a tagged node, and not its reads', async () => {
    expect((await kubectl('ci', 'get', 'pods')).code).toBe(0);
    const id = await pending('ci', ['create', 'configmap', 'by-ci']);
    await api('bob', 'POST', `/${id}/approve`);
    expect((await kubectl('ci', 'create', 'configmap', 'by-ci')).code).toBe(0);
  });

  it('ignores and refuses objects that others write', async () => {
    const admin = site.cluster.kubeconfig('access-admin', { token: site.cluster.tokens.admin });
    const { stderr } = await runKubectl(site.kubectl, ['delete', 'accessrequests', '--all'], {
      kubeconfig: admin,
    });
    expect(stderr.toString()).toContain('only a gateway of tailcast writes access requests');
    const { stdout } = await runKubectl(site.kubectl, ['get', 'accessrequests'], { kubeconfig: admin });
    expect(stdout.toString()).toMatch(/alice@example\.com +group sre +denied/);
  });

  it('leaves its steps in the log of the recorder', async () => {
    const events = (await (
      await fetch(`${site.recorder.url}/api/v1/events?type=tailcast-access-request&limit=100`)
    ).json()) as { events: { event: { access: { step: string } } }[] };
    const steps = new Set(events.events.map(({ event }) => event.access.step));
    expect([...steps].toSorted()).toEqual(['approved', 'denied', 'granted', 'requested', 'revoked']);
  });
});
