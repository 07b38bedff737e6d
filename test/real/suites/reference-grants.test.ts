/**
 * Compares the effect of grants at the API server proxy of the reference (Tailscale's operator and tsrecorder) and at
 * our gateway, on one tailnet. Checks the user and groups that the API server sees, and the recorder that stores the
 * session.
 */
import { createServer, connect, isIPv4, type Server } from 'node:net';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { connect as connectTls } from 'node:tls';
import { Transform, pipeline } from 'node:stream';
import { text } from 'node:stream/consumers';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createPod } from '../cases/case.ts';
import {
  GRANT_CASES,
  type GrantCase,
  LEGACY_NAME,
  type RecorderAddresses,
  type Recorders,
  type Seen,
} from '../cases/grants.ts';
import { ensurePeer } from '../rig/build.ts';
import { type Kubectl, findKubectls, runKubectl } from '../rig/kubectl.ts';
import { type Kubernetes, startKubernetes } from '../rig/kubernetes.ts';
import { type ReferenceProxy, startReferenceProxy } from '../rig/reference-proxy.ts';
import { type Rig, createRig } from '../rig/rig.ts';
import { startS3 } from '../rig/s3.ts';
import { type Tailnet, type TailnetNode, startTailnet } from '../rig/tailnet.ts';
import { type Archive, openArchive } from '../support/archive.ts';
import {
  type SiteGateway,
  type SiteRecorder,
  createBucket,
  kubeconfigAt,
  startSiteGateway,
  startSiteRecorder,
} from '../support/site.ts';

const FRONTS = ['reference', 'ours'] as const;
type Front = (typeof FRONTS)[number];
const CAPABILITY = 'tailscale.com/cap/kubernetes';
const OLDER_NAME = 'https://tailscale.com/cap/kubernetes';
/** Recorders by name; `first` has the lowest address. */
type Named<T> = Record<keyof Recorders, T>;
const RECORDERS = ['first', 'second'] as const;

let rig: Rig;
let cluster: Kubernetes;
let tailnet: Tailnet;
let reference: ReferenceProxy;
let gateway: SiteGateway;
let recorders: Named<{ node: TailnetNode; site: SiteRecorder; archive: Archive }>;
let kubectl: Kubectl;
let renamed: Server;
let policies = 0;
/** Commands of the sessions that each recorder must have stored, in order. */
const recorded: Named<string[]> = { first: [], second: [] };

beforeAll(async () => {
  for (const peer of ['kubernetes-1.36', 'kubelet-double', 'tailnet', 'versitygw', 'reference'] as const)
    await ensurePeer(peer);
  rig = createRig();
  const [kubernetes, network, s3] = await Promise.all([
    startKubernetes(rig, { node: { webSockets: true } }),
    startTailnet(rig, {
      nodes: [
        { name: 'proxy', tags: ['tag:k8s'] },
        { name: 'recorder-1', tags: ['tag:recorder'] },
        { name: 'recorder-2', tags: ['tag:recorder'] },
        { name: 'alice', user: 'alice@example.com' },
        { name: 'ci', tags: ['tag:ci', 'tag:web'] },
        { name: 'marker', user: 'marker@example.com' },
      ],
      policy: policyOf([]),
    }),
    startS3(rig),
  ]);
  [cluster, tailnet] = [kubernetes, network];
  kubectl = (await findKubectls()).at(-1)!;
  await createPod(cluster, 'shell', { command: ['sleep', 'infinity'] });
  const nodes = ['recorder-1', 'recorder-2']
    .map((name) => tailnet.node(name))
    .toSorted((a, b) => a.addresses[0].localeCompare(b.addresses[0], 'en', { numeric: true }));
  const started = await Promise.all(
    nodes.map(async (node) => {
      const bucket = node.name;
      await createBucket(s3, bucket);
      const site = await startSiteRecorder(rig, { name: bucket, node, s3, bucket, port: 80 });
      return { node, site, archive: openArchive(site.url) };
    }),
  );
  recorders = { first: started[0]!, second: started[1]! };
  reference = await startReferenceProxy(rig, {
    mode: 'auth',
    kubernetes: cluster,
    tailnet,
    legacyName: LEGACY_NAME,
  });
  const proxy = tailnet.node('proxy');
  const socketPath = join(rig.folder, 'renamed');
  renamed = await startRenamed(proxy.socketPath, socketPath);
  gateway = await startSiteGateway(rig, { name: 'gateway', node: { ...proxy, socketPath }, cluster });
});

afterAll(async () => {
  await rig?.stop();
  renamed?.close();
});

/**
 * Starts a proxy for a LocalAPI that renames one capability to its older name, because headscale rejects a policy with
 * that name.
 */
async function startRenamed(from: string, to: string): Promise<Server> {
  const server = createServer({ allowHalfOpen: true }, (client) => {
    const daemon = connect({ path: from, allowHalfOpen: true });
    const end = (): void => void [client.destroy(), daemon.destroy()];
    pipeline(client, daemon, (error) => error && end());
    pipeline(daemon, replacing(LEGACY_NAME, OLDER_NAME), client, (error) => error && end());
  });
  await new Promise<void>((done) => server.listen(to, done));
  return server;
}

/**
 * Replaces a name in a stream with another name of the same length. A chunk that ends with at least the first label of
 * the name is delayed until the next chunk arrives. Other chunks are forwarded immediately, because uploads to
 * recorders also use this proxy.
 */
function replacing(from: string, to: string): Transform {
  if (from.length !== to.length) throw new Error(`${from} and ${to} differ in length`);
  const starts = Array.from({ length: from.length }, (_, length) => from.slice(0, length)).slice(4);
  let kept = '';
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      const bytes = (kept + chunk.toString('latin1')).replaceAll(from, to);
      kept = starts.findLast((start) => bytes.endsWith(start)) ?? '';
      done(null, Buffer.from(bytes.slice(0, bytes.length - kept.length), 'latin1'));
    },
    flush: (done) => done(null, Buffer.from(kept, 'latin1')),
  });
}

/** Returns a policy. The groups for `marker` differ in each case, so the test can see when a proxy uses the policy. */
function policyOf(grants: readonly { readonly src: string; readonly app: object }[]): object {
  const marker = {
    src: 'marker@example.com',
    app: { [CAPABILITY]: [{ impersonate: { groups: [`case-${policies}`] } }] },
  };
  return {
    tagOwners: Object.fromEntries(
      ['k8s', 'recorder', 'ci', 'web'].map((tag) => [`tag:${tag}`, ['alice@example.com']]),
    ),
    acls: [{ action: 'accept', src: ['*'], dst: ['*:*'] }],
    grants: [marker, ...grants].map(({ src, app }) => ({ src: [src], dst: ['tag:k8s'], app })),
  };
}

/** Replaces the grants of a caller, and returns when both proxies use them. */
async function setGrants({ caller = 'alice', grants }: Pick<GrantCase, 'caller' | 'grants'>): Promise<void> {
  policies += 1;
  const src = caller === 'alice' ? 'alice@example.com' : 'tag:ci';
  const addresses = { first: addressesOf('first'), second: addressesOf('second') };
  tailnet.setPolicy(policyOf(grants(addresses).map((app) => ({ src, app }))));
  for (const front of FRONTS) {
    await rig.until(`policy ${policies} at ${front}`, async () =>
      (await review(front, 'marker')).includes(`case-${policies} `) ? true : undefined,
    );
  }
}

function addressesOf(name: keyof Recorders): RecorderAddresses {
  const [ipv4, ipv6] = recorders[name].node.addresses;
  expect([isIPv4(ipv4), isIPv4(ipv6)]).toEqual([true, false]);
  return [`${ipv4}:80`, `[${ipv6}]:80`];
}

function targetOf(front: Front): {
  addresses: readonly [string, string];
  port: number;
  ca: string;
  name: string;
} {
  if (front === 'reference')
    return { addresses: reference.addresses, port: 443, ca: cluster.ca, name: reference.name };
  const proxy = tailnet.node('proxy');
  return { addresses: proxy.addresses, port: gateway.port, ca: gateway.ca, name: proxy.dnsName };
}

/** Returns the user and groups of a caller as the API server sees them, or the refusal. */
async function review(front: Front, from: string, family: 4 | 6 = 4): Promise<string> {
  const { addresses, port, ca, name } = targetOf(front);
  const tunnel = await tailnet.node(from).connect(addresses[family === 4 ? 0 : 1], port);
  const socket = connectTls({ socket: tunnel, ca, servername: name });
  try {
    const sent = request({
      createConnection: () => socket,
      host: name,
      method: 'POST',
      path: '/apis/authentication.k8s.io/v1/selfsubjectreviews',
      headers: { 'content-type': 'application/json' },
      signal: AbortSignal.timeout(60_000),
    });
    sent.end(JSON.stringify({ apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' }));
    const [response] = (await once(sent, 'response')) as [IncomingMessage];
    const body = await text(response);
    return response.statusCode === 201
      ? identityOf(body)
      : `${response.statusCode} ${refusalOf(body)}`.trim();
  } finally {
    socket.destroy();
  }
}

function identityOf(body: string): string {
  const { userInfo } = (
    JSON.parse(body) as { status: { userInfo: { username: string; groups?: readonly string[] } } }
  ).status;
  return [userInfo.username, ...(userInfo.groups ?? [])].join(' | ');
}

/** Returns tailcast's error code, or the start of the reference's error text. */
function refusalOf(body: string): string {
  if (!body.startsWith('{')) return body.split(':')[0] ?? '';
  const { details } = JSON.parse(body) as { details: { causes: readonly { message: string }[] } };
  return details.causes.map(({ message }) => message).join(' ');
}

/** Runs a command in the pod and returns the recorder with its recording, or the refusal. */
async function session(front: Front, from: string, expected: string): Promise<string> {
  const mark = `case-${policies}-${front}`;
  const to = { node: tailnet.node('proxy'), port: gateway.port, ca: gateway.ca, cluster };
  const kubeconfig =
    front === 'reference' ? reference.kubeconfig(from) : kubeconfigAt(tailnet.node(from), to);
  const { code, stdout } = await runKubectl(kubectl, ['exec', 'shell', '--', 'echo', mark], { kubeconfig });
  expect(stdout.toString()).toBe(code === 0 ? `${mark}\n` : '');
  if (code !== 0) return 'refused';
  if (expected !== 'first' && expected !== 'second') return 'unrecorded';
  recorded[expected].push(`echo ${mark}`);
  return rig.until(`the recording of ${mark}`, async () => {
    for (const name of RECORDERS) if ((await commandsOf(name)).includes(`echo ${mark}`)) return name;
    return undefined;
  });
}

async function commandsOf(name: keyof Recorders): Promise<readonly string[]> {
  const stored = await recorders[name].archive.of('shell');
  return stored.flatMap(({ command, state }) => (state === 'running' ? [] : (command ?? [])));
}

const at = (seen: Seen, front: Front): string => (typeof seen === 'string' ? seen : seen[front]);

describe('the API server and the recorders see the same through both proxies, or a listed difference', () => {
  it.each(GRANT_CASES)('$name', { timeout: 240_000 }, async (one) => {
    const { caller = 'alice', family = 4 } = one;
    await setGrants(one);
    for (const front of FRONTS) {
      const events = (): Promise<number> => recorders.first.site.metric('tailcast_recorder_events_total');
      const before = await events();
      const seen = await review(front, caller, family);
      expect(`${front}: ${seen}`).toBe(`${front}: ${at(one.request, front)}`);
      if (one.event) await expect.poll(events, { timeout: 10_000 }).toBeGreaterThan(before);
      if (one.session === undefined) continue;
      const expected = at(one.session, front);
      expect(`${front}: ${await session(front, caller, expected)}`).toBe(`${front}: ${expected}`);
    }
  });

  it('no other session is recorded', async () => {
    for (const name of RECORDERS)
      expect((await commandsOf(name)).toSorted()).toEqual(recorded[name].toSorted());
  });
});
