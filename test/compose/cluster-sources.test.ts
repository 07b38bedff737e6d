/** Clusters that are described by Secrets. The settings select the Secrets by name or by label. */
import { once } from 'node:events';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseClusterFile } from '../../src/compose/cluster-file.ts';
import { openSources, type ClusterSource } from '../../src/compose/cluster-sources.ts';
import { createApiServer } from '../../src/kube/api-server.ts';
import { parseKubeconfigContext } from '../../src/kube/kubeconfig.ts';
import { createServerCa, kubeconfigOf } from '../support/cluster-rig.ts';

const NAMED = { objects: 'capi', namespace: 'tailcast', names: ['dev', 'gone', 'secret'] };
const signal = new AbortController().signal;
/** Responses of the API server by path. */
const responses = new Map<string, object>();
/** Labelled Secrets, which the API server returns in pages. */
let labelled: readonly object[];
let asked: string[];
let server: Server;
let ca: string;

beforeEach(async () => {
  const { ca: authority, pair } = await createServerCa();
  ca = authority;
  asked = [];
  labelled = [];
  server = createServer({ key: pair.keyPem, cert: pair.certificatePem }, ({ url = '' }, response) => {
    asked.push(url);
    const name = url.split('/').at(-1) ?? '';
    const body = responses.get(name) ?? pageOf(url);
    response.statusCode = body === undefined ? (name === 'secret' ? 403 : 404) : 200;
    response.end(JSON.stringify(body ?? {}));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});

afterEach(async () => {
  responses.clear();
  server.closeAllConnections();
  server.close();
  await once(server, 'close');
});

function open(discovery: object, now: () => number, ownHosts: readonly string[] = []): ClusterSource {
  const { port } = server.address() as AddressInfo;
  const double = { name: 'management', port, ca } as Parameters<typeof kubeconfigOf>[0];
  const resolved = parseKubeconfigContext(kubeconfigOf(double), 'management');
  const clock = { now: () => performance.now(), wallClock: Date.now };
  const file = parseClusterFile(JSON.stringify({ discover: [discovery] }), 'clusters.yaml');
  return openSources(file, {
    apiServer: () => createApiServer({ resolved, ...clock }),
    ownHosts: async () => new Set(ownHosts),
    now,
  }).at(-1)!;
}

/** Returns a page of the labelled Secrets as an API server does: `resourceVersion=0` makes it ignore the limit. */
function pageOf(url: string): object | undefined {
  const { searchParams } = new URL(url, 'https://localhost');
  if (labelled.length === 0 || !searchParams.has('labelSelector')) return undefined;
  const start = Number(searchParams.get('continue') ?? 0);
  const size = searchParams.has('resourceVersion') ? Infinity : Number(searchParams.get('limit') ?? Infinity);
  const end = Math.min(start + size, labelled.length);
  const rest = end < labelled.length ? { continue: String(end) } : {};
  return { metadata: rest, items: labelled.slice(start, end) };
}

const secret = (name: string): object => ({
  metadata: { name, namespace: 'tailcast', labels: { 'cluster.x-k8s.io/cluster-name': name } },
  data: {
    value: Buffer.from(kubeconfigOf({ name, port: 1, ca }, { server: 'https://192.0.2.1:6443' })).toString(
      'base64',
    ),
  },
});

it('a source with all labelled Secrets names the oldest first', async () => {
  const of = (namespace: string, name: string, creationTimestamp?: string): object => ({
    ...secret(name),
    metadata: {
      name,
      namespace,
      creationTimestamp,
      labels: { 'cluster.x-k8s.io/cluster-name': 'prod' },
    },
  });
  responses.set('secrets?resourceVersion=0&labelSelector=cluster.x-k8s.io%2Fcluster-name', {
    items: [
      of('app-team', 'unknown'),
      of('app-team', 'mine', '2026-02-01T00:00:00Z'),
      of('capi-clusters', 'prod', '2026-01-01T00:00:00Z'),
    ],
  });
  const found = await open({ objects: 'capi', namespace: 'capi' }, () => 0).read(signal);
  expect([...found.keys()]).toEqual(['capi-clusters/prod', 'app-team/mine', 'app-team/unknown']);
});

describe('a source with large Secrets', () => {
  const sized = (name: string, bytes: number, day: number, namespace = 'capi'): object => ({
    ...secret(name),
    metadata: {
      name,
      namespace,
      creationTimestamp: `2026-01-${String(day).padStart(2, '0')}T00:00:00Z`,
      labels: { 'cluster.x-k8s.io/cluster-name': name },
      annotations: { padding: 'x'.repeat(bytes) },
    },
  });

  it('leaves out the large ones, and names them', async () => {
    const large = Array.from({ length: 5 }, (_, at) => sized(`large-${at}`, 1024 ** 2, 1, 'app-team'));
    labelled = [...large, sized('prod', 10, 2), sized('dev', 10, 3)];
    const found = await open({ objects: 'capi', namespace: 'capi' }, () => 0).read(signal);
    expect(found.get('capi/prod')).toMatchObject({ name: 'prod' });
    expect(found.get('capi/dev')).toMatchObject({ name: 'dev' });
    expect(found.get('app-team/large-0')).toMatchObject({
      code: 'CONFIG_INVALID',
      detail: 'app-team/large-0 is left out: it is larger than 512 KiB, or the list than 32 MiB',
    });
    expect(found.size).toBe(7);
  });

  it('leaves out the newest ones if all of them are too large together', async () => {
    const many = Array.from({ length: 80 }, (_, at) => sized(`many-${at}`, 500_000, 9, 'app-team'));
    labelled = [...many, sized('prod', 10, 2)];
    const found = await open({ objects: 'capi', namespace: 'capi' }, () => 0).read(signal);
    expect(found.get('capi/prod')).toMatchObject({ name: 'prod' });
    const kept = [...found.values()].filter((spec) => 'name' in spec && 'hosts' in spec);
    expect(kept.length).toBeLessThan(68);
    expect(kept.length).toBeGreaterThan(60);
  });

  it('leaves out the newest ones if there are too many', async () => {
    labelled = Array.from({ length: 1001 }, (_, at) => sized(`c-${at}`, 0, at === 1000 ? 1 : 2));
    const found = await open({ objects: 'capi', namespace: 'capi' }, () => 0).read(signal);
    expect(found.get('capi/c-1000')).toMatchObject({ name: 'c-1000' });
    expect(found.get('')).toMatchObject({
      detail: 'there are more than 1000 secrets; the newest are left out',
    });
    expect(found.size).toBe(1001);
  });
});

it('a discovered cluster cannot take a host name of the gateway', async () => {
  labelled = [secret('gateway'), secret('dev')];
  const own = ['gateway.example.org', 'dev'];
  const found = await open(
    { objects: 'capi', namespace: 'capi', hosts: ['{name}.example.org'] },
    () => 0,
    own,
  ).read(signal);
  expect(found.get('tailcast/dev')).toMatchObject({ hosts: ['dev.example.org'] });
  expect(found.get('tailcast/gateway')).toMatchObject({
    code: 'CONFIG_INVALID',
    detail:
      'the host name gateway.example.org of the cluster gateway is reserved for the gateway; use another name',
  });
});

describe('a source with named Secrets', () => {
  it('reads them one by one, and lists none', async () => {
    responses.set('dev', secret('dev'));
    let nowMs = 0;
    const source = open(NAMED, () => nowMs);
    const found = await source.read(signal);
    expect(asked.toSorted()).toEqual(
      NAMED.names.map((name) => `/api/v1/namespaces/tailcast/secrets/${name}`),
    );
    expect([...found.keys()].toSorted()).toEqual(['tailcast/dev', 'tailcast/secret']);
    expect(found.get('tailcast/dev')).toMatchObject({ name: 'dev', isTrusted: false });
    // an unreadable Secret stays in the result with an error; a deleted Secret is absent
    expect(found.get('tailcast/secret')).toMatchObject({
      code: 'UPSTREAM_BROKEN',
      detail: 'tailcast/secret returned 403',
    });
    responses.delete('dev');
    nowMs += 15_000;
    expect([...(await source.read(signal)).keys()]).toEqual(['tailcast/secret']);
  });

  it('parses an object again only after a change', async () => {
    const version = (resourceVersion: string): object => {
      const object = secret('dev') as { metadata: object };
      return { ...object, metadata: { ...object.metadata, uid: 'u1', resourceVersion } };
    };
    responses.set('dev', version('1'));
    let nowMs = 0;
    const source = open(NAMED, () => nowMs);
    const first = (await source.read(signal)).get('tailcast/dev');
    nowMs += 15_000;
    expect((await source.read(signal)).get('tailcast/dev')).toBe(first);
    responses.set('dev', version('2'));
    nowMs += 15_000;
    const changed = (await source.read(signal)).get('tailcast/dev');
    expect(changed).toEqual(first);
    expect(changed).not.toBe(first);
  });

  it.each([
    ['without a namespace', { namespace: undefined }, 'objects needs a namespace'],
    ['with a selector', { label: 'env=prod' }, 'names excludes label'],
    ['with too many names', { names: Array.from({ length: 201 }, (_, index) => `s${index}`) }, 'discover[0]'],
  ])('is refused %s', (_case, fields, message) => {
    const text = JSON.stringify({ discover: [{ ...NAMED, ...fields }] });
    expect(() => parseClusterFile(text, 'clusters.yaml')).toThrow(message);
  });
});
