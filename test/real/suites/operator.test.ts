import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RECORDER, readGolden } from '../../operator/goldens.ts';
import { referenceObjects, referenceState } from '../../operator/recorder/reference-objects.ts';
import { createHeadscaleControl } from '../../../src/operator/headscale-api.ts';
import { ensurePeer } from '../rig/build.ts';
import { type Kubernetes, startKubernetes } from '../rig/kubernetes.ts';
import { type Program, type Rig, createRig, freePort } from '../rig/rig.ts';
import { type Tailnet, startTailnet } from '../rig/tailnet.ts';
import { NAMESPACE, create, imageCommands, install, launchOperator } from '../operator/installation.ts';

const RECORDERS = '/apis/tailscale.com/v1alpha1/recorders';
const CORE = `/api/v1/namespaces/${NAMESPACE}`;
const APPS = `/apis/apps/v1/namespaces/${NAMESPACE}`;
const BUDGETS = `/apis/policy/v1/namespaces/${NAMESPACE}/poddisruptionbudgets`;
const RBAC = `/apis/rbac.authorization.k8s.io/v1/namespaces/${NAMESPACE}`;

interface Listed {
  readonly items: readonly { readonly metadata: { readonly name: string; readonly uid: string } }[];
}
interface RecorderObject {
  readonly metadata: { readonly name: string; readonly uid: string; readonly finalizers?: readonly string[] };
  readonly status?: {
    readonly conditions?: readonly {
      readonly type: string;
      readonly status: string;
      readonly reason: string;
      readonly message: string;
    }[];
    readonly devices?: readonly {
      readonly hostname: string;
      readonly tailnetIPs?: readonly string[];
      readonly url?: string;
    }[];
  };
}
interface HeadscaleNode {
  readonly id: number | string;
  readonly given_name: string;
  readonly tags?: readonly string[];
}

let rig: Rig;
let cluster: Kubernetes;
let tailnet: Tailnet;
let operator: Program;
let operatorKubeconfig: string;
let opsPort: number;

beforeAll(async () => {
  const { tailscaled = '' } = await ensurePeer('tailnet');
  await ensurePeer('kubernetes-1.36');
  // The pods mount a volume at /tmp, and the kubelet double replaces this path everywhere, so the rig's folder must not
  // be below /tmp.
  process.env['TMPDIR'] = '/var/tmp';
  rig = createRig();
  [cluster, tailnet] = await Promise.all([
    startKubernetes(rig, { node: { images: imageCommands(rig, tailscaled) } }),
    startTailnet(rig, { nodes: [{ name: 'watcher', user: 'alice@example.com' }], policy: POLICY }),
  ]);
  opsPort = await freePort();
  operatorKubeconfig = (await install(rig, cluster)).kubeconfig;
  operator = await startOperator();
});

afterAll(() => rig.stop());

const POLICY = {
  tagOwners: { 'tag:k8s': ['alice@example.com'], 'tag:other': ['alice@example.com'] },
  acls: [{ action: 'accept', src: ['*'], dst: ['*:*'] }],
};

async function startOperator(): Promise<Program> {
  const apiKey = (await tailnet.admin('apikeys', 'create')) as string;
  return launchOperator(rig, { kubeconfig: operatorKubeconfig, controlUrl: tailnet.controlUrl, apiKey });
}

/**
 * Returns a Recorder resource in the reference's format. Its pods run a stand-in for the image, not a real recorder.
 */
function recorder(name: string, spec: object = {}): object {
  return {
    apiVersion: 'tailscale.com/v1alpha1',
    kind: 'Recorder',
    metadata: { name },
    spec: {
      storage: { s3: { endpoint: 's3.example.com', bucket: 'recordings' } },
      statefulSet: {
        pod: {
          container: {
            image: 'tailcast/stand-in:v1',
            env: opsEnv(),
          },
        },
      },
      ...spec,
    },
  };
}

const get = (name: string): Promise<RecorderObject> =>
  cluster.api('GET', `${RECORDERS}/${name}`) as Promise<RecorderObject>;
const change = (name: string, spec: object): Promise<unknown> =>
  cluster.api('PATCH', `${RECORDERS}/${name}`, { spec });

async function names(path: string, name: string): Promise<readonly string[]> {
  const list = (await cluster.api(
    'GET',
    `${path}?labelSelector=app.kubernetes.io/instance%3D${name}`,
  )) as Listed;
  return list.items.map(({ metadata }) => metadata.name).toSorted();
}

async function nodes(prefix: string): Promise<readonly HeadscaleNode[]> {
  const list = ((await tailnet.admin('nodes', 'list')) as readonly HeadscaleNode[] | null) ?? [];
  return list.filter((node) => node.given_name.startsWith(prefix));
}

/**
 * Waits until the Recorder has this number of devices, all of its pods are ready, and headscale knows exactly these
 * nodes.
 */
async function converged(name: string, replicas: number): Promise<RecorderObject> {
  return rig.until(
    `${name} with ${replicas} replicas`,
    async () => {
      const object = await get(name);
      const ready = object.status?.conditions?.find(({ type }) => type === 'RecorderReady');
      const set = (await cluster.api('GET', `${APPS}/statefulsets/${name}`)) as {
        status: { readyReplicas?: number; replicas?: number };
      };
      const devices = object.status?.devices ?? [];
      const wanted = Array.from({ length: replicas }, (_, index) => `${name}-${index}`);
      const joined = (await nodes(`${name}-`)).map((node) => node.given_name).toSorted();
      const secrets = await names(`${CORE}/secrets`, name);
      const complete =
        ready?.status === 'True' &&
        (set.status.readyReplicas ?? 0) === replicas &&
        (set.status.replicas ?? 0) === replicas &&
        same(devices.map(({ hostname }) => hostname).toSorted(), wanted) &&
        same(joined, wanted) &&
        same(secrets, [...wanted, ...wanted.map((one) => one.replace(/-(\d+)$/, '-auth-$1'))].toSorted());
      if (complete) return object;
      throw new Error(JSON.stringify({ status: object.status, set: set.status, joined, secrets }));
    },
    { timeoutMs: 150_000 },
  );
}

/** Waits until all objects and nodes of a deleted Recorder are gone. */
async function gone(name: string): Promise<void> {
  await rig.until(
    `${name} is gone`,
    async () => {
      const left = await Promise.all(
        [
          `${CORE}/secrets`,
          `${CORE}/serviceaccounts`,
          `${CORE}/pods`,
          `${APPS}/statefulsets`,
          `${RBAC}/roles`,
          `${RBAC}/rolebindings`,
          BUDGETS,
        ].map((path) => names(path, name)),
      );
      const exists = await get(name).then(
        () => true,
        () => false,
      );
      const joined = (await nodes(`${name}-`)).map((node) => node.given_name);
      if (!exists && left.flat().length === 0 && joined.length === 0) return true;
      throw new Error(`left: ${JSON.stringify({ exists, objects: left.flat(), nodes: joined })}`);
    },
    { timeoutMs: 150_000 },
  );
}

function same(left: readonly string[], right: readonly string[]): boolean {
  return JSON.stringify(left) === JSON.stringify(right);
}

describe('a Recorder', () => {
  it('becomes pods that have joined the tailnet', async () => {
    await cluster.api('POST', RECORDERS, recorder('first'));
    const object = await converged('first', 1);
    expect(object.metadata.finalizers).toEqual(['tailscale.com/finalizer']);
    expect(object.status?.devices).toEqual([
      { hostname: 'first-0', tailnetIPs: [expect.stringMatching(/^100\./), expect.stringMatching(/^fd7a:/)] },
    ]);
    expect((await nodes('first-'))[0]?.tags).toEqual(['tag:k8s']);
    expect(await names(`${CORE}/serviceaccounts`, 'first')).toEqual(['first']);
    expect(await names(`${RBAC}/roles`, 'first')).toEqual(['first']);
    expect(await names(`${RBAC}/rolebindings`, 'first')).toEqual(['first']);
    expect(await names(BUDGETS, 'first')).toEqual(['first']);
  });

  it('keeps no used key where a pod can read it', async () => {
    const taken = await rig.until('the key is taken out', async () => {
      const secret = (await cluster.api('GET', `${CORE}/secrets/first-0`)) as {
        data: Record<string, string>;
      };
      return secret.data['authkey'] === undefined ? true : undefined;
    });
    expect(taken).toBe(true);
  });

  it('grows and shrinks without a restart, and leaves no node behind', async () => {
    const before = await podIds('first');
    await change('first', { replicas: 3 });
    await converged('first', 3);
    expect((await podIds('first')).get('first-0')).toBe(before.get('first-0'));
    await change('first', { replicas: 1 });
    await converged('first', 1);
    expect(await podIds('first')).toEqual(before);
    await change('first', { replicas: 0 });
    await converged('first', 0);
    const role = (await cluster.api('GET', `${RBAC}/roles/first`)) as { rules: { resources: string[] }[] };
    expect(role.rules.map(({ resources }) => resources)).toEqual([['events']]);
    await change('first', { replicas: 2 });
    await converged('first', 2);
  });

  it('carries its tags to nodes that have joined', async () => {
    await change('first', { tags: ['tag:other', 'tag:k8s'] });
    await rig.until('the new tags', async () => {
      const tags = (await nodes('first-')).map((node) => node.tags?.toSorted().join());
      return tags.length === 2 && tags.every((text) => text === 'tag:k8s,tag:other') ? true : undefined;
    });
    expect((await converged('first', 2)).status?.devices).toHaveLength(2);
  });

  it('carries pod labels to pods, though selectors cannot change', async () => {
    const before = await podIds('first');
    const container = { image: 'tailcast/stand-in:v1', env: opsEnv() };
    await change('first', { statefulSet: { pod: { labels: { team: 'audit' }, container } } });
    await rig.until('labelled pods', async () => {
      const pods = (await cluster.api('GET', `${CORE}/pods?labelSelector=team%3Daudit`)) as Listed;
      return pods.items.length === 2 ? true : undefined;
    });
    await converged('first', 2);
    expect([...(await podIds('first')).values()]).not.toEqual([...before.values()]);
    await change('first', { statefulSet: { pod: { labels: { team: 'security' }, container } } });
    await rig.until('pods with other labels', async () => {
      const pods = (await cluster.api('GET', `${CORE}/pods?labelSelector=team%3Dsecurity`)) as Listed;
      return pods.items.length === 2 ? true : undefined;
    });
    // The nodes rejoined with their stored state, without a new key.
    const object = await converged('first', 2);
    expect(object.status?.devices).toHaveLength(2);
  });

  it('takes everything away when it is deleted', async () => {
    await cluster.api('DELETE', `${RECORDERS}/first`);
    await gone('first');
    expect(await nodes('first-')).toEqual([]);
  });

  it('says in its status and by an event why it is refused', async () => {
    await cluster.api('POST', RECORDERS, recorder('refused', { storage: {} }));
    const condition = await rig.until(
      'the condition',
      async () => (await get('refused')).status?.conditions?.[0],
    );
    const message =
      'Recorder is invalid: must either enable UI or use S3 storage to ensure recordings are accessible';
    expect(condition).toMatchObject({
      type: 'RecorderReady',
      status: 'False',
      reason: 'RecorderInvalid',
      message,
    });
    await rig.until('the event', async () => {
      const events = (await cluster.api('GET', '/api/v1/namespaces/default/events')) as {
        items: { involvedObject: { name: string }; type: string; message: string }[];
      };
      return events.items.some(
        (event) =>
          event.involvedObject.name === 'refused' && event.type === 'Warning' && event.message === message,
      )
        ? true
        : undefined;
    });
    expect(await names(`${CORE}/secrets`, 'refused')).toEqual([]);
    await cluster.api('DELETE', `${RECORDERS}/refused`);
    await gone('refused');
  });

  it('runs our recorder, which asks the tailscaled beside it', async () => {
    const [listen, ops] = [await freePort(), await freePort()];
    const container = {
      env: [
        { name: 'TAILCAST_LISTEN', value: `127.0.0.1:${listen}` },
        { name: 'TAILCAST_OPS_LISTEN', value: `127.0.0.1:${ops}` },
      ],
    };
    const spec = { enableUI: true, storage: {}, statefulSet: { pod: { container } } };
    await cluster.api('POST', RECORDERS, recorder('local', spec));
    const object = await converged('local', 1);
    expect(object.status?.devices).toMatchObject([{ hostname: 'local-0', url: 'http://local-0.lab.ts.net' }]);
    const answer = await fetch(`http://127.0.0.1:${ops}/readyz`);
    expect([answer.status, await answer.text()]).toEqual([200, 'ok\n']);
    await cluster.api('DELETE', `${RECORDERS}/local`);
    await gone('local');
  });
});

describe('a Recorder that is deleted while its pods join', () => {
  async function machineKey(pod: string): Promise<true | undefined> {
    const { data } = (await cluster.api('GET', `${CORE}/secrets/${pod}`)) as {
      data?: Record<string, string>;
    };
    return data?.['_machinekey'] === undefined ? undefined : true;
  }

  it('takes the node along of a pod that ends before it has said which one it is', async () => {
    await cluster.api('POST', RECORDERS, recorder('dies'));
    await rig.until('the node', async () => ((await nodes('dies-')).length === 1 ? true : undefined));
    expect(await machineKey('dies-0')).toBe(true);
    await cluster.api('DELETE', `${RECORDERS}/dies`);
    await gone('dies');
    expect(await nodes('dies-')).toEqual([]);
  });

  it.each([
    ['the StatefulSet', 'early', (name: string) => cluster.api('GET', `${APPS}/statefulsets/${name}`)],
    ['the key of a machine', 'amid', (name: string) => machineKey(`${name}-0`)],
    ['a node', 'late', async (name: string) => ((await nodes(`${name}-`)).length > 0 ? true : undefined)],
  ])('leaves none when it goes as soon as there is %s', { timeout: 400_000 }, async (what, name, seen) => {
    for (const propagationPolicy of ['Background', 'Foreground', 'Background']) {
      await cluster.api('POST', RECORDERS, recorder(name, { replicas: 2 }));
      await rig.until(what, () => seen(name));
      await cluster.api('DELETE', `${RECORDERS}/${name}?propagationPolicy=${propagationPolicy}`);
      await gone(name);
      expect(await nodes(`${name}-`)).toEqual([]);
    }
  });
});

describe('the CRDs', () => {
  it('refuses what the reference refuses', async () => {
    const post = (spec: object): Promise<unknown> =>
      cluster.api('POST', `${RECORDERS}?dryRun=All`, { ...recorder('schema'), spec });
    await expect(post({ replicas: 2 })).rejects.toThrow(
      'S3 storage must be used when deploying multiple Recorder replicas',
    );
    await expect(post({ replicas: -1 })).rejects.toThrow('spec.replicas');
    await expect(post({ tags: ['k8s'] })).rejects.toThrow('spec.tags[0]');
    await expect(post({ statefulSet: { pod: { container: { env: [{ name: '1x' }] } } } })).rejects.toThrow(
      'env[0].name',
    );
    await expect(
      post({ statefulSet: { pod: { container: { imagePullPolicy: 'Sometimes' } } } }),
    ).rejects.toThrow('imagePullPolicy');
    await expect(post({ enableUI: true })).resolves.toMatchObject({ spec: { enableUI: true, replicas: 1 } });
    await expect(
      cluster.api('POST', `${RECORDERS}?dryRun=All`, { ...recorder('schema'), spec: undefined }),
    ).rejects.toThrow('spec');
  });

  it('keeps the tailnet of a Recorder as it is', async () => {
    await cluster.api('POST', RECORDERS, recorder('elsewhere', { tailnet: 'absent' }));
    const condition = await rig.until(
      'the condition',
      async () => (await get('elsewhere')).status?.conditions?.[0],
    );
    expect(condition).toMatchObject({ status: 'False', reason: 'RecorderTailnetUnavailable' });
    await expect(change('elsewhere', { tailnet: 'other' })).rejects.toThrow('Recorder tailnet is immutable');
    await cluster.api('DELETE', `${RECORDERS}/elsewhere`);
    await gone('elsewhere');
  });
});

describe('a Recorder written for the reference', () => {
  it('is accepted as it is, and becomes the golden StatefulSet', async () => {
    await cluster.api('POST', `${RECORDERS}?fieldValidation=Strict`, RECORDER);
    const golden = readGolden('recorder');
    const set = await rig.until('the StatefulSet', () => cluster.api('GET', `${APPS}/statefulsets/recorder`));
    const here = {
      // Settings of this test's operator that differ from the defaults.
      'tailcast/tailcast:v1': expect.stringMatching(/\/tailcast:v/),
      'tailscale/tailscale:v1': expect.stringMatching(/^tailscale\/tailscale:v/),
      'https://control.example.com': tailnet.controlUrl,
      '--login-server=https://control.example.com': `--login-server=${tailnet.controlUrl}`,
      '$(POD_NAME),$(POD_NAME).example.ts.net': '$(POD_NAME)',
    };
    expect(golden.spec.template.spec?.containers[0]?.env?.length).toBeGreaterThan(10);
    expect(set).toMatchObject(adapted(golden, here) as object);
    await cluster.api('DELETE', `${RECORDERS}/recorder`);
    await gone('recorder');
  });
});

/** Returns a golden file's object without the fields that an API server sets; `words` replaces values. */
function adapted(value: unknown, words: Readonly<Record<string, unknown>>): unknown {
  if (typeof value === 'string') return words[value] ?? value;
  if (Array.isArray(value)) return value.map((one) => adapted(one, words));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key]) => key !== 'uid')
      .map(([key, member]) => [key, adapted(member, words)]),
  );
}

describe('what the reference operator left behind', () => {
  it('is taken over: the node and its key stay, the pod becomes ours', async () => {
    await operator.stop();
    const node = await tailnet.join({ name: 'adopted-0', tags: ['tag:k8s'] });
    const [known] = await nodes('adopted-');
    await cluster.api('POST', RECORDERS, recorder('adopted'));
    const { metadata } = await get('adopted');
    const objects = referenceObjects(metadata, {
      command: ['sleep', 'infinity'],
      state: referenceState(String(known?.id), node.dnsName, node.machineKey()),
    });
    for (const object of objects) await create(cluster, object, '?fieldManager=operator');
    const before = (await cluster.api('GET', `${APPS}/statefulsets/adopted`)) as {
      metadata: { uid: string };
    };
    operator.start();
    const template = await rig.until('our template', async () => {
      const set = (await cluster.api('GET', `${APPS}/statefulsets/adopted`)) as {
        metadata: { uid: string };
        spec: { template: { spec: PodSpec }; podManagementPolicy: string };
      };
      expect(set.metadata.uid).toBe(before.metadata.uid);
      return set.spec.template.spec.initContainers === undefined ? undefined : set.spec.template.spec;
    });
    const [container] = template.containers;
    expect(container?.command).toBeUndefined();
    expect(template.volumes.map(({ name }) => name)).toEqual([
      'data',
      'tailscale',
      'tmp',
      'tailscale-tmp',
      'evidence',
    ]);
    expect(container?.volumeMounts.map(({ mountPath }) => mountPath)).toEqual([
      '/data',
      '/run/tailscale',
      '/tmp',
      '/etc/tailcast/evidence',
    ]);
    expect(container?.env.map(({ name }) => name)).not.toContain('TS_AUTHKEY_FILE');
    await rig.until('the device', async () => {
      const devices = (await get('adopted')).status?.devices ?? [];
      return devices[0]?.hostname === 'adopted-0' ? true : undefined;
    });
    const auth = (await cluster.api('GET', `${CORE}/secrets/adopted-auth-0`)) as {
      data: { authkey: string };
    };
    expect(Buffer.from(auth.data.authkey, 'base64').toString()).toBe('tskey-used');
    await cluster.api('DELETE', `${RECORDERS}/adopted`);
    await gone('adopted');
  });
});

describe('headscale', () => {
  it('answers as the operator expects', async () => {
    const apiKey = (await tailnet.admin('apikeys', 'create')) as string;
    const baseUrl = tailnet.controlUrl;
    const { signal } = new AbortController();
    const control = createHeadscaleControl({
      baseUrl,
      loginServer: baseUrl,
      apiKey: async () => apiKey,
      nowMs: Date.now,
      signal,
    });
    const wanted = { tags: ['tag:k8s'], lifetimeMs: 3_600_000, description: 'test' };
    const key = await control.createKey(wanted);
    await expect(control.keyUsable(key.id)).resolves.toBe(true);
    await control.revokeKey(key.id);
    await expect(control.keyUsable(key.id)).resolves.toBe(false);
    await control.revokeKey(key.id);
    await expect(control.device('999')).resolves.toBeUndefined();
    await expect(control.deleteDevice('999')).resolves.toBe(false);
    const [watcher] = await nodes('watcher');
    await expect(control.device(String(watcher?.id))).resolves.toEqual({
      hostname: 'watcher',
      addresses: [...tailnet.node('watcher').addresses],
      machineKey: expect.stringMatching(/^mkey:[0-9a-f]{64}$/),
    });
    const refused = createHeadscaleControl({
      baseUrl,
      loginServer: baseUrl,
      apiKey: async () => 'wrong',
      nowMs: Date.now,
      signal,
    });
    await expect(refused.createKey(wanted)).rejects.toMatchObject({ code: 'CONTROL_FAILED' });
  });
});

describe('a node that an administrator removed', () => {
  it('does not keep its Recorder from being deleted', async () => {
    await cluster.api('POST', RECORDERS, recorder('removed'));
    await converged('removed', 1);
    await tailnet.remove('removed-0');
    await cluster.api('DELETE', `${RECORDERS}/removed`);
    await gone('removed');
    expect(await nodes('removed-')).toEqual([]);
  });
});

describe('two operators', () => {
  it('work one after the other, and the second goes on when the first dies', async () => {
    await operator.stop();
    const apiKey = (await tailnet.admin('apikeys', 'create')) as string;
    const options = {
      kubeconfig: operatorKubeconfig,
      controlUrl: tailnet.controlUrl,
      apiKey,
      leaderElection: true,
    };
    const [first, second] = ['first', 'second'].map((name) => launchOperator(rig, { ...options, name })) as [
      Program,
      Program,
    ];
    const leader = await rig.until('a leader', async () =>
      [first, second].find((program) => program.log().includes('"msg":"leading"')),
    );
    const other = leader === first ? second : first;
    await cluster.api('POST', RECORDERS, recorder('handed'));
    await converged('handed', 1);
    expect(other.log()).not.toContain('"msg":"leading"');
    await leader.stop();
    await change('handed', { replicas: 2 });
    await converged('handed', 2);
    expect(other.log()).toContain('"msg":"leading"');
    await cluster.api('DELETE', `${RECORDERS}/handed`);
    await gone('handed');
    await other.stop();
    operator.start();
  });
});

describe('an API server that goes away', () => {
  it('breaks every watch, and what happens after it is back is seen', async () => {
    await cluster.api('POST', RECORDERS, recorder('outage'));
    await converged('outage', 1);
    const { apiServer } = cluster.programs;
    await apiServer.stop();
    apiServer.start();
    await rig.until('the API server', () => change('outage', { replicas: 2 }), { watch: [apiServer] });
    await converged('outage', 2);
    expect(operator.running).toBe(true);
    await cluster.api('DELETE', `${RECORDERS}/outage`);
    await gone('outage');
    expect(await nodes('outage-')).toEqual([]);
  });
});

describe('an operator that is killed', () => {
  const KILLS = 14;

  /** Latest settings that the test has requested for a Recorder. */
  interface Asked {
    replicas: number;
    tag: string;
    label: string;
  }

  const container = (): object => ({ image: 'tailcast/stand-in:v1', env: opsEnv() });

  /** Changes one field of a Recorder. */
  async function disturb(name: string, asked: Asked, random: () => number): Promise<void> {
    const what = random();
    if (what < 0.4) {
      asked.replicas = 1 + Math.floor(random() * 3);
      await change(name, { replicas: asked.replicas });
    } else if (what < 0.7) {
      asked.tag = asked.tag === 'tag:k8s' ? 'tag:other' : 'tag:k8s';
      await change(name, { tags: [asked.tag] });
    } else {
      asked.label = `l${Math.floor(random() * 1e6)}`;
      const pod = { labels: { round: asked.label }, container: container() };
      await change(name, { statefulSet: { pod } });
    }
  }

  /** Waits until replicas, devices, tags and labels match the requested settings. */
  async function settled(name: string, { replicas, tag, label }: Asked): Promise<void> {
    await rig.until(
      `${name} as it was asked for`,
      async () => {
        const tags = (await nodes(`${name}-`)).map((node) => node.tags?.join());
        const selector = `app.kubernetes.io/instance%3D${name}${label === '' ? '' : `,round%3D${label}`}`;
        const pods = (await cluster.api('GET', `${CORE}/pods?labelSelector=${selector}`)) as Listed;
        const right = tags.length === replicas && tags.every((one) => one === tag);
        return right && pods.items.length === replicas ? true : undefined;
      },
      { timeoutMs: 60_000 },
    );
    await converged(name, replicas);
  }

  it(`goes on where it was, ${KILLS} times, and nothing is left over`, { timeout: 300_000 }, async () => {
    const random = seeded(20_261_121);
    const wanted = new Map<string, Asked>();
    for (let round = 0; round < KILLS; round += 1) {
      await operator.stop();
      operator.start();
      const name = `killed${Math.floor(random() * 3)}`;
      const asked = wanted.get(name);
      if (asked === undefined) {
        const created = await cluster.api('POST', RECORDERS, recorder(name, { replicas: 2 })).then(
          () => true,
          () => false, // the creation fails while a Recorder with this name is being deleted
        );
        if (created) wanted.set(name, { replicas: 2, tag: 'tag:k8s', label: '' });
      } else if (random() < 0.25) {
        await cluster.api('DELETE', `${RECORDERS}/${name}`);
        wanted.delete(name);
      } else {
        await disturb(name, asked, random);
      }
      await delay(400 + random() * 1600);
    }
    await operator.stop();
    operator.start();
    for (const name of ['killed0', 'killed1', 'killed2']) {
      const asked = wanted.get(name);
      if (asked === undefined) await gone(name);
      else await settled(name, asked);
    }
    for (const name of wanted.keys()) await cluster.api('DELETE', `${RECORDERS}/${name}`);
    for (const name of wanted.keys()) await gone(name);
    expect(
      ((await tailnet.admin('nodes', 'list')) as HeadscaleNode[]).map((node) => node.given_name),
    ).toEqual(['watcher']);
    // A kill between the creation and the storage of a key loses the key, which expires after an hour.
    const keys = (await tailnet.admin('preauthkeys', 'list')) as {
      used?: boolean;
      reusable?: boolean;
      expiration: { seconds: number };
    }[];
    const open = keys.filter(
      (key) => key.used !== true && key.reusable !== true && key.expiration.seconds * 1000 > Date.now(),
    );
    expect(open.length).toBeLessThanOrEqual(KILLS);
    for (const key of open) expect(key.expiration.seconds * 1000 - Date.now()).toBeLessThanOrEqual(3_600_000);
  });
});

interface PodSpec {
  readonly initContainers?: readonly object[];
  readonly containers: readonly {
    readonly command?: readonly string[];
    readonly env: readonly { readonly name: string }[];
    readonly volumeMounts: readonly { readonly mountPath: string }[];
  }[];
  readonly volumes: readonly { readonly name: string }[];
}

function opsEnv(): readonly object[] {
  return [{ name: 'TAILCAST_OPS_LISTEN', value: `127.0.0.1:${opsPort}` }];
}

async function podIds(name: string): Promise<ReadonlyMap<string, string>> {
  const list = (await cluster.api(
    'GET',
    `${CORE}/pods?labelSelector=app.kubernetes.io/instance%3D${name}`,
  )) as Listed;
  return new Map(list.items.map(({ metadata }) => [metadata.name, metadata.uid]));
}

/** Creates a generator of numbers from 0 to 1, which are the same in each run. */
function seeded(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}
