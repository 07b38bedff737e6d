/** Selection of a cluster, and isolation of requests between clusters. */
import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import { createClusterGate, type GatedCluster } from '../../../src/proxy/gate/cluster-gate.ts';
import {
  chooseCluster,
  createSnapshot,
  type ClusterUpstream,
  type GatewayCluster,
} from '../../../src/proxy/gate/cluster.ts';
import { createGate, type InboundRequest } from '../../../src/proxy/gate/gate.ts';
import { UpstreamPool } from '../../../src/proxy/upstream/upstream-pool.ts';
import type { Identity, IdentitySource, Peer } from '../../../src/tailnet/identity.ts';
import { CAPABILITY, person } from '../rig.ts';
import { codeOf } from '../../support/error-code.ts';

const signal = new AbortController().signal;
const PEER: Peer = { address: '100.64.0.1', port: 40_000, source: 'socket' };

const refuse = (): Promise<never> => Promise.reject(new TailcastError('UPSTREAM_UNAVAILABLE'));

function upstream(): ClusterUpstream {
  return {
    basePath: '',
    pool: new UpstreamPool(
      { connect: refuse, credentials: {} },
      { maxConnections: 1, maxIdle: 1, idleMs: 60_000 },
      () => 0,
    ),
    connect: refuse,
    accountRefusals: { find: () => undefined },
    credentialRefused: () => {},
    enter: () => () => {},
  };
}

interface Asked {
  readonly address: string;
  readonly service: string | undefined;
}

function clusterOf(
  name: string,
  overrides: Partial<GatewayCluster> = {},
  identities: IdentitySource = { whois: () => Promise.resolve(person()) },
): GatedCluster {
  const cluster: GatewayCluster = {
    name,
    id: `id-${name}`,
    hosts: [`${name}.ts.net`],
    addresses: [],
    service: undefined,
    isDefault: false,
    kcp: false,
    upstream: upstream(),
    ...overrides,
  };
  return { ...cluster, gate: gateOf(identities, cluster) };
}

function gateOf(identities: IdentitySource, cluster?: GatewayCluster): GatedCluster['gate'] {
  return createGate({
    mode: 'auth',
    identities,
    upstreamHost: `${cluster?.name ?? 'own'}.api`,
    authorization: () => Promise.resolve(`Bearer ${cluster?.name ?? 'own'}`),
    nowMs: () => 0,
    createId: () => 'id',
    ...(cluster === undefined ? {} : { cluster }),
  });
}

function several(
  rules: readonly unknown[],
  overrides: Readonly<Record<string, Partial<GatewayCluster>>> = { a: {}, b: {} },
) {
  const asked: Asked[] = [];
  const identity: Identity = { ...person(), capabilities: new Map([[CAPABILITY, rules]]) };
  const identities: IdentitySource = {
    whois(peer, _, service) {
      asked.push({ address: peer.address, service });
      return Promise.resolve(identity);
    },
  };
  const clusters = Object.entries(overrides).map(([name, one]) => clusterOf(name, one, identities));
  let snapshot = createSnapshot(clusters);
  const gate = createClusterGate({ current: () => snapshot, own: gateOf(identities) });
  return {
    gate,
    asked,
    clusters,
    replace(next: readonly GatedCluster[]): void {
      snapshot = createSnapshot(next);
    },
  };
}

function inbound(
  target: string,
  host = 'gateway.ts.net',
  overrides: Partial<InboundRequest> = {},
): InboundRequest {
  return { method: 'GET', target, rawHeaders: ['Host', host], peer: PEER, upgrade: false, ...overrides };
}

const BOTH = [
  { clusters: ['a'], impersonate: { groups: ['admins-of-a'] } },
  { clusters: ['b'], impersonate: { groups: ['viewers-of-b'] } },
];

describe('the selection of a cluster', () => {
  const [a, b, kcp] = [
    clusterOf('a', { addresses: ['100.100.1.1'] }),
    clusterOf('b', { addresses: ['100.100.1.2'] }),
    clusterOf('kcp', { kcp: true }),
  ];
  const snapshot = createSnapshot([a, b, kcp]);
  const choose = (target: string, host: string, peer: Partial<Peer> = {}): string => {
    try {
      const {
        cluster,
        named,
        target: rest,
      } = chooseCluster(snapshot, {
        target,
        host,
        peer: { ...PEER, ...peer },
      });
      return `${cluster?.name ?? '-'} ${named ?? '-'} ${rest}`;
    } catch (error) {
      return error instanceof TailcastError ? error.code : String(error);
    }
  };

  it.each([
    ['/api', 'a.ts.net', {}, 'a - /api'],
    ['/api', 'A.TS.net.:8443', {}, 'a - /api'],
    ['/api', 'a.ts.net', { serverName: 'a.ts.net' }, 'a - /api'],
    ['/api', 'b.ts.net', { serverName: 'a.ts.net' }, 'CLUSTER_MISMATCH'],
    ['/api', 'gateway.ts.net', { serverName: 'a.ts.net' }, 'CLUSTER_MISMATCH'],
    ['/api', 'a.ts.net', { serverName: 'gateway.ts.net' }, 'CLUSTER_MISMATCH'],
    ['/api', '100.64.0.9:443', { serverName: 'a.ts.net' }, 'a - /api'],
    ['/api', 'b.ts.net', {}, 'b - /api'],
    ['/api', 'b.ts.net', { destination: '100.100.1.1' }, 'CLUSTER_MISMATCH'],
    ['/api', '100.100.1.2', { destination: '100.100.1.1' }, 'CLUSTER_MISMATCH'],
    ['/api', '100.100.1.1', {}, 'a - /api'],
    ['/api', 'anything', { listener: 'a' }, 'a - /api'],
    ['/api', 'b.ts.net', { listener: 'a' }, 'CLUSTER_MISMATCH'],
    ['/api', 'anything', { listener: 'gone' }, '- gone /api'],
    ['/api', 'gateway.ts.net', {}, '- - /api'],
    ['/clusters/a/api', 'gateway.ts.net', {}, 'a a /api'],
    ['/clusters/a', 'gateway.ts.net', {}, 'a a /'],
    ['/clusters/a?x=1', 'gateway.ts.net', {}, 'a a /?x=1'],
    ['/clusters/a/api', 'a.ts.net', {}, 'a a /api'],
    ['/clusters/b/api', 'a.ts.net', {}, 'CLUSTER_MISMATCH'],
    ['/clusters/b/api', '100.64.0.9', { serverName: 'a.ts.net' }, 'CLUSTER_MISMATCH'],
    ['/clusters/A/api', 'gateway.ts.net', {}, '- A /api'],
    ['/clusters/%61/api', 'gateway.ts.net', {}, '- %61 /api'],
    ['/clusters/', 'gateway.ts.net', {}, '-  /'],
    ['/%63lusters/a/api', 'gateway.ts.net', {}, '- - /%63lusters/a/api'],
    ['//clusters/a/api', 'gateway.ts.net', {}, '- - //clusters/a/api'],
    ['/clusters/root:org/api', 'kcp.ts.net', {}, 'kcp - /clusters/root:org/api'],
    ['/clusters/kcp/clusters/root:org/api', 'gateway.ts.net', {}, 'kcp kcp /clusters/root:org/api'],
  ])('%s at %s %j: %s', (target, host, peer, expected) => {
    expect(choose(target, host, peer)).toBe(expected);
  });

  it.each([
    ['name', {}],
    ['host name', { name: 'c' }],
    ['address', { name: 'c', hosts: [] }],
  ])('refuses two clusters with one %s', (what, overrides) => {
    const other = clusterOf('a', { addresses: ['100.100.1.1'], ...overrides });
    expect(() => createSnapshot([a, other])).toThrow(`share the ${what}`);
  });
});

describe('the gate of several clusters', () => {
  it('gives each request the rules, credential and host of its cluster', async () => {
    const { gate } = several(BOTH);
    const first = await gate.admit(inbound('/api/v1/pods', 'a.ts.net'), signal);
    const second = await gate.admit(inbound('/clusters/b/api/v1/pods'), signal);
    expect(first.impersonation?.groups).toEqual(['admins-of-a']);
    expect(second.impersonation?.groups).toEqual(['viewers-of-b']);
    expect(first.headers).toContain('Bearer a');
    expect(second.headers).toContain('Bearer b');
    expect(second.headers.join(' ')).not.toMatch(/Bearer a|admins-of-a|a\.api/);
    expect([first.cluster?.name, second.cluster?.name]).toEqual(['a', 'b']);
    expect(second.target.raw).toBe('/api/v1/pods');
    expect(second.info.resource).toBe('pods');
  });

  it.each([
    ['no rule', []],
    ['a rule for another cluster', [{ clusters: ['b'], impersonate: { groups: ['x'] } }]],
    ['a rule for no cluster', [{ clusters: [], impersonate: { groups: ['x'] } }]],
    ['a rule without clusters', [{ impersonate: { groups: ['x'] } }]],
  ])('refuses a caller with %s in the same way as a cluster that does not exist', async (_, rules) => {
    const { gate } = several(rules);
    const errors = await Promise.all(
      ['/clusters/a/api', '/clusters/nowhere/api'].map((target) =>
        gate.admit(inbound(target), signal).catch((error: unknown) => String(error)),
      ),
    );
    expect(errors[0]).toBe(errors[1]);
    expect(await codeOf(gate.admit(inbound('/clusters/a/api'), signal))).toBe('CLUSTER_REFUSED');
  });

  it('refuses a tagged node without a rule, which a gateway for one cluster admits', async () => {
    const { nodeId, nodeName, addresses } = person();
    const node = { nodeId, nodeName, addresses, capabilities: new Map() };
    const whois = (): Promise<Identity> => Promise.resolve({ ...node, kind: 'tagged', tags: ['tag:ci'] });
    const snapshot = createSnapshot([clusterOf('a', {}, { whois })]);
    const gate = createClusterGate({ current: () => snapshot, own: gateOf({ whois }) });
    expect(await codeOf(gate.admit(inbound('/clusters/a/api'), signal))).toBe('CLUSTER_REFUSED');
    const { impersonation } = await gateOf({ whois }).admit(inbound('/api'), signal);
    expect(impersonation?.user).toBe('laptop.example.ts.net');
  });

  it.each([
    [['Impersonate-User', 'root'], '/clusters/%s/api', 'CLUSTER_REFUSED'],
    [[], '/clusters/%s/..', 'REQUEST_NOT_CANONICAL'],
    [['Origin', 'https://evil.test'], '/clusters/%s/api', 'POLICY_REFUSED'],
  ])('does not show which clusters exist to a request with %j for %s', async (fields, target, code) => {
    const { gate } = several([]);
    for (const name of ['a', 'nowhere']) {
      const rawHeaders = ['Host', 'gateway.ts.net', ...fields];
      const request = inbound(target.replace('%s', name), undefined, { rawHeaders });
      expect(await codeOf(gate.admit(request, signal))).toBe(code);
    }
  });

  it.each([
    ['/api', 'CLUSTER_MISSING'],
    ['/', 'CLUSTER_MISSING'],
    ['/-/other', 'NOT_FOUND'],
    ['//clusters/a/api', 'REQUEST_NOT_CANONICAL'],
    ['/clusters/a/../b/api', 'REQUEST_NOT_CANONICAL'],
    ['/clusters/a/%2e%2e/b/api', 'REQUEST_NOT_CANONICAL'],
    ['/clusters/a//api', 'REQUEST_NOT_CANONICAL'],
    ['/clusters/a/clusters/b/api', 'REQUEST_NOT_CANONICAL'],
    ['/clusters/a%2fb/api', 'REQUEST_NOT_CANONICAL'],
    ['/clusters/A/api', 'CLUSTER_REFUSED'],
    ['/clusters/', 'CLUSTER_REFUSED'],
    ['/clusters', 'CLUSTER_MISSING'],
    ['/clusters/a/-/recordings', 'NOT_FOUND'],
  ])('returns for %s at a shared name the code %s', async (target, code) => {
    const { gate } = several([{ clusters: ['*'], impersonate: { groups: ['x'] } }]);
    expect(await codeOf(gate.admit(inbound(target), signal))).toBe(code);
  });

  it('requests the grants for the Tailscale Service of the cluster', async () => {
    const { gate, asked } = several(BOTH, { a: { service: 'svc:a' }, b: {} });
    const admission = await gate.admit(inbound('/api', 'a.ts.net'), signal);
    await gate.admit(inbound('/api', 'b.ts.net'), signal);
    await gate.confirm(admission, PEER, signal);
    await gate.recognise(inbound('/api', 'a.ts.net'), false, signal);
    const services = asked.map(({ service }) => service);
    expect(services).toEqual(['svc:a', undefined, 'svc:a', 'svc:a']);
  });

  it('applies rules without clusters only to clusters whose default they are', async () => {
    const { gate } = several([{ impersonate: { groups: ['x'] } }], { a: { isDefault: true }, b: {} });
    expect(await codeOf(gate.admit(inbound('/api', 'a.ts.net'), signal))).toBeUndefined();
    expect(await codeOf(gate.admit(inbound('/api', 'b.ts.net'), signal))).toBe('CLUSTER_REFUSED');
  });

  it('ends requests whose cluster was removed or replaced, and no others', async () => {
    const { gate, clusters, replace } = several(BOTH);
    const [a, b] = clusters;
    const onA = await gate.admit(inbound('/api', 'a.ts.net'), signal);
    const onB = await gate.admit(inbound('/api', 'b.ts.net'), signal);
    replace([b!]);
    expect(await codeOf(gate.confirm(onA, PEER, signal))).toBe('ACCESS_ENDED');
    expect(await codeOf(gate.confirm(onB, PEER, signal))).toBeUndefined();
    replace([{ ...a!, id: 'another' }, b!]);
    expect(await codeOf(gate.confirm(onA, PEER, signal))).toBe('ACCESS_ENDED');
    replace([{ ...a! }, b!]);
    expect(await codeOf(gate.confirm(onA, PEER, signal))).toBeUndefined();
  });

  it('ends requests to the cluster whose rule was removed, and no others', async () => {
    let rules: readonly unknown[] = BOTH;
    // like tailscaled, the double returns a new identity object after a change
    const whois = (): Promise<Identity> => Promise.resolve(person(rules));
    const snapshot = createSnapshot(['a', 'b'].map((name) => clusterOf(name, {}, { whois })));
    const gate = createClusterGate({ current: () => snapshot, own: gateOf({ whois }) });
    const [onA, onB] = [
      await gate.admit(inbound('/api', 'a.ts.net'), signal),
      await gate.admit(inbound('/api', 'b.ts.net'), signal),
    ];
    await gate.confirm(onA, PEER, signal);
    rules = BOTH.slice(1);
    expect(await codeOf(gate.confirm(onA, PEER, signal))).toBe('CLUSTER_REFUSED');
    expect(await codeOf(gate.confirm(onB, PEER, signal))).toBeUndefined();
  });
});

describe('the duty to record', () => {
  const recorder = { recorder: ['tag:rec'], recorderAddrs: ['100.64.0.7:80'] };
  const modeOn = async (name: string, rules: readonly unknown[]): Promise<string> => {
    const { gate } = several(rules);
    return (await gate.admit(inbound('/api', `${name}.ts.net`), signal)).recording.mode;
  };

  it('also applies to clusters outside the scope of its rule, unless a rule of the cluster decides', async () => {
    const enforcedOnA = {
      clusters: ['a'],
      impersonate: { groups: ['x'] },
      ...recorder,
      enforceRecorder: true,
    };
    const onB = { clusters: ['b'], impersonate: { groups: ['y'] } };
    expect(await modeOn('b', [enforcedOnA, onB])).toBe('failClosed');
    expect(await modeOn('b', [enforcedOnA, { ...onB, enforceRecorder: false }])).toBe('off');
    expect(await modeOn('a', [enforcedOnA, { ...onB, enforceRecorder: false }])).toBe('failClosed');
    const unscoped = { ...recorder, enforceRecorder: true };
    expect(await modeOn('b', [unscoped, onB])).toBe('failClosed');
  });
});
