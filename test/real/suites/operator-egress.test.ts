/** ProxyGroups of type egress on real peers: many Services on few nodes, through the kernel of their pods. */
import { beforeAll, expect, it } from 'vitest';
import {
  DOMAIN,
  NAMESPACE,
  PORT,
  tailnetWebPod,
  webPod,
  type Pod,
  type WorkloadSite,
} from '../operator/workload-site.ts';
import { conditionOf, describeSite, type Resource } from '../operator/workload-suite.ts';
import type { Program } from '../rig/rig.ts';

const DEFAULT = '/api/v1/namespaces/default';
const OWN = `/api/v1/namespaces/${NAMESPACE}`;
const GROUPS = '/apis/tailscale.com/v1alpha1/proxygroups';

describeSite('operator-egress', 'groups of egress nodes', ({ start, api, read, list, until, said }) => {
  let site: WorkloadSite;

  const ready = (name: string, what = 'ReadyToRouteTraffic'): Promise<Resource> =>
    said(`${DEFAULT}/services/${name}`, what, 'TailscaleEgressSvcReady');
  const service = (
    name: string,
    target: string,
    group = 'out',
    ports: readonly object[] = [{ port: PORT }],
  ): Promise<unknown> =>
    api('POST', `${DEFAULT}/services`, {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: {
        name,
        annotations: {
          'tailscale.com/proxy-group': group,
          ...(target.includes(':') || /^[\d.]+$/.test(target)
            ? { 'tailscale.com/tailnet-ip': target }
            : { 'tailscale.com/tailnet-fqdn': target }),
        },
      },
      spec: { type: 'ExternalName', externalName: 'unused', ports },
    });
  const change = (name: string, body: object): Promise<unknown> =>
    api('PATCH', `${DEFAULT}/services/${name}`, body);
  const group = (name: string, spec: object = {}): Promise<unknown> =>
    api('POST', GROUPS, {
      apiVersion: 'tailscale.com/v1alpha1',
      kind: 'ProxyGroup',
      metadata: { name },
      spec: { type: 'egress', ...spec },
    });
  const fronts = (query = ''): Promise<readonly Resource[]> =>
    list(`${OWN}/services?labelSelector=tailscale.com/svc-type%3Degress${query}`);
  /** Simulates the cluster's DNS: resolves a Service of type ExternalName to the address of its target Service. */
  async function address(name: string): Promise<string> {
    const { spec } = await read(`${DEFAULT}/services/${name}`);
    const [front = ''] = (spec.externalName ?? '').split('.');
    return (await read(`${OWN}/services/${front}`)).spec.clusterIP ?? '';
  }
  const url = async (name: string): Promise<string> => `http://${await address(name)}:${PORT}/`;
  const pods = async (name: string): Promise<readonly Pod[]> =>
    (await list(
      `${OWN}/pods?labelSelector=tailscale.com/parent-resource%3D${name}`,
    )) as unknown as readonly Pod[];
  async function webNode(name: string): Promise<string> {
    const key = await site.tailnet.authKey({ tags: ['tag:client'] });
    await api('POST', `${DEFAULT}/pods`, tailnetWebPod(name, key, site.tailnet.controlUrl));
    const { ip_addresses: addresses } = await until(`node ${name}`, () => site.node(name));
    return addresses[0] ?? '';
  }
  let apples = '';
  let last: Program | undefined;
  let pears = '';

  beforeAll(async () => {
    site = await start();
    await api('POST', `${DEFAULT}/pods`, webPod('asker', { app: 'asker' }));
    [apples, pears] = [await webNode('apples'), await webNode('pears')];
  }, 240_000);

  it('say what is missing when the Service comes before its group', { timeout: 60_000 }, async () => {
    await service('apples', `apples.${DOMAIN}`);
    const waiting = await said(`${DEFAULT}/services/apples`, 'ProxyGroupNotReady', 'TailscaleEgressSvcValid');
    expect(conditionOf(waiting, 'TailscaleEgressSvcValid')?.message).toContain('"out" does not exist');
  });

  it('carry two Services with the same port to two nodes', { timeout: 240_000 }, async () => {
    await group('out');
    await service('pears', pears);
    await ready('apples');
    await ready('pears');
    for (const name of ['apples', 'pears']) {
      expect(await until(name, async () => site.http('asker', await url(name)))).toMatchObject({ name });
    }
    const { status } = await said(`${GROUPS}/out`, 'True', 'ProxyGroupReady');
    expect(status?.devices?.map(({ hostname }) => hostname)).toEqual(['out-0', 'out-1']);
  });

  it('take a port that is added, without a restart', { timeout: 240_000 }, async () => {
    const before = (await pods('out')).map(({ metadata }) => metadata.uid);
    await change('apples', {
      spec: {
        ports: [
          { name: 'web', port: PORT },
          { name: 'echo', port: PORT, protocol: 'UDP' },
        ],
      },
    });
    const target = await address('apples');
    expect(await until('UDP', () => site.udp('asker', target, PORT, 'hello'))).toBe('apples: hello');
    expect(await site.http('asker', await url('apples'))).toMatchObject({ name: 'apples' });
    expect((await pods('out')).map(({ metadata }) => metadata.uid)).toEqual(before);
  });

  it('hold nobody up for a name that is not known, and find it later', { timeout: 240_000 }, async () => {
    await service('late', `late.${DOMAIN}`);
    const waiting = await until('the reason', async () => {
      const object = await read(`${DEFAULT}/services/late`);
      const condition = conditionOf(object, 'TailscaleEgressSvcReady');
      return condition?.message.includes('not known in the tailnet') === true ? condition : undefined;
    });
    expect(waiting.status).toBe('False');
    expect(await site.http('asker', await url('apples'))).toMatchObject({ name: 'apples' });
    await webNode('late');
    await ready('late');
    expect(await until('late', async () => site.http('asker', await url('late')))).toMatchObject({
      name: 'late',
    });
  });

  it('are rolled out under load without one failed connection', { timeout: 400_000 }, async () => {
    const before = new Map((await pods('out')).map(({ metadata }) => [metadata.name, metadata.uid]));
    const load = site.load('asker', await url('apples'), 8, 10_000);
    await site.restart('out');
    await site.rig.until(
      'two other pods',
      async () => {
        const now = await pods('out');
        const fresh = now.filter(({ metadata }) => before.get(metadata.name) !== metadata.uid);
        return now.length === 2 && fresh.length === 2 ? true : undefined;
      },
      { timeoutMs: 240_000 },
    );
    await ready('apples');
    const { meanwhile, done, failed, errors } = await load.end();
    process.stderr.write(
      `operator-egress: ${meanwhile} connections during the roll-out, ${done} in all, ${failed} failed\n`,
    );
    expect({ failed, errors }).toEqual({ failed: 0, errors: {} });
    expect(done).toBeGreaterThanOrEqual(10_000);
  });

  it('are scaled up and down, and a node that goes leaves the tailnet', { timeout: 400_000 }, async () => {
    await api('PATCH', `${GROUPS}/out`, { spec: { replicas: 3 } });
    await until('the third', () => site.node('out-2'));
    await ready('apples');
    await api('PATCH', `${GROUPS}/out`, { spec: { replicas: 1 } });
    await site.rig.until(
      'one node',
      async () =>
        (await site.node('out-1')) === undefined && (await site.node('out-2')) === undefined
          ? true
          : undefined,
      { timeoutMs: 240_000 },
    );
    expect(await until('apples', async () => site.http('asker', await url('apples')))).toMatchObject({
      name: 'apples',
    });
  });

  it('give a Service to another group, or to nobody, and keep nothing', { timeout: 400_000 }, async () => {
    await group('more', { replicas: 1, hostnamePrefix: 'extra' });
    await change('pears', { metadata: { annotations: { 'tailscale.com/proxy-group': 'more' } } });
    await until('the other group', async () =>
      (await fronts(',tailscale.com/proxy-group%3Dmore')).length === 1 &&
      (await fronts(',tailscale.com/proxy-group%3Dout')).length === 2
        ? true
        : undefined,
    );
    await ready('pears');
    expect(await until('pears', async () => site.http('asker', await url('pears')))).toMatchObject({
      name: 'pears',
    });
    await change('late', {
      metadata: { annotations: { 'tailscale.com/proxy-group': null, 'tailscale.com/tailnet-fqdn': null } },
    });
    await api('DELETE', `${DEFAULT}/services/pears`);
    await until('both to be let go', async () => {
      const left = await read(`${DEFAULT}/services/late`);
      const names = (await list(`${DEFAULT}/services`)).map(({ metadata }) => metadata.name);
      const kept = await fronts();
      return (left.metadata.finalizers ?? []).length === 0 && !names.includes('pears') && kept.length === 1
        ? true
        : undefined;
    });
    expect((await read(`${DEFAULT}/services/late`)).status?.conditions ?? []).toEqual([]);
  });

  it('come up whole when the operator is killed again and again', { timeout: 300_000 }, async () => {
    site.operator.signal('SIGKILL');
    await service('pears', pears);
    for (let life = 0; life < 6; life += 1) {
      const operator = site.launch(`operator-${life}`);
      await new Promise((done) => setTimeout(done, 900 + 150 * life));
      operator.signal('SIGKILL');
    }
    last = site.launch('operator-last');
    await ready('pears');
    expect(await until('pears', async () => site.http('asker', await url('pears')))).toMatchObject({
      name: 'pears',
    });
    expect(await fronts()).toHaveLength(2);
  });

  it('go with all that stood for Services, and leave no node', { timeout: 400_000 }, async () => {
    for (const name of ['out', 'more']) await api('DELETE', `${GROUPS}/${name}`);
    await site.rig.until(
      'nothing of them',
      async () => {
        const nodes = (await site.nodes()).filter(({ given_name }) => /^(out|extra)-/.test(given_name));
        const groups = await list(GROUPS);
        const left = [
          ...(await fronts()),
          ...(await list(`${OWN}/configmaps`)).filter(({ metadata }) =>
            metadata.name.endsWith('-egress-config'),
          ),
        ];
        if (nodes.length + groups.length + left.length === 0) return true;
        throw new Error(JSON.stringify({ nodes, groups, left: left.map(({ metadata }) => metadata.name) }));
      },
      { timeoutMs: 300_000 },
    );
    expect(apples).not.toBe('');
    const gone = await said(`${DEFAULT}/services/apples`, 'ProxyGroupNotReady', 'TailscaleEgressSvcValid');
    expect(conditionOf(gone, 'TailscaleEgressSvcReady')?.status).toBe('False');
    await api('DELETE', `${DEFAULT}/services/apples`);
    await until('the Service to be let go', async () =>
      (await list(`${DEFAULT}/services`)).some(({ metadata }) => metadata.name === 'apples')
        ? undefined
        : true,
    );
  });

  it('are removed by an operator that is uninstalled', { timeout: 400_000 }, async () => {
    await group('out', { replicas: 1 });
    await service('apples', `apples.${DOMAIN}`);
    await ready('apples');
    await last?.stop();
    const cleanup = site.launch('cleanup', ['--cleanup']);
    await site.rig.until(
      'the end of it',
      async () => {
        if (cleanup.running) throw new Error(cleanup.log().slice(-300));
        return true;
      },
      { timeoutMs: 300_000 },
    );
    expect(cleanup.log()).toContain('nothing of the operator is left');
    expect((await site.nodes()).filter(({ given_name }) => given_name.startsWith('out-'))).toEqual([]);
    expect(await fronts()).toEqual([]);
    for (const kind of ['secrets', 'pods', 'serviceaccounts', 'configmaps']) {
      const left = await list(`${OWN}/${kind}?labelSelector=tailscale.com/managed%3Dtrue`);
      expect(
        left.map(({ metadata }) => metadata.name),
        kind,
      ).toEqual([]);
    }
    for (const path of [`${GROUPS}/out`, `${DEFAULT}/services/apples`]) {
      const { metadata, status } = await read(path);
      expect(metadata.finalizers ?? [], path).toEqual([]);
      if (path.startsWith(DEFAULT)) expect(status?.conditions ?? []).toEqual([]);
    }
  });
});
