import { createPrivateKey } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Reconciler } from '../../../src/operator/workload/reconciler.ts';
import type { OperatorMetrics } from '../../../src/operator/operator-metrics.ts';
import { createRecorderReconciler } from '../../../src/operator/recorder/reconcile.ts';
import type { ApiServerDouble, StoredObject } from '../api-server-double.ts';
import { createBench, settle, type Bench } from '../bench.ts';
import type { FakeClock } from '../fake-clock.ts';
import type { ControlDouble } from './control-double.ts';
import { recorderObject, S3 } from './recorders.ts';
import { referenceState } from './reference-objects.ts';

const RECORDERS = '/apis/tailscale.com/v1alpha1/recorders';
const SECRETS = '/api/v1/namespaces/tailcast/secrets';
const ACCOUNTS = '/api/v1/namespaces/tailcast/serviceaccounts';
const PODS = '/api/v1/namespaces/tailcast/pods';
const SETS = '/apis/apps/v1/namespaces/tailcast/statefulsets';
const ROLES = '/apis/rbac.authorization.k8s.io/v1/namespaces/tailcast/roles';
const BINDINGS = '/apis/rbac.authorization.k8s.io/v1/namespaces/tailcast/rolebindings';
const LABELS = {
  'app.kubernetes.io/name': 'recorder',
  'app.kubernetes.io/instance': 'test',
  'app.kubernetes.io/managed-by': 'tailscale-operator',
};

let bench: Bench;
let api: ApiServerDouble;
let clock: FakeClock;
let control: ControlDouble;
let metrics: OperatorMetrics;
let reconciler: Reconciler;

beforeEach(async () => {
  bench = await createBench();
  ({ api, clock, control } = bench);
  const deps = bench.deps();
  ({ metrics } = deps);
  reconciler = createRecorderReconciler(deps);
});
afterEach(() => bench.close());

const run = (): Promise<number | undefined> => reconciler.reconcile('test');
const put = (spec: object, metadata: object = {}): void =>
  void api.put(`${RECORDERS}/test`, recorderObject(spec, metadata));
const stored = (path: string): StoredObject | undefined => api.objects.get(path);
const events = () =>
  [...api.objects.values()].filter(({ kind }) => kind === 'Event') as (StoredObject & {
    reason: string;
    message: string;
    type: string;
    count: number;
  })[];
const condition = () => bench.condition(`${RECORDERS}/test`);
/** The condition of a Recorder whose objects all exist, while no pod is ready. */
const PROVISIONED = {
  status: 'False',
  reason: 'RecorderCreating',
  message: expect.stringMatching(/^0\/\d pods are ready$/),
};
/** Simulates the StatefulSet controller: all pods are ready. */
function podsReady(): void {
  const set = stored(`${SETS}/test`)!;
  const { replicas } = set['spec'] as { replicas: number };
  const status = {
    observedGeneration: set.metadata.generation,
    readyReplicas: replicas,
    updatedReplicas: replicas,
  };
  api.put(`${SETS}/test`, { ...set, status });
}
const devices = () => (stored(`${RECORDERS}/test`)!['status'] as { devices: object[] }).devices;
const gauge = async () =>
  (await metrics.registry.getSingleMetric('k8s_recorder_resources')!.get()).values[0]?.value;
const authKey = (secret: string): string => bench.data(`${SECRETS}/${secret}`, 'authkey') ?? '';
const names = (collection: string) =>
  [...api.objects.keys()]
    .filter((path) => path.startsWith(`${collection}/`))
    .map((path) => path.slice(collection.length + 1))
    .toSorted();

/** Simulates the pod of replica `ordinal`, which has joined and removed its key. */
function join(ordinal: number, options: { hostname?: string; state?: Record<string, string> } = {}): void {
  const path = `${SECRETS}/test-${ordinal}`;
  const id = `node-${ordinal}`;
  const secret = structuredClone(stored(path)!);
  secret['data'] = options.state ?? { ...referenceState(id, `test-${ordinal}.example.ts.net`) };
  api.put(path, secret);
  control.devices.set(id, {
    hostname: options.hostname ?? `hostname-${ordinal}`,
    addresses: [`100.64.0.${ordinal}`],
  });
}

describe('a Recorder that is not valid', () => {
  it('is refused with the reference’s words, an event, and nothing made', async () => {
    put({ replicas: 3 });
    await expect(run()).resolves.toBeUndefined();
    const message =
      'Recorder is invalid: must either enable UI or use S3 storage to ensure recordings are accessible';
    expect(condition()).toMatchObject({
      type: 'RecorderReady',
      status: 'False',
      reason: 'RecorderInvalid',
      message,
    });
    expect(events()).toMatchObject([{ type: 'Warning', reason: 'RecorderInvalid', message, count: 1 }]);
    expect(names(SECRETS)).toEqual([]);
    expect(control.keys.size).toBe(0);
    expect(await gauge()).toBe(0);
  });

  it('is told about replicas before it is told about annotations', async () => {
    const bad = { pod: { serviceAccount: { annotations: { 'invalid annotation': 'x' } } } };
    put({ replicas: 3, enableUI: true, statefulSet: bad });
    await run();
    expect(events()[0]?.message).toBe(
      'Recorder is invalid: must use S3 storage when using multiple replicas to ensure recordings are accessible',
    );
    put({ replicas: 3, storage: S3, statefulSet: bad });
    await run();
    expect(condition()).toMatchObject({
      reason: 'RecorderInvalid',
      message: expect.stringContaining('"invalid annotation"'),
    });
    expect(events().at(-1)?.message).toContain('"invalid annotation"');
  });

  it.each([
    [
      'test-sa',
      'custom ServiceAccount name "test-sa" specified but conflicts with a pre-existing ServiceAccount in the ' +
        'tailcast namespace',
    ],
    [
      '',
      'ServiceAccount name "test" specified but conflicts with a pre-existing ServiceAccount in the tailcast namespace',
    ],
  ])('does not take a ServiceAccount from somebody else (%s)', async (name, text) => {
    const path = `${ACCOUNTS}/${name === '' ? 'test' : name}`;
    api.put(path, {
      apiVersion: 'v1',
      kind: 'ServiceAccount',
      metadata: { name: path.split('/').at(-1), namespace: 'tailcast' },
    });
    put({ storage: S3, statefulSet: { pod: { serviceAccount: { name } } } });
    await run();
    expect(condition()).toMatchObject({ status: 'False', message: `Recorder is invalid: ${text}` });
    expect(events()).toMatchObject([{ message: `Recorder is invalid: ${text}` }]);
    expect(await gauge()).toBe(0);
  });

  it('is not told the same thing twice', async () => {
    put({});
    await run();
    await run();
    expect(events()).toHaveLength(1);
    await clock.advance(600_000);
    await run();
    expect(events()).toMatchObject([{ count: 2 }]);
  });
});

describe('a valid Recorder', () => {
  beforeEach(async () => {
    put({ replicas: 3, storage: S3 });
    await run();
  });

  it('gets its objects, a key for each replica, and a condition', async () => {
    expect(condition()).toMatchObject({ ...PROVISIONED, observedGeneration: 1 });
    podsReady();
    await run();
    expect(condition()).toMatchObject({
      status: 'True',
      reason: 'RecorderCreated',
      message: 'RecorderCreated',
      observedGeneration: 1,
    });
    expect(stored(`${RECORDERS}/test`)?.metadata.finalizers).toEqual(['tailscale.com/finalizer']);
    expect(names(SECRETS)).toEqual([
      'test-0',
      'test-1',
      'test-2',
      'test-auth-0',
      'test-auth-1',
      'test-auth-2',
      'test-evidence',
    ]);
    expect([names(ACCOUNTS), names(ROLES), names(BINDINGS), names(SETS)]).toEqual([
      ['test'],
      ['test'],
      ['test'],
      ['test'],
    ]);
    expect([0, 1, 2].map((ordinal) => authKey(`test-auth-${ordinal}`))).toEqual([
      'tskey-1',
      'tskey-2',
      'tskey-3',
    ]);
    expect([0, 1, 2].map((ordinal) => authKey(`test-${ordinal}`))).toEqual(['tskey-1', 'tskey-2', 'tskey-3']);
    expect([...control.keys.values()].map(({ tags }) => tags)).toEqual([
      ['tag:k8s'],
      ['tag:k8s'],
      ['tag:k8s'],
    ]);
    expect(await gauge()).toBe(1);
  });

  it('is applied by server-side apply under our name, with our credentials', () => {
    const applies = api.requests.filter(({ contentType }) => contentType === 'application/apply-patch+yaml');
    expect(applies.length).toBeGreaterThan(8);
    for (const { query, authorization } of applies) {
      expect([query.get('fieldManager'), query.get('force'), authorization]).toEqual([
        'tailcast-operator',
        'true',
        'Bearer operator-token',
      ]);
    }
  });

  it('changes nothing when it is looked at again', async () => {
    const before = structuredClone([...api.objects]);
    await run();
    expect([...api.objects]).toEqual(before);
    expect(control.keys.size).toBe(3);
  });

  it('moves to another ServiceAccount and lets the old one go', async () => {
    put(
      {
        replicas: 3,
        storage: S3,
        statefulSet: { pod: { serviceAccount: { name: 'test-sa', annotations: { test: 'test' } } } },
      },
      { finalizers: ['tailscale.com/finalizer'] },
    );
    await run();
    expect(names(ACCOUNTS)).toEqual(['test-sa']);
    expect(stored(`${ACCOUNTS}/test-sa`)?.metadata.annotations).toEqual({ test: 'test' });
    expect(stored(`${BINDINGS}/test`)).toMatchObject({ subjects: [{ name: 'test-sa' }] });
  });

  it('shows its devices, and takes used keys out of the pods’ sight', async () => {
    put({ replicas: 3, storage: S3, enableUI: true }, { finalizers: ['tailscale.com/finalizer'] });
    for (const ordinal of [0, 1, 2]) join(ordinal);
    await run();
    expect(devices()).toEqual(
      [0, 1, 2].map((ordinal) => ({
        hostname: `hostname-${ordinal}`,
        tailnetIPs: [`100.64.0.${ordinal}`],
        url: `https://test-${ordinal}.example.ts.net`,
      })),
    );
    expect([0, 1, 2].map((ordinal) => authKey(`test-${ordinal}`))).toEqual(['', '', '']);
  });

  it('shows what the nodes say of themselves when the control server does not answer', async () => {
    join(0);
    control.broken = new Error('out of order');
    await run();
    expect(condition()).toMatchObject(PROVISIONED);
    expect(devices()).toEqual([{ hostname: 'test-0' }]);
  });

  it('signs with one key, which stays the same, also for a Recorder that is created again', async () => {
    const path = `${SECRETS}/test-evidence`;
    const secret = stored(path);
    expect(createPrivateKey(bench.data(path, 'key.pem')!).asymmetricKeyType).toBe('ed25519');
    expect(secret).toMatchObject({ immutable: true, metadata: { namespace: 'tailcast' } });
    expect(secret?.metadata.ownerReferences).toBeUndefined();
    const { template } = stored(`${SETS}/test`)!['spec'] as {
      template: { spec: { containers: object[]; volumes: object[] } };
    };
    expect(template.spec.containers[0]).toMatchObject({
      env: expect.arrayContaining([
        { name: 'TAILCAST_EVIDENCE_KEY', value: '/etc/tailcast/evidence/key.pem' },
      ]) as unknown,
    });
    expect(template.spec.volumes).toContainEqual({
      name: 'evidence',
      projected: {
        defaultMode: 0o440,
        sources: [
          { secret: { name: 'test-evidence', items: [{ key: 'key.pem', path: 'key.pem' }] } },
          {
            secret: {
              name: 'test-recorder-keys',
              items: [{ key: 'recorders.pem', path: 'recorders.pem' }],
              optional: true,
            },
          },
        ],
      },
    });
    await run();
    expect(stored(path)).toEqual(secret);
    put({ replicas: 2, storage: S3 }, { uid: 'uid-2' });
    for (const name of names(SECRETS)) if (name !== 'test-evidence') api.remove(`${SECRETS}/${name}`);
    await run();
    expect(stored(path)).toEqual(secret);
  });

  it('does not sign with a key that somebody else put there', async () => {
    const path = `${SECRETS}/test-evidence`;
    const metadata = { name: 'test-evidence', namespace: 'tailcast' };
    api.put(path, { apiVersion: 'v1', kind: 'Secret', metadata, data: { 'key.pem': 'eA==' } });
    await expect(run()).rejects.toMatchObject({ code: 'OBJECT_NOT_OURS' });
  });

  it('loses replicas after their pods, with their nodes and keys', async () => {
    for (const ordinal of [0, 1, 2]) join(ordinal);
    api.put(`${PODS}/test-2`, {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'test-2', namespace: 'tailcast', labels: LABELS },
    });
    put({ replicas: 1, storage: S3 }, { finalizers: ['tailscale.com/finalizer'] });
    await expect(run()).resolves.toBe(1000);
    expect(control.deleted).toEqual(['node-1']);
    expect(names(SECRETS)).toEqual(['test-0', 'test-2', 'test-auth-0', 'test-auth-2', 'test-evidence']);
    api.remove(`${PODS}/test-2`);
    await expect(run()).resolves.toBeUndefined();
    expect(control.deleted).toEqual(['node-1', 'node-2']);
    expect(names(SECRETS)).toEqual(['test-0', 'test-auth-0', 'test-evidence']);
    expect(control.keys.get('key-3')?.usable).toBe(false);
  });

  it('is not stopped by a Secret that only looks like its own', async () => {
    api.put(`${SECRETS}/test-notes`, {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'test-notes', namespace: 'tailcast', labels: LABELS },
    });
    await expect(run()).resolves.toBeDefined();
    expect(condition()).toMatchObject(PROVISIONED);
    expect(names(SECRETS)).toContain('test-notes');
  });

  it('does not touch a Secret of its name that is another Recorder’s', async () => {
    api.put(`${SECRETS}/test-auth-3`, {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: {
        name: 'test-auth-3',
        namespace: 'tailcast',
        ownerReferences: [
          {
            apiVersion: 'tailscale.com/v1alpha1',
            kind: 'Recorder',
            name: 'test-auth',
            uid: 'uid-2',
            controller: true,
          },
        ],
      },
      data: { 'secret-state': 'eA==' },
    });
    put({ replicas: 4, storage: S3 }, { finalizers: ['tailscale.com/finalizer'] });
    await expect(run()).rejects.toMatchObject({ code: 'OBJECT_NOT_OURS' });
    expect(stored(`${SECRETS}/test-auth-3`)?.['data']).toEqual({ 'secret-state': 'eA==' });
    expect(condition()).toMatchObject({ status: 'False', reason: 'RecorderCreationFailed' });
    // The operator created no key for the fourth replica, whose Secret belongs to another Recorder.
    expect(control.keys.size).toBe(3);
  });

  it('keeps an old key good until the new one is stored', async () => {
    await clock.advance(3_600_000);
    api.interfere = ({ method, path }) =>
      method === 'PATCH' && path === `${SECRETS}/test-auth-0` ? 'cut' : undefined;
    await expect(run()).rejects.toThrow('socket hang up');
    expect(control.keys.get('key-1')?.usable).toBe(true);
    api.interfere = undefined;
    await run();
    expect(control.keys.get('key-1')?.usable).toBe(false);
  });

  it('gives tags to nodes that have joined, and new keys to those that have not', async () => {
    join(0);
    put({ replicas: 2, storage: S3, tags: ['tag:new'] }, { finalizers: ['tailscale.com/finalizer'] });
    await run();
    expect([...control.tags]).toEqual([['node-0', ['tag:new']]]);
    expect(control.keys.get('key-2')?.usable).toBe(false);
    expect(authKey('test-auth-1')).toBe('tskey-4');
    expect(authKey('test-1')).toBe('tskey-4');
  });

  it('replaces a key that nobody used in time', async () => {
    await clock.advance(3_600_000);
    await run();
    expect([0, 1, 2].map((ordinal) => authKey(`test-${ordinal}`))).toEqual(['tskey-4', 'tskey-5', 'tskey-6']);
    expect(control.keys.get('key-1')?.usable).toBe(false);
  });

  it('looks again by itself while nodes are awaited', async () => {
    await expect(run()).resolves.toBeGreaterThanOrEqual(60_000);
  });

  it('lets a node join anew that somebody removed from the tailnet', async () => {
    join(0);
    join(1);
    join(2);
    await run();
    control.devices.delete('node-0');
    control.keys.get('key-1')!.usable = false;
    await clock.advance(300_000);
    await run();
    expect(authKey('test-0')).toBe('tskey-4');
    await run();
    expect(control.keys.size).toBe(4);
  });
});

describe('a pod that cannot log in', () => {
  beforeEach(async () => {
    put({ storage: S3 });
    await run();
  });

  const ask = (broken: string): void => bench.say('test-0', { reissue_authkey: broken });

  it('gets a new key, and its node is removed', async () => {
    join(0);
    ask('tskey-1');
    await run();
    expect(control.deleted).toEqual(['node-0']);
    expect(authKey('test-auth-0')).toBe('tskey-2');
    expect(authKey('test-0')).toBe('tskey-2');
  });

  it('gets one new key for one request', async () => {
    ask('tskey-1');
    await run();
    await run();
    expect(authKey('test-auth-0')).toBe('tskey-2');
    expect(control.keys.size).toBe(2);
  });

  it('gets it though the first attempt to store it failed', async () => {
    ask('tskey-1');
    api.interfere = ({ method, path }) =>
      method === 'PATCH' && path === `${SECRETS}/test-auth-0` ? 'cut' : undefined;
    await expect(run()).rejects.toThrow('socket hang up');
    api.interfere = undefined;
    await clock.advance(30_000);
    await run();
    expect(authKey('test-0')).toBe('tskey-3');
  });

  it('waits when a newer key is on its way', async () => {
    ask('tskey-0');
    await run();
    expect(authKey('test-auth-0')).toBe('tskey-1');
  });

  it('gets no more than one new key in thirty seconds, says why, and is tried again', async () => {
    ask('tskey-1');
    await run();
    ask('tskey-2');
    // Simulates that the pod has received the new key and removes its request for a key.
    const secret = structuredClone(stored(`${SECRETS}/test-0`)!);
    delete (secret['data'] as Record<string, string>)['reissue_authkey'];
    api.put(`${SECRETS}/test-0`, secret);
    await run();
    ask('tskey-2');
    await expect(run()).rejects.toThrow(
      'auth key re-issuance rate limit exceeded for Recorder "test", will retry with backoff',
    );
    expect(condition()).toMatchObject({ status: 'False', reason: 'RecorderCreationFailed' });
    await clock.advance(30_000);
    await run();
    expect(authKey('test-auth-0')).toBe('tskey-3');
    expect(condition()).toMatchObject(PROVISIONED);
  });
});

describe('a failure', () => {
  it('is in the status and thrown, so that it is tried again', async () => {
    put({ storage: S3 });
    control.broken = new Error('no keys today');
    await expect(run()).rejects.toThrow('no keys today');
    expect(condition()).toMatchObject({
      status: 'False',
      reason: 'RecorderCreationFailed',
      message: 'failed creating Recorder: no keys today',
    });
    expect(events()).toMatchObject([{ type: 'Warning', reason: 'RecorderCreationFailed' }]);
    control.broken = undefined;
    await run();
    expect(condition()).toMatchObject(PROVISIONED);
  });

  it('that is a conflict is no event, for it mends itself', async () => {
    put({ storage: S3 });
    api.interfere = ({ method, path }) =>
      method === 'PATCH' && path.startsWith(SETS)
        ? { status: 409, body: { kind: 'Status', reason: 'Conflict', message: 'modified', code: 409 } }
        : undefined;
    await expect(run()).rejects.toThrow('Conflict');
    expect(condition()).toMatchObject({
      reason: 'RecorderCreating',
      message: expect.stringMatching(/^optimistic lock error, retrying: /),
    });
    expect(events()).toEqual([]);
  });

  it('is not written to a Recorder that was made anew under the same name', async () => {
    put({});
    api.interfere = ({ path }) => {
      if (path !== `${RECORDERS}/test/status`) return undefined;
      api.interfere = undefined;
      api.objects.delete(`${RECORDERS}/test`);
      put({ storage: S3 }, { uid: 'uid-2' });
      return undefined;
    };
    await expect(run()).rejects.toThrow('Conflict');
    expect(condition()).toBeUndefined();
  });

  it('loses at most one key, whichever write a crash comes before', async () => {
    put({ replicas: 2, storage: S3 });
    await run();
    const writes = api.requests.filter(({ method }) => method !== 'GET').length;
    for (let crash = 1; crash <= writes; crash += 1) {
      for (const path of api.objects.keys()) api.objects.delete(path);
      put({ replicas: 2, storage: S3 });
      control.keys.clear();
      let left = crash;
      // Simulates a crash: no later request reaches the API server.
      api.interfere = ({ method }) => (method !== 'GET' && (left -= 1) < 0 ? 'cut' : undefined);
      await run().catch(() => undefined);
      api.interfere = undefined;
      await run();
      const known = [0, 1].map((ordinal) => authKey(`test-auth-${ordinal}`));
      expect([...control.keys.values()].filter(({ key }) => !known.includes(key)).length).toBeLessThanOrEqual(
        1,
      );
      expect(condition()).toMatchObject(PROVISIONED);
    }
  });
});

describe('a Recorder that is deleted', () => {
  const deletion = { deletionTimestamp: new Date().toISOString(), finalizers: ['tailscale.com/finalizer'] };
  const remove = (): void => bench.markDeleted(`${RECORDERS}/test`);

  it('goes with its nodes, in order, and everything it owns', async () => {
    put({ replicas: 3, storage: S3 });
    await run();
    for (const ordinal of [0, 1, 2]) join(ordinal);
    await run();
    remove();
    await settle(run);
    expect(control.deleted).toEqual(['node-0', 'node-1', 'node-2']);
    expect(stored(`${RECORDERS}/test`)).toBeUndefined();
    expect([
      ...names(SECRETS),
      ...names(SETS),
      ...names(ACCOUNTS),
      ...names(ROLES),
      ...names(BINDINGS),
    ]).toEqual(['test-evidence']);
    expect([...control.keys.values()].some(({ usable }) => usable)).toBe(false);
    expect(await gauge()).toBe(0);
  });

  it('leaves no node behind because an earlier replica never joined', async () => {
    put({ replicas: 3, storage: S3 });
    await run();
    join(1);
    join(2);
    remove();
    await settle(run);
    expect(control.deleted).toEqual(['node-1', 'node-2']);
  });

  it('looks again when its StatefulSet was still there: pods may have been made since', async () => {
    put({ storage: S3 });
    await run();
    remove();
    await expect(run()).resolves.toBe(1000);
    expect(stored(`${RECORDERS}/test`)).toBeDefined();
    await expect(run()).resolves.toBeUndefined();
    expect(stored(`${RECORDERS}/test`)).toBeUndefined();
  });

  it('removes replicas that a scale-down had not got to', async () => {
    put({ replicas: 3, storage: S3 });
    await run();
    for (const ordinal of [0, 1, 2]) join(ordinal);
    put({ replicas: 1, storage: S3 }, { finalizers: ['tailscale.com/finalizer'] });
    remove();
    await settle(run);
    expect(control.deleted).toEqual(['node-0', 'node-1', 'node-2']);
  });

  it('waits for its pods, but not for ever', async () => {
    put({ storage: S3 });
    await run();
    join(0);
    api.put(`${PODS}/test-0`, {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'test-0', namespace: 'tailcast', labels: LABELS },
    });
    remove();
    await expect(run()).resolves.toBe(1000);
    expect([names(SETS), control.deleted]).toEqual([[], []]);
    await clock.advance(6 * 60_000);
    await run();
    expect(control.deleted).toEqual(['node-0']);
    expect(stored(`${RECORDERS}/test`)).toBeUndefined();
  });

  it('is not held back by a control server that is gone with its Tailnet', async () => {
    put({ storage: S3 });
    await run();
    join(0);
    put({ storage: S3, tailnet: 'gone' }, deletion);
    await settle(run);
    expect(stored(`${RECORDERS}/test`)).toBeUndefined();
    expect(events()).toMatchObject([
      { reason: 'RecorderDevicesLeft', message: expect.stringContaining('node-0') },
    ]);
  });

  it('is held back while the control server does not answer', async () => {
    put({ storage: S3 });
    await run();
    join(0);
    remove();
    control.broken = new Error('out of order');
    await expect(settle(run)).rejects.toThrow('out of order');
    expect(stored(`${RECORDERS}/test`)).toBeDefined();
  });

  it('is done when it has no finalizer of ours', async () => {
    put({ storage: S3 }, { ...deletion, finalizers: ['somebody/else'] });
    await expect(run()).resolves.toBeUndefined();
    expect(control.deleted).toEqual([]);
  });
});

describe('a Recorder of another tailnet', () => {
  it('says so when that cannot be had', async () => {
    put({ storage: S3, tailnet: 'other' });
    await expect(run()).rejects.toThrow('Tailnet "other" does not exist');
    expect(condition()).toMatchObject({
      status: 'False',
      reason: 'RecorderTailnetUnavailable',
      message: expect.stringContaining('Tailnet "other" does not exist'),
    });
    expect(names(SECRETS)).toEqual([]);
  });
});

describe('a StatefulSet whose selector must change', () => {
  it('is made anew without its pods', async () => {
    put({ storage: S3 });
    await run();
    const set = structuredClone(stored(`${SETS}/test`)!) as StoredObject & { spec: { selector: object } };
    set.spec.selector = { matchLabels: { ...LABELS, team: 'a' } };
    api.put(`${SETS}/test`, set);
    await expect(run()).resolves.toBe(1000);
    const deletions = api.requests.filter(
      ({ method, path }) => method === 'DELETE' && path === `${SETS}/test`,
    );
    expect(deletions).toMatchObject([{ body: { propagationPolicy: 'Orphan' } }]);
    expect(condition()).toMatchObject({
      message: 'the StatefulSet is being recreated; its pods keep running',
    });
    await run();
    expect(stored(`${SETS}/test`)).toMatchObject({ spec: { selector: { matchLabels: LABELS } } });
    expect(condition()).toMatchObject(PROVISIONED);
  });
});
