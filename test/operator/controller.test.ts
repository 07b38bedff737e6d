import { readdirSync, readFileSync } from 'node:fs';
import { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { OPERATOR_SETTINGS } from '../../src/config/operator.ts';
import { runOperator } from '../../src/compose/operator.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { systemClock } from '../../src/operator/clock.ts';
import { connectCluster, type ClusterConnection } from '../../src/operator/cluster-connection.ts';
import { createController } from '../../src/operator/controller.ts';
import { createKubeClient } from '../../src/operator/kube-client.ts';
import { createWatchedObjects } from '../../src/operator/object-cache.ts';
import { createOperatorMetrics } from '../../src/operator/operator-metrics.ts';
import { ownerController } from '../../src/operator/controllers.ts';
import { startApiServerDouble, type ApiServerDouble } from './api-server-double.ts';
import { OPTIONS, recorderObject, S3 } from './recorder/recorders.ts';
import { settingsOf } from '../support/settings.ts';
import { until } from '../support/until.ts';

const RECORDERS = '/apis/tailscale.com/v1alpha1/recorders';
const SECRETS = '/api/v1/namespaces/tailcast/secrets';

let api: ApiServerDouble;
let connection: ClusterConnection;

beforeEach(async () => {
  api = await startApiServerDouble();
  connection = connectCluster({ kubeconfig: api.kubeconfig, context: undefined }, new Map());
});

afterEach(async () => {
  connection.close();
  await api.close();
});

describe('the controller', () => {
  it('looks at a Recorder when it or something of it changes, and every now and then', async () => {
    const looks: string[] = [];
    const abort = new AbortController();
    const { signal } = abort;
    const shared = { clock: systemClock, random: () => 0, log: createSilentLogger(), signal };
    const controller = createController({
      ...shared,
      watches: createWatchedObjects({ client: createKubeClient(connection, signal), ...shared }),
      specs: new Map([
        [
          'Recorder',
          ownerController(
            'Recorder',
            {
              reconcile: async (name) => {
                looks.push(name);
                return undefined;
              },
            },
            OPTIONS,
          ),
        ],
      ]),
      workers: 2,
      resyncMs: 300,
      metrics: createOperatorMetrics(),
    });
    api.put(`${RECORDERS}/test`, recorderObject());
    const running = controller.run();
    await until(() => looks.length >= 1 && api.watches === 7);
    const owned = {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: {
        name: 'other-0',
        namespace: 'tailcast',
        labels: {
          'app.kubernetes.io/name': 'recorder',
          'app.kubernetes.io/instance': 'other',
          'app.kubernetes.io/managed-by': 'tailscale-operator',
        },
      },
    };
    api.put(`${SECRETS}/other-0`, owned);
    await until(() => looks.includes('other'));
    const before = looks.filter((name) => name === 'test').length;
    await until(() => looks.filter((name) => name === 'test').length > before);
    abort.abort();
    await running;
    expect(controller.pending).toBe(0);
    await until(() => api.watches === 0);
  });
});

describe('a dry run', () => {
  it('prints the objects without secrets and changes nothing', async () => {
    api.put(`${RECORDERS}/test`, recorderObject({ storage: S3, replicas: 2 }));
    api.put(`${RECORDERS}/bad`, recorderObject({}, { name: 'bad', uid: 'uid-2' }));
    let text = '';
    const stdout = new Writable({
      write(chunk: Buffer, _encoding, done) {
        text += chunk.toString();
        done();
      },
    });
    const flags = {
      kubeconfig: api.kubeconfig,
      dryRun: true,
      logLevel: 'silent',
      recorderImage: 'tailcast/tailcast:dry',
    };
    const config = settingsOf(OPERATOR_SETTINGS, flags);
    const context = {
      stdout,
      stderr: stdout,
      environment: new Map<string, string>(),
      signal: new AbortController().signal,
    };
    await runOperator(config, context, '0.0.0');
    expect(api.requests.every(({ method }) => method === 'GET')).toBe(true);
    const kinds = parseAllDocuments(text).flatMap((document) => {
      const object = document.toJS() as { kind: string; metadata: { name: string } } | null;
      return object === null ? [] : [`${object.kind} ${object.metadata.name}`];
    });
    expect(kinds).toEqual([
      'Secret test-auth-0',
      'Secret test-0',
      'Secret test-auth-1',
      'Secret test-1',
      'ServiceAccount test',
      'Role test',
      'RoleBinding test',
      'PodDisruptionBudget test',
      'StatefulSet test',
    ]);
    expect(text).toContain('authkey: "[secret]"');
    expect(text).toContain('image: tailcast/tailcast:dry');
    expect(text).not.toContain(Buffer.from('made-when-applied').toString('base64'));
    expect(text).toContain('# RecorderReady=False: Recorder is invalid: must either enable UI');
  });
});

describe('the operator', () => {
  /** Runs until all expected watches are open. */
  async function watched(expected: readonly string[], flags: Record<string, unknown>): Promise<string[]> {
    const config = settingsOf(OPERATOR_SETTINGS, {
      kubeconfig: api.kubeconfig,
      logLevel: 'silent',
      opsListen: 'off',
      ...flags,
    });
    const abort = new AbortController();
    const stdout = new Writable({ write: (_chunk, _encoding, done) => done() });
    const context = { stdout, stderr: stdout, environment: new Map<string, string>(), signal: abort.signal };
    const kinds = (): string[] => {
      const watches = api.requests.filter(({ query }) => query.has('watch'));
      return [...new Set(watches.map(({ path }) => path.slice(path.lastIndexOf('/') + 1)))];
    };
    const running = runOperator(config, context, '0.0.0');
    await Promise.race([running, until(() => expected.every((kind) => kinds().includes(kind)))]);
    abort.abort();
    await running;
    // polls, because the simulated API server notices later that the watches have ended
    await until(() => api.watches === 0);
    return kinds();
  }
  const lease = (): unknown => api.objects.get('/apis/coordination.k8s.io/v1/namespaces/tailcast/leases/l');

  it('sees to every kind that it is told to, while it holds the Lease', async () => {
    const expected = ['recorders', 'proxygroups', 'proxyclasses', 'connectors', 'services'];
    const found = await watched(expected, { lease: 'l' });
    expect(found).toEqual(expect.arrayContaining(expected));
    expect(lease()).toBeDefined();
  });

  it('watches everything once, however many reconcilers it concerns', async () => {
    await watched(['services', 'ingresses', 'dnsconfigs'], { lease: 'off' });
    const asked = api.requests
      .filter(({ query }) => query.has('watch'))
      .map(({ path, query, accept }) => `${path}?${query.get('labelSelector') ?? ''} ${accept}`);
    expect(asked.toSorted()).toEqual([...new Set(asked)].toSorted());
  });

  it('leaves the kinds and the Lease alone that it is told to leave', async () => {
    const found = await watched(['recorders'], {
      controllers: 'dns-configs',
      lease: 'off',
    });
    for (const kind of ['proxygroups', 'proxyclasses', 'connectors']) expect(found).not.toContain(kind);
    expect(lease()).toBeUndefined();
  });
});

describe('the operator’s code', () => {
  it('is loaded only by the operator role, its doctor, the migration check and access requests', () => {
    const src = fileURLToPath(new URL('../../src', import.meta.url));
    const files = readdirSync(src, { recursive: true, encoding: 'utf8' }).filter((name) =>
      /\.tsx?$/.test(name),
    );
    expect(files.length).toBeGreaterThan(50);
    const users = files.filter((name) => {
      const text = readFileSync(`${src}/${name}`, 'utf8');
      const isOwn = /^(operator|doctor\/operator|doctor\/migration)\//.test(name);
      return !isOwn && /from '[^']*\/operator\//.test(text);
    });
    expect(users.toSorted()).toEqual([
      // Files about access requests, which use the operator's client and informer.
      'access/messages.ts',
      'access/request-object.ts',
      'access/request-store.ts',
      'compose/access.ts',
      'compose/migration.ts',
      'compose/operator-controllers.ts',
      'compose/operator-doctor.ts',
      'compose/operator-groups.ts',
      'compose/operator-options.ts',
      'compose/operator-peers.ts',
      'compose/operator.ts',
    ]);
    const commands = files.filter((name) => name.startsWith('cli/'));
    const texts = commands.map((name) => readFileSync(`${src}/${name}`, 'utf8'));
    for (const role of ['operator', 'operator-doctor', 'migration']) {
      const loads = texts.filter((text) => text.includes(`await import('../compose/${role}.ts')`));
      expect(loads).toHaveLength(1);
    }
    expect(texts.filter((text) => /^import[^;]*(compose|doctor)\/operator/m.test(text))).toEqual([]);
  });
});
