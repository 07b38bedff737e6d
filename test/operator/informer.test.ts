import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { connectCluster, type ClusterConnection } from '../../src/operator/cluster-connection.ts';
import { systemClock } from '../../src/operator/clock.ts';
import { createInformer, type Informer } from '../../src/operator/informer.ts';
import { createKubeClient } from '../../src/operator/kube-client.ts';
import { KINDS } from '../../src/operator/kube-object.ts';
import { startApiServerDouble, type ApiServerDouble } from './api-server-double.ts';
import { until } from '../support/until.ts';

const SECRETS = '/api/v1/namespaces/tailcast/secrets';

let api: ApiServerDouble;
let connection: ClusterConnection;
let informer: Informer;
let changes: string[];
let warnings: string[];
let abort: AbortController;
let running: Promise<void>;

beforeEach(async () => {
  api = await startApiServerDouble();
  connection = connectCluster({ kubeconfig: api.kubeconfig, context: undefined }, new Map());
  changes = [];
  warnings = [];
  abort = new AbortController();
  const client = createKubeClient(connection, abort.signal);
  const scope = { namespace: 'tailcast', labelSelector: 'mine=yes', metadataOnly: true };
  informer = createInformer({
    source: {
      name: 'secrets',
      list: (signal) => client.list(KINDS.secret, scope, signal),
      watch: (resourceVersion, timeoutSeconds, signal) =>
        client.watch(KINDS.secret, { ...scope, resourceVersion, timeoutSeconds }, signal),
    },
    onChange: (before, after) => {
      const change = after === undefined ? 'removed' : before === undefined ? 'added' : 'changed';
      changes.push(`${change} ${(after ?? before)?.metadata.name}`);
    },
    clock: systemClock,
    random: () => 0,
    log: Object.assign(createSilentLogger(), {
      warn: (_facts: object, message: string) => void warnings.push(message),
    }),
    retry: { baseMs: 1, maxMs: 20 },
  });
});

afterEach(async () => {
  abort.abort();
  await running;
  connection.close();
  await api.close();
});

function put(name: string, labels: Record<string, string> = { mine: 'yes' }, data = 'x'): void {
  api.put(`${SECRETS}/${name}`, {
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name, namespace: 'tailcast', labels },
    data: { data },
  });
}

async function start(): Promise<void> {
  running = informer.run(abort.signal);
  await informer.synced;
  await watching();
}

const watching = (): Promise<void> => until(() => api.watches === 1);
const lists = () =>
  api.requests.filter(({ method, query }) => method === 'GET' && query.get('watch') === null);
const watchesAsked = () => api.requests.filter(({ query }) => query.get('watch') === 'true');
const seen = (...wanted: string[]): Promise<void> =>
  until(() => wanted.every((change) => changes.includes(change)));

describe('an informer', () => {
  it('tells of what is there and then of what changes, and of nothing else', async () => {
    put('a');
    put('foreign', {});
    await start();
    expect(changes).toEqual(['added a']);
    put('b');
    put('a', { mine: 'yes' }, 'y');
    put('foreign', {}, 'y');
    api.remove(`${SECRETS}/b`);
    await seen('removed b');
    expect(changes).toEqual(['added a', 'added b', 'changed a', 'removed b']);
    expect(informer.items.map(({ metadata }) => metadata.name)).toEqual(['a']);
  });

  it('asks for metadata only, for bookmarks, and for pages', async () => {
    await start();
    expect(lists()[0]?.query.get('limit')).toBe('500');
    expect(watchesAsked()[0]?.query.get('allowWatchBookmarks')).toBe('true');
    expect(watchesAsked()[0]?.query.get('timeoutSeconds')).toBe('300');
  });

  it.each(['end', 'cut'] as const)(
    'takes a watch up again where it was (%s), without a new list',
    async (how) => {
      put('a');
      await start();
      put('b');
      await seen('added b');
      const before = watchesAsked().length;
      api.endWatches(how);
      put('c');
      await seen('added c');
      expect(lists()).toHaveLength(1);
      expect(watchesAsked().length).toBeGreaterThan(before);
      const { resourceVersion } = api.objects.get(`${SECRETS}/b`)!.metadata;
      expect(watchesAsked().at(-1)?.query.get('resourceVersion')).toBe(resourceVersion);
      expect(changes.filter((change) => change === 'added b')).toHaveLength(1);
    },
  );

  it('goes on from a bookmark, so that quiet kinds do not grow too old', async () => {
    await start();
    for (let count = 0; count < 5; count += 1) put(`foreign${count}`, {});
    api.bookmark();
    const version = [...api.objects.values()].at(-1)!.metadata.resourceVersion;
    api.endWatches('end');
    await until(() => watchesAsked().length >= 2);
    expect(watchesAsked()[1]?.query.get('resourceVersion')).toBe(version);
  });

  it('waits for a kind that the server does not know, says so once, and takes it up when it comes', async () => {
    put('a');
    api.interfere = () => ({ status: 404, body: {} });
    running = informer.run(abort.signal);
    await until(() => lists().length >= 3);
    expect(warnings).toEqual(['the API server does not know this kind; the operator retries']);
    api.interfere = undefined;
    await seen('added a');
    await watching();
    api.interfere = () => ({ status: 404, body: {} });
    api.endWatches('cut');
    await until(() => warnings.length === 2);
    put('b');
    api.interfere = undefined;
    await seen('added b');
    expect(warnings).toHaveLength(2);
  });

  it('starts over when the server has forgotten its place, and tells what it missed', async () => {
    put('a');
    put('b');
    await start();
    api.interfere = () => 'cut';
    api.endWatches('cut');
    put('c');
    api.remove(`${SECRETS}/a`);
    put('b', { mine: 'yes' }, 'changed');
    api.compact();
    api.interfere = undefined;
    await seen('removed a', 'added c', 'changed b');
    expect(lists().length).toBeGreaterThan(1);
    expect(changes.filter((change) => change === 'added b')).toHaveLength(1);
  });

  it('starts over when the watch itself is refused with 410', async () => {
    await start();
    api.interfere = ({ query }) => {
      if (query.get('watch') !== 'true') return undefined;
      api.interfere = undefined;
      return { status: 410, body: { kind: 'Status', reason: 'Expired', message: 'too old', code: 410 } };
    };
    api.endWatches('end');
    await until(() => lists().length === 2);
    await watching();
    put('later');
    await seen('added later');
    expect(lists()).toHaveLength(2);
  });

  it('survives a server that is away, refuses, or talks nonsense', async () => {
    let left = 3;
    const answers = [
      'cut',
      { status: 500, body: { message: 'no' } },
      { status: 200, body: { nonsense: true } },
    ] as const;
    api.interfere = () => (left > 0 ? answers[(left -= 1)] : undefined);
    put('a');
    await start();
    expect(changes).toEqual(['added a']);
    api.interfere = ({ query }) =>
      query.get('watch') === 'true' ? { status: 403, body: { message: 'not now' } } : undefined;
    api.endWatches('cut');
    await until(() => watchesAsked().length > 5);
    api.interfere = undefined;
    put('b');
    await seen('added b');
  });

  it('reads lists of more than one page', async () => {
    for (let count = 0; count < 1203; count += 1) put(`s${count}`);
    await start();
    expect(changes).toHaveLength(1203);
    expect(lists()).toHaveLength(3);
  });
});
