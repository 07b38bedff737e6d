/**
 * Users of a tailnet work with a real API server: kubectl on each user's node connects through the tailnet to gateways
 * next to the proxy node's tailscaled. The recorder node stores sessions in a real bucket.
 */
import { connect as connectTcp, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { once } from 'node:events';
import { connect as connectTls } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createPod } from '../cases/case.ts';
import { type Kubectl, type KubectlResult, type Transport, runKubectl } from '../rig/kubectl.ts';
import type { Kubernetes } from '../rig/kubernetes.ts';
import { type Rig, createRig } from '../rig/rig.ts';
import type { Tailnet, TailnetNode } from '../rig/tailnet.ts';
import type { Archive } from '../support/archive.ts';
import { publish } from '../support/compatibility.ts';
import { startLoadBalancer } from '../rig/haproxy.ts';
import {
  type SiteGateway,
  type SiteRecorder,
  kubeconfigAt,
  sitePolicy,
  startSiteGateway,
  startSiteRecorder,
} from '../support/site.ts';
import { BUCKET, ensureTailnetSite, startTailnetSite } from '../support/tailnet-site.ts';

/** Separate loopback addresses, to which a userspace tailscaled forwards connections only through `serve`. */
const SERVED_HOST = '127.0.0.77';
const BALANCED_HOST = '127.0.0.78';

const COLUMNS = ['who calls', 'exec, recorded'] as const;
/** Operations that worked, by path and by column of the table. */
const seen = new Map<string, Map<string, Set<string>>>();

let rig: Rig;
let cluster: Kubernetes;
let tailnet: Tailnet;
let proxy: TailnetNode;
let recorder: SiteRecorder;
let taggedRecorder: SiteRecorder;
/** Recorder at an untagged node of mallory, which has a forged name. */
let foreignRecorder: SiteRecorder;
let plain: SiteGateway;
let served: SiteGateway;
let archive: Archive;
let kubectl: Kubectl;

beforeAll(async () => {
  await ensureTailnetSite();
  rig = createRig();
  const site = await startTailnetSite(rig, [
    { name: 'alice', user: 'alice@example.com' },
    { name: 'bob', user: 'bob@example.com' },
    { name: 'dan', user: 'dan@example.com' },
    { name: 'ci', tags: ['tag:ci'] },
    { name: 'mallory', user: 'mallory@example.com' },
  ]);
  ({ cluster, tailnet, proxy, recorder, archive, kubectl, gateway: plain } = site);
  const beside = { node: tailnet.node('recorder'), s3: site.s3, bucket: BUCKET };
  const foreign = { ...beside, node: tailnet.node('mallory') };
  [taggedRecorder, foreignRecorder, served] = await Promise.all([
    startSiteRecorder(rig, { ...beside, name: 'recorder-80', port: 80 }),
    startSiteRecorder(rig, { ...foreign, name: 'recorder-mallory', port: 80 }),
    startSiteGateway(rig, { name: 'gateway-served', node: proxy, cluster, host: SERVED_HOST }),
  ]);
  await setGrants('rig:viewers');
  await createPod(cluster, 'shell', { command: ['sleep', 'infinity'] });
});

afterAll(() => rig?.stop());

/**
 * Sets the grants: alice and dan are administrators with enforced recording, bob is in one group, machines are
 * deployers.
 */
async function setGrants(groupOfBob: string, recorderOfDan: readonly string[] = []): Promise<void> {
  const masters = { groups: ['system:masters'], enforce: true };
  tailnet.setPolicy(
    sitePolicy([
      { ...masters, src: 'alice@example.com', recorder: [recorder.address], events: true },
      { ...masters, src: 'dan@example.com', recorder: ['tag:recorder', ...recorderOfDan] },
      { src: 'bob@example.com', groups: [groupOfBob] },
      { src: 'tag:ci', groups: ['rig:deployers'] },
    ]),
  );
  await rig.until('the policy is in force', async () =>
    (await groupsOf('bob')).includes(groupOfBob) ? true : undefined,
  );
}

function works(road: string, column: (typeof COLUMNS)[number], what: string): void {
  const row = seen.get(road) ?? new Map<string, Set<string>>();
  seen.set(road, row.set(column, (row.get(column) ?? new Set()).add(what)));
}

const LABELS = { websocket: 'WS', spdy: 'SPDY' } as const;
const PLAIN = {
  http: 'kubectl through the HTTP proxy of tailscaled',
  socks5: 'kubectl through the SOCKS proxy of tailscaled',
} as const;
const servedRoad = (version: number): string =>
  `kubectl through tailscale serve with PROXY protocol ${version}`;
const balancedRoad = (version: number): string =>
  `kubectl through tailscale serve and haproxy with PROXY protocol ${version}`;

interface Road {
  readonly gateway: SiteGateway;
  /** Listening port of the proxy node. */
  readonly port: number;
  readonly via?: 'http' | 'socks5';
}

const direct = (): Road => ({ gateway: plain, port: plain.port });

async function at(
  from: string,
  args: readonly string[],
  { road = direct(), transport, stdin }: { road?: Road; transport?: Transport; stdin?: Buffer } = {},
): Promise<KubectlResult> {
  const to = { node: proxy, port: road.port, ca: road.gateway.ca, cluster };
  return runKubectl(kubectl, args, {
    kubeconfig: kubeconfigAt(tailnet.node(from), to, road.via),
    ...(transport === undefined ? {} : { transport }),
    ...(stdin === undefined ? {} : { stdin }),
  });
}

interface UserInfo {
  readonly username: string;
  readonly groups: readonly string[];
}

async function whoami(from: string, road?: Road): Promise<UserInfo> {
  const options = road === undefined ? {} : { road };
  const { code, stdout, stderr } = await at(from, ['auth', 'whoami', '--output=json'], options);
  if (code !== 0) throw new Error(stderr.toString());
  return (JSON.parse(stdout.toString()) as { status: { userInfo: UserInfo } }).status.userInfo;
}

async function groupsOf(from: string): Promise<readonly string[]> {
  return (await whoami(from)).groups;
}

const ALICE = { username: 'alice@example.com', groups: ['system:masters', 'system:authenticated'] };

const scriptOf = (who: string): string =>
  `printf 'out of %s\\n' ${who}; printf '\\377\\n'; echo err >&2; exit 7`;

/** Runs a command in the pod; returns the output that the caller received, and the output in the recording. */
async function recordedExec(
  from: string,
  { road, transport }: { road?: Road; transport: Transport },
): Promise<object> {
  const before = (await archive.of('shell')).length;
  const { code, stdout } = await at(from, ['exec', 'shell', '--', 'sh', '-c', scriptOf(from)], {
    transport,
    ...(road === undefined ? {} : { road }),
  });
  const { id, state, kind, result } = (await archive.whole(['shell'], before + 1)).at(-1)!;
  const { header, ...recorded } = await archive.read(id);
  const { srcNode, srcNodeUser, command } = header;
  return {
    seen: { code, stdout: stdout.toString('latin1') },
    recorded: { state, kind, result, stdout: recorded.stdout.toString('latin1') },
    stderr: recorded.stderr.toString(),
    header: { srcNode, srcNodeUser, command },
  };
}

/** Returns the expected result of `recordedExec`. */
function asItWas(who: string): object {
  const stdout = `out of ${who}\n\xff\n`;
  return {
    seen: { code: 7, stdout },
    recorded: { state: 'completed', kind: 'exec', result: '7', stdout },
    stderr: 'err\n',
    header: {
      srcNode: `${who}.lab.ts.net`,
      srcNodeUser: `${who}@example.com`,
      command: `sh -c ${scriptOf(who)}`,
    },
  };
}

describe('kubectl at a node of the tailnet', () => {
  it.each(['http', 'socks5'] as const)('is the person, through the %s proxy of tailscaled', async (via) => {
    expect(await whoami('alice', { ...direct(), via })).toMatchObject(ALICE);
    works(PLAIN[via], 'who calls', '✓');
  });

  it.each(['websocket', 'spdy'] as const)('is recorded over %s', async (transport) => {
    // Alice's grant names the recorder by address, dan's by tag.
    expect(await recordedExec('alice', { transport })).toEqual(asItWas('alice'));
    expect(await recordedExec('dan', { transport })).toEqual(asItWas('dan'));
    works(PLAIN.http, 'exec, recorded', LABELS[transport]);
  });

  it('is filed under the node that uploaded, in the bucket that both recorders share', async () => {
    const pageOf = async (url: string): Promise<readonly { id: string; destination: { node: string } }[]> =>
      ((await (await fetch(`${url}/api/v1/recordings?limit=500`)).json()) as { recordings: [] }).recordings;
    const nodes = new Set((await pageOf(recorder.url)).map(({ destination }) => destination.node));
    expect([...nodes].toSorted()).toEqual(['localhost', 'proxy.lab.ts.net']);
    const ids = async (url: string): Promise<readonly string[]> =>
      (await pageOf(url)).map(({ id }) => id).toSorted();
    await expect.poll(() => ids(taggedRecorder.url), { timeout: 15_000 }).toEqual(await ids(recorder.url));
  });

  it('leaves an event for each request of who is to be watched', async () => {
    await at('alice', ['get', 'configmaps', '--namespace=tailcast']);
    expect(await recorder.metric('tailcast_recorder_events_total')).toBeGreaterThan(0);
  });

  it('carries 8 MiB both ways, and the recording holds them', async () => {
    const body = Buffer.alloc(8 * 1024 * 1024);
    for (let index = 0; index < body.length; index += 4)
      body.writeUInt32LE((index * 2_654_435_761) % 2 ** 32, index);
    const before = (await archive.of('shell')).length;
    const run = await at('alice', ['exec', '-i', 'shell', '--', 'cat'], { stdin: body });
    expect([run.code, run.stdout.equals(body)]).toEqual([0, true]);
    const recording = (await archive.whole(['shell'], before + 1)).at(-1)!;
    expect((await archive.read(recording.id)).stdout.equals(body)).toBe(true);
  });

  it('may do what the grants say and no more', async () => {
    expect(await whoami('bob')).toMatchObject({ username: 'bob@example.com' });
    const list = await at('bob', ['get', 'pods', '--output=name']);
    expect([list.code, list.stdout.toString().trim()]).toEqual([0, 'pod/shell']);
    const before = await archive.count();
    const exec = await at('bob', ['exec', 'shell', '--', 'true'], { transport: 'spdy' });
    expect(exec.code).toBe(1);
    expect(exec.stderr.toString()).toContain('User "bob@example.com" cannot create resource "pods/exec"');
    expect(await archive.count()).toBe(before);
  });

  it('is its node when that is tagged', async () => {
    expect(await whoami('ci')).toMatchObject({
      username: 'ci.lab.ts.net',
      groups: ['rig:deployers', 'system:authenticated'],
    });
  });

  it('has no group at all without a grant', async () => {
    expect(await whoami('mallory')).toMatchObject({
      username: 'mallory@example.com',
      groups: ['system:authenticated'],
    });
    const list = await at('mallory', ['get', 'pods']);
    expect(list.code).toBe(1);
    expect(list.stderr.toString()).toContain('User "mallory@example.com" cannot list resource "pods"');
  });
});

describe('a grant that names a tag and an address', () => {
  const exec = (): Promise<KubectlResult> => at('dan', ['exec', 'shell', '--', 'echo', 'ran']);

  it('has sessions recorded there when the node of that address carries the tag', async () => {
    await setGrants('rig:viewers', [taggedRecorder.address]);
    await expect.poll(exec, { timeout: 20_000 }).toMatchObject({ code: 0 });
  });

  it('has nobody dial the address of a node that does not', async () => {
    await setGrants('rig:viewers', [foreignRecorder.address]);
    await rig.until('the grant of dan is in force', async () => {
      const { code, stderr } = await exec();
      return code === 1 && stderr.toString().includes('is no node with tag:recorder') ? true : undefined;
    });
    expect(await foreignRecorder.metric('tailcast_recorder_received_bytes_total')).toBe(0);
    await setGrants('rig:viewers');
    await expect.poll(exec, { timeout: 20_000 }).toMatchObject({ code: 0 });
  });
});

describe('a grant that changes', () => {
  it('is in force within seconds, both ways, without a restart', async () => {
    const pid = plain.program.pid;
    const create = (): Promise<KubectlResult> =>
      at('bob', ['auth', 'can-i', 'create', 'pods/exec', '--quiet']);
    expect((await create()).code).toBe(1);
    await setGrants('system:masters');
    expect((await create()).code).toBe(0);
    await setGrants('rig:viewers');
    expect((await create()).code).toBe(1);
    expect(plain.program.pid).toBe(pid);
    expect(plain.program.running).toBe(true);
  });
});

describe('behind serve with PROXY protocol', () => {
  describe.each([1, 2])('version %i', (version) => {
    beforeAll(() => serve(`tcp://${SERVED_HOST}:${served.port}`, version));

    it('everybody is who they are', async () => {
      const road = { gateway: served, port: 443 };
      expect(await whoami('alice', road)).toMatchObject(ALICE);
      expect(await whoami('bob', road)).toMatchObject({ username: 'bob@example.com' });
      expect(await whoami('ci', road)).toMatchObject({ username: 'ci.lab.ts.net' });
      works(servedRoad(version), 'who calls', '✓');
    });

    it.each(['websocket', 'spdy'] as const)('sessions over %s are recorded', async (transport) => {
      const road = { gateway: served, port: 443 };
      expect(await recordedExec('alice', { road, transport })).toEqual(asItWas('alice'));
      works(servedRoad(version), 'exec, recorded', LABELS[transport]);
    });
  });
});

describe('behind a load balancer', () => {
  let second: SiteGateway;

  beforeAll(async () => {
    second = await startSiteGateway(rig, {
      name: 'gateway-second',
      node: proxy,
      cluster,
      host: BALANCED_HOST,
    });
  });

  describe.each([1, 2] as const)('that speaks PROXY protocol version %i on both sides', (version) => {
    it(
      'everybody is who they are, and a gateway that is gone is not missed',
      { timeout: 90_000 },
      async () => {
        const balancer = await startLoadBalancer(rig, {
          host: BALANCED_HOST,
          proxyProtocol: version,
          servers: [served, second],
        });
        await serve(`tcp://${BALANCED_HOST}:${balancer.port}`, version);
        // Each gateway has its own CA, and clients trust both.
        const gateway = { ...served, ca: `${served.ca}\n${second.ca}` };
        const road = { gateway, port: 443 };
        const seen = await Promise.all([1, 2, 3, 4].map(() => whoami('alice', road)));
        for (const who of seen) expect(who).toMatchObject(ALICE);
        expect(await whoami('bob', road)).toMatchObject({ username: 'bob@example.com' });
        works(balancedRoad(version), 'who calls', '✓');
        expect(await second.metric('tailcast_requests_total')).toBeGreaterThan(0);
        expect(await recordedExec('alice', { road, transport: 'websocket' })).toEqual(asItWas('alice'));
        works(balancedRoad(version), 'exec, recorded', 'WS');
        await second.program.stop();
        await rig.until('the balancer has seen it', async () =>
          (await balancer.serversUp()) === 1 ? true : undefined,
        );
        expect(await recordedExec('alice', { road, transport: 'spdy' })).toEqual(asItWas('alice'));
        works(balancedRoad(version), 'exec, recorded', 'SPDY');
        second.program.start();
        await balancer.program.stop();
        await rig.until('the second gateway is back', () =>
          second.metric('tailcast_requests_total').then(() => true),
        );
      },
    );
  });
});

describe('who claims to be somebody else', () => {
  const FORGED = {
    'Tailscale-User-Login': 'alice@example.com',
    'Tailscale-User-Name': 'Alice',
    'Tailscale-App-Capabilities':
      '{"tailscale.com/cap/kubernetes":[{"impersonate":{"groups":["system:masters"]}}]}',
    'X-Forwarded-For': '100.64.0.3',
    'X-Remote-User': 'alice@example.com',
    'X-Webauth-User': 'alice@example.com',
    Forwarded: 'for=100.64.0.3',
  };
  const AS_ALICE = { 'Impersonate-User': 'alice@example.com', 'Impersonate-Group': 'system:masters' };

  /** Returns the number of SelfSubjectReviews that the API server has received from all clients. */
  const reviews = (): number =>
    cluster.audit().filter(({ objectRef }) => objectRef?.resource === 'selfsubjectreviews').length;

  it.each(['plain', 'serve'] as const)('in headers stays who the tailnet says, behind %s', async (front) => {
    if (front === 'serve') await serve(`tcp://${SERVED_HOST}:${served.port}`, 2);
    const port = front === 'plain' ? plain.port : 443;
    const raw = await tailnet.node('bob').connect(proxy.addresses[0], port);
    const { status, body } = await review(raw, (front === 'plain' ? plain : served).ca, FORGED);
    expect(status).toBe(201);
    expect(body.status.userInfo).toMatchObject({ username: 'bob@example.com' });
    expect(body.status.userInfo.groups).not.toContain('system:masters');
  });

  it.each(['plain', 'serve'] as const)('with --as is refused by the gateway, behind %s', async (front) => {
    const port = front === 'plain' ? plain.port : 443;
    const { ca } = front === 'plain' ? plain : served;
    const bob = tailnet.node('bob');
    const before = reviews();
    for (const headers of [
      AS_ALICE,
      { 'Impersonate-User': 'alice@example.com' },
      { ...FORGED, ...AS_ALICE },
    ]) {
      const raw = await bob.connect(proxy.addresses[0], port);
      const { status, body } = await review(raw, ca, headers);
      expect([status, body.reason]).toEqual([403, 'Forbidden']);
      expect(body.message).toContain('refuses --as, --as-group and --as-uid for any other identity');
    }
    expect(reviews()).toBe(before);
    // proves that the count above would have detected an accepted request
    await review(await bob.connect(proxy.addresses[0], port), ca, {});
    expect(reviews()).toBeGreaterThan(before);
  });

  it.each(['plain', 'serve'] as const)('in a PROXY header is not even heard, behind %s', async (front) => {
    const port = front === 'plain' ? plain.port : 443;
    const socket = await tailnet.node('bob').connect(proxy.addresses[0], port);
    socket.on('error', () => undefined);
    socket.write(`PROXY TCP4 ${tailnet.node('alice').addresses[0]} ${proxy.addresses[0]} 1000 443\r\n`);
    const secured = connectTls({ socket, rejectUnauthorized: false, servername: 'localhost' });
    await expect(once(secured, 'secureConnect')).rejects.toBeDefined();
  });

  it('on the machine of the gateway is nobody', async () => {
    const { status, body } = await review(connectTcp(plain.port, '127.0.0.1'), plain.ca, {
      ...FORGED,
      ...AS_ALICE,
    });
    expect([status, body.reason]).toEqual([401, 'Unauthorized']);
  });

  it('on the machine of the gateway must bring the PROXY header that only serve is to write', async () => {
    const socket = connectTcp(served.port, SERVED_HOST);
    socket.on('error', () => undefined);
    socket.write('GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n');
    expect(await text(socket)).toBe('');
  });
});

describe('test/real/compatibility.md', () => {
  it('says what was seen', ({ skip }) => {
    const cells = [...seen.values()].flatMap((row) => [...row.values()].flatMap((whats) => [...whats]));
    // Each of the six paths has three results, but the SOCKS path lacks the two results of recorded sessions.
    if (cells.length < 6 * 3 - 2) skip('not everything was run');
    const rows = [...seen].map(([road, row]) => {
      const line = COLUMNS.map((column) => [...(row.get(column) ?? ['–'])].toSorted().join(', '));
      return [road, line] as const;
    });
    expect(publish({ heading: 'Through a tailnet', columns: COLUMNS, rows: new Map(rows) })).toBeUndefined();
  });
});

/** Configures `tailscale serve` to send a PROXY header before every connection to port 443 of the proxy node. */
async function serve(target: string, version: number): Promise<void> {
  await proxy.cli('serve', 'reset');
  await proxy.cli('serve', '--bg', '--tcp=443', `--proxy-protocol=${version}`, target);
}

interface Review {
  readonly reason?: string;
  readonly message?: string;
  readonly status: { readonly userInfo: UserInfo };
}

/** Requests the caller's identity over a connection, with chosen headers. */
async function review(
  socket: Socket,
  ca: string,
  headers: Readonly<Record<string, string>>,
): Promise<{ readonly status: number; readonly body: Review }> {
  const secured = connectTls({ socket, ca, host: proxy.addresses[0] });
  await once(secured, 'secureConnect');
  const body = JSON.stringify({ apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' });
  const lines = Object.entries({
    Host: proxy.addresses[0],
    'Content-Type': 'application/json',
    'Content-Length': String(body.length),
    Connection: 'close',
    ...headers,
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  secured.write(
    `POST /apis/authentication.k8s.io/v1/selfsubjectreviews HTTP/1.1\r\n${lines.join('')}\r\n${body}`,
  );
  const answer = await text(secured);
  const [head = '', ...rest] = answer.split('\r\n\r\n');
  const json = /\{[^]*\}/.exec(rest.join('\r\n\r\n'))?.[0] ?? '';
  return { status: Number(head.split(' ')[1]), body: JSON.parse(json) as Review };
}
