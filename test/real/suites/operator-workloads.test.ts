/** Services, Connectors and ProxyClasses on real peers: packets pass through the kernel of each pod's own network. */
import { createServer } from 'node:http';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parentLabels, objectNameOf } from '../../../src/operator/workload/workload.ts';
import {
  DOMAIN,
  NAMESPACE,
  OTHER_NODE_MS,
  OUTER_ADDRESS,
  OUTER_NAME,
  PORT,
  SERVICE_NETWORK,
  tailnetWebPod,
  webPod,
  type HeadscaleNode,
  type WorkloadSite,
} from '../operator/workload-site.ts';
import { conditionOf, describeSite, type Resource } from '../operator/workload-suite.ts';

const DEFAULT = '/api/v1/namespaces/default';
const OWN = `/api/v1/namespaces/${NAMESPACE}`;
const TAILSCALE = '/apis/tailscale.com/v1alpha1';

describeSite(
  'operator-workloads',
  'workloads of the operator',
  ({ start, startClient, api, read, list, until, said }) => {
    let site: WorkloadSite;
    /** A server behind the tailnet node `db`. */
    const database = createServer((_request, response) =>
      response.end(JSON.stringify({ name: 'db', from: '' })),
    );
    const DATABASE_PORT = 5432;

    async function service(
      name: string,
      spec: object,
      annotations: Readonly<Record<string, string>> = {},
    ): Promise<Resource> {
      const path = `${DEFAULT}/services`;
      return (await api('POST', path, {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name, annotations },
        spec: {
          selector: { app: 'web' },
          ports: [
            { name: 'http', port: 80, targetPort: PORT },
            { name: 'echo', port: 80, targetPort: PORT, protocol: 'UDP' },
          ],
          ...spec,
        },
      })) as Resource;
    }
    const change = (name: string, body: object): Promise<unknown> =>
      api('PATCH', `${DEFAULT}/services/${name}`, body);
    const annotate = (name: string, annotations: Readonly<Record<string, string | null>>): Promise<unknown> =>
      change(name, { metadata: { annotations } });
    const remove = (path: string): Promise<unknown> => api('DELETE', path);

    const ready = (path: string, what = 'True'): Promise<Resource> => said(path, what);
    async function nodeNamed(name: string): Promise<HeadscaleNode> {
      return until(`node ${name}`, () => site.node(name));
    }
    async function addressOf(name: string): Promise<string> {
      const [address = ''] = (await nodeNamed(name)).ip_addresses;
      return address;
    }
    const podOf = (type: 'svc' | 'connector', name: string, ordinal = 0): string =>
      `${objectNameOf({ type, namespace: type === 'svc' ? 'default' : NAMESPACE, name })}-${ordinal}`;
    const poll = (what: string, url: string, pod = 'client'): Promise<{ name: string; from: string }> =>
      until(what, () => site.http(pod, url));
    /** Returns all objects in the operator's namespace that the operator created for a resource. */
    async function madeFor(name: string): Promise<readonly string[]> {
      const query = `labelSelector=tailscale.com/parent-resource%3D${name}`;
      const paths = [
        `${OWN}/secrets`,
        `${OWN}/services`,
        `${OWN}/serviceaccounts`,
        `${OWN}/pods`,
        `/apis/apps/v1/namespaces/${NAMESPACE}/statefulsets`,
        `/apis/rbac.authorization.k8s.io/v1/namespaces/${NAMESPACE}/roles`,
        `/apis/rbac.authorization.k8s.io/v1/namespaces/${NAMESPACE}/rolebindings`,
      ];
      const found = await Promise.all(paths.map((path) => list(`${path}?${query}`)));
      return found.flat().map(({ metadata }) => metadata.name);
    }
    async function gone(name: string, node: string): Promise<void> {
      await until(`nothing of ${name}`, async () => {
        const left = await madeFor(name);
        const known = (await site.nodes()).filter(({ given_name }) => given_name.startsWith(node));
        if (left.length === 0 && known.length === 0) return true;
        throw new Error(JSON.stringify({ left, known }));
      });
    }

    beforeAll(async () => {
      site = await start();
      await new Promise<void>((done) => database.listen(DATABASE_PORT, '127.0.0.1', done));
      await api('POST', `${DEFAULT}/pods`, webPod('web', { app: 'web' }));
      await api('POST', `${DEFAULT}/pods`, webPod('asker', { app: 'asker' }));
      await startClient();
      await until('pods', async () => {
        const pods = (await list(`${DEFAULT}/pods`)) as unknown as { status: { phase: string } }[];
        return pods.length === 3 && pods.every(({ status }) => status.phase === 'Running') ? true : undefined;
      });
      await site.banish('client');
    }, 240_000);

    afterAll(() => void database.close());

    describe('a Service that is reached from the tailnet', () => {
      it('is, by TCP and UDP, when it is annotated', { timeout: 180_000 }, async () => {
        await service('plain', {}, { 'tailscale.com/expose': 'true' });
        await ready(`${DEFAULT}/services/plain`);
        const address = await addressOf('default-plain');
        expect(await poll('the Service over TCP', `http://${address}/`)).toMatchObject({ name: 'web' });
        expect(await until('the Service over UDP', () => site.udp('client', address, 80, 'hello'))).toBe(
          'web: hello',
        );
      });

      it('says its name and addresses as a load balancer, after joining', { timeout: 180_000 }, async () => {
        await service('balanced', { type: 'LoadBalancer', loadBalancerClass: 'tailscale' });
        const { status } = await ready(`${DEFAULT}/services/balanced`);
        const { ip_addresses: addresses } = await nodeNamed('default-balanced');
        expect(status?.loadBalancer?.ingress?.map(({ hostname, ip }) => hostname ?? ip)).toEqual([
          `default-balanced.${DOMAIN}`,
          addresses[0],
        ]);
        expect(await poll('the load balancer', `http://${addresses[0]}/`)).toMatchObject({ name: 'web' });
      });

      it('is, over IPv6, when it has that family alone or both', { timeout: 240_000 }, async () => {
        for (const [name, ipFamilyPolicy, ...ipFamilies] of [
          ['six', 'SingleStack', 'IPv6'],
          ['both', 'RequireDualStack', 'IPv6', 'IPv4'],
        ] as const) {
          await service(name, { ipFamilyPolicy, ipFamilies }, { 'tailscale.com/expose': 'true' });
          await ready(`${DEFAULT}/services/${name}`);
          const address = (await nodeNamed(`default-${name}`)).ip_addresses.find((one) => one.includes(':'));
          const answer = await poll(`${name} over TCP`, `http://[${address}]/`);
          expect(answer).toMatchObject({ name: 'web', from: expect.stringMatching(/^fd77:/) as unknown });
          const echo = await until(`${name} over UDP`, () => site.udp('client', address ?? '', 80, 'hello'));
          expect(echo).toBe('web: hello');
          await remove(`${DEFAULT}/services/${name}`);
          await gone(name, `default-${name}`);
        }
      });

      it('is not touched when it is of another class', async () => {
        await service('foreign', { type: 'LoadBalancer', loadBalancerClass: 'example.com/cloud' });
        const { metadata, status } = await read(`${DEFAULT}/services/foreign`);
        await ready(`${DEFAULT}/services/plain`);
        expect(metadata.finalizers ?? []).not.toContain('tailscale.com/finalizer');
        expect(status?.conditions ?? []).toEqual([]);
        expect(await madeFor('foreign')).toEqual([]);
      });

      it('may be an outer name', { timeout: 180_000 }, async () => {
        await service('inner', { clusterIP: OUTER_ADDRESS });
        await service(
          'outer',
          { type: 'ExternalName', externalName: OUTER_NAME, selector: null, ports: null },
          { 'tailscale.com/expose': 'true' },
        );
        await ready(`${DEFAULT}/services/outer`);
        const address = await addressOf('default-outer');
        expect(await poll('the outer name', `http://${address}/`)).toMatchObject({ name: 'web' });
      });

      it('takes another host name without a restart', { timeout: 180_000 }, async () => {
        const before = await site.pod(NAMESPACE, podOf('svc', 'plain'));
        const { id } = await nodeNamed('default-plain');
        await annotate('plain', { 'tailscale.com/hostname': 'shop' });
        expect((await nodeNamed('shop')).id).toBe(id);
        expect((await site.pod(NAMESPACE, podOf('svc', 'plain'))).metadata.uid).toBe(before.metadata.uid);
      });

      it('keeps node and address when its pod is killed', { timeout: 180_000 }, async () => {
        const { id, ip_addresses: addresses } = await nodeNamed('shop');
        const before = await site.pod(NAMESPACE, podOf('svc', 'plain'));
        await remove(`${OWN}/pods/${podOf('svc', 'plain')}`);
        await until('another pod', async () => {
          const { metadata } = await site.pod(NAMESPACE, podOf('svc', 'plain'));
          return metadata.uid === before.metadata.uid ? undefined : true;
        });
        expect(await poll('the Service again', `http://${addresses[0]}/`)).toMatchObject({ name: 'web' });
        await ready(`${DEFAULT}/services/plain`);
        expect(await nodeNamed('shop')).toMatchObject({ id, ip_addresses: addresses });
      });

      it('is told what is wrong, and heals', { timeout: 180_000 }, async () => {
        await service(
          'wrong',
          {},
          { 'tailscale.com/expose': 'true', 'tailscale.com/hostname': 'not_a_label' },
        );
        const refused = await ready(`${DEFAULT}/services/wrong`, 'ProxyInvalid');
        expect(conditionOf(refused)?.message).toContain('tailscale.com/hostname');
        const events = (await list(`${DEFAULT}/events`)) as unknown as {
          reason: string;
          involvedObject: { name: string };
        }[];
        expect(events).toContainEqual(
          expect.objectContaining({
            reason: 'INVALIDSERVICE',
            involvedObject: expect.objectContaining({ name: 'wrong' }) as unknown,
          }),
        );
        expect(await madeFor('wrong')).toEqual([]);
        await annotate('wrong', { 'tailscale.com/hostname': 'right' });
        await ready(`${DEFAULT}/services/wrong`);
        await remove(`${DEFAULT}/services/wrong`);
        await gone('wrong', 'right');
      });

      it('leaves nothing behind when it asks for nothing any more', { timeout: 180_000 }, async () => {
        await change('balanced', { spec: { type: 'ClusterIP', loadBalancerClass: null } });
        await gone('balanced', 'default-balanced');
        const after = await until('the Service without our marks', async () => {
          const object = await read(`${DEFAULT}/services/balanced`);
          return (object.metadata.finalizers ?? []).length === 0 ? object : undefined;
        });
        expect(after.status?.conditions ?? []).toEqual([]);
        expect(after.status?.loadBalancer?.ingress ?? []).toEqual([]);
      });

      it('may have the longest name there is, twice in two namespaces', { timeout: 240_000 }, async () => {
        const name = `web-${'x'.repeat(59)}`;
        const other = '/api/v1/namespaces/elsewhere';
        const manifest = (namespace: string): object => ({
          apiVersion: 'v1',
          kind: 'Service',
          metadata: { name, namespace, annotations: { 'tailscale.com/expose': 'true' } },
          spec: { ports: [{ port: 80 }] },
        });
        await api('POST', '/api/v1/namespaces', {
          apiVersion: 'v1',
          kind: 'Namespace',
          metadata: { name: 'elsewhere' },
        });
        await api('POST', `${DEFAULT}/services`, manifest('default'));
        await api('POST', `${other}/services`, manifest('elsewhere'));
        await ready(`${DEFAULT}/services/${name}`);
        await ready(`${other}/services/${name}`);
        const names = (await site.nodes()).map(({ given_name }) => given_name);
        expect(names.filter((one) => one.startsWith('default-web-x'))).toHaveLength(1);
        expect(names.filter((one) => one.startsWith('elsewhere-web-x'))).toHaveLength(1);
        for (const path of [DEFAULT, other]) await remove(`${path}/services/${name}`);
        await gone(name, 'elsewhere-web-x');
        expect(
          (await site.nodes()).filter(({ given_name }) => given_name.startsWith('default-web-x')),
        ).toEqual([]);
      });

      it('waits to go while the control server is away', { timeout: 240_000 }, async () => {
        await service('patient', {}, { 'tailscale.com/expose': 'true' });
        await ready(`${DEFAULT}/services/patient`);
        site.tailnet.control.pause();
        try {
          await remove(`${DEFAULT}/services/patient`);
          await until('its pod to end', async () =>
            (await list(`${OWN}/pods?labelSelector=tailscale.com/parent-resource%3Dpatient`)).length === 0
              ? true
              : undefined,
          );
          const { metadata } = await read(`${DEFAULT}/services/patient`);
          expect(metadata.finalizers).toContain('tailscale.com/finalizer');
        } finally {
          site.tailnet.control.resume();
        }
        await gone('patient', 'default-patient');
      });
    });

    describe('a Service that leads to the tailnet', () => {
      /** Returns the response of a cluster's DNS: the addresses behind the headless Service. */
      async function resolved(externalName: string): Promise<string> {
        const [name = ''] = externalName.split('.');
        const query = `labelSelector=kubernetes.io/service-name%3D${name}`;
        const slices = (await list(
          `/apis/discovery.k8s.io/v1/namespaces/${NAMESPACE}/endpointslices?${query}`,
        )) as unknown as {
          addressType: string;
          endpoints: { addresses: string[]; conditions: { ready: boolean } }[] | null;
        }[];
        const [endpoint] = slices
          .filter(({ addressType }) => addressType === 'IPv4')
          .flatMap(({ endpoints }) => endpoints ?? [])
          .filter(({ conditions }) => conditions.ready);
        if (endpoint === undefined) throw new Error(`no endpoints of ${name}`);
        return endpoint.addresses[0] ?? '';
      }
      const reaches = (name: string): Promise<{ name: string; from: string }> =>
        until(`the tailnet through ${name}`, async () => {
          const { spec } = await read(`${DEFAULT}/services/${name}`);
          return site.http('asker', `http://${await resolved(spec.externalName ?? '')}:${DATABASE_PORT}/`);
        });
      const EXTERNAL = { type: 'ExternalName', externalName: 'unused', selector: null, ports: null };

      it('does by name', { timeout: 180_000 }, async () => {
        await service('by-name', EXTERNAL, { 'tailscale.com/tailnet-fqdn': `db.${DOMAIN}` });
        const { spec } = await ready(`${DEFAULT}/services/by-name`);
        const name = objectNameOf({ type: 'svc', namespace: 'default', name: 'by-name' });
        expect(spec.externalName).toBe(`${name}.${NAMESPACE}.svc.cluster.local`);
        expect(await reaches('by-name')).toMatchObject({ name: 'db' });
      });

      it('does by address', { timeout: 180_000 }, async () => {
        const [address] = site.tailnet.node('db').addresses;
        await service('by-address', EXTERNAL, { 'tailscale.com/tailnet-ip': address });
        await ready(`${DEFAULT}/services/by-address`);
        expect(await reaches('by-address')).toMatchObject({ name: 'db' });
      });

      it('is written back when somebody changes where it leads', async () => {
        const { spec } = await read(`${DEFAULT}/services/by-name`);
        await change('by-name', { spec: { externalName: 'elsewhere.example.com' } });
        const back = await until('its name to be back', async () => {
          const { externalName } = (await read(`${DEFAULT}/services/by-name`)).spec;
          return externalName === 'elsewhere.example.com' ? undefined : externalName;
        });
        expect(back).toBe(spec.externalName);
      });

      it(
        'waits for a name that is not known, says so, and works when it is',
        { timeout: 240_000 },
        async () => {
          await service('later', EXTERNAL, { 'tailscale.com/tailnet-fqdn': `late.${DOMAIN}` });
          const waiting = await ready(`${DEFAULT}/services/later`, 'ProxyPending');
          expect(conditionOf(waiting)?.message).toContain(`late.${DOMAIN}`);
          await site.tailnet.join({ name: 'late', user: 'alice@example.com' });
          await ready(`${DEFAULT}/services/later`);
          expect(await reaches('later')).toMatchObject({ name: 'db' });
        },
      );

      it('leads to another node of its name when its pod is replaced', { timeout: 240_000 }, async () => {
        await site.tailnet.join({ name: 'later', user: 'alice@example.com' });
        const [former, next] = [await nodeNamed('late'), await nodeNamed('later')];
        await site.tailnet.admin('nodes', 'rename', 'former', '-i', String(former.id));
        await site.tailnet.admin('nodes', 'rename', 'late', '-i', String(next.id));
        // The node with the previous address no longer exists.
        await site.tailnet.remove('former');
        // Restarts the pod, because containerboot ignores all changes and signals after it has found no address for the
        // name.
        await remove(`${OWN}/pods/${podOf('svc', 'later')}?gracePeriodSeconds=0`);
        expect(await reaches('later')).toMatchObject({ name: 'db' });
      });

      it(
        'reaches an address behind a router, where its class takes routes',
        { timeout: 240_000 },
        async () => {
          const [behind, network] = ['198.51.100.10', '198.51.100.0/24'];
          const key = await site.tailnet.authKey({ tags: ['tag:router'] });
          const router = tailnetWebPod('router', key, site.tailnet.controlUrl, { TS_ROUTES: network });
          await api('POST', `${DEFAULT}/pods`, router);
          const { id } = await nodeNamed('router');
          await site.address('router', `${behind}/32`);
          await site.tailnet.admin('nodes', 'approve-routes', '-i', String(id), '-r', network);
          await api('POST', `${TAILSCALE}/proxyclasses`, {
            apiVersion: 'tailscale.com/v1alpha1',
            kind: 'ProxyClass',
            metadata: { name: 'routed' },
            spec: { tailscale: { acceptRoutes: true } },
          });
          const of = { 'tailscale.com/tailnet-ip': behind };
          await service('unrouted', EXTERNAL, of);
          await service('routed', EXTERNAL, { ...of, 'tailscale.com/proxy-class': 'routed' });
          const through = async (name: string): Promise<{ name: string }> => {
            const { spec } = await ready(`${DEFAULT}/services/${name}`);
            return site.http('asker', `http://${await resolved(spec.externalName ?? '')}:${PORT}/`);
          };
          expect(await until('the address behind the router', () => through('routed'))).toMatchObject({
            name: 'router',
          });
          await expect(through('unrouted')).rejects.toThrow('Command failed');
          for (const name of ['routed', 'unrouted']) await remove(`${DEFAULT}/services/${name}`);
          for (const name of ['routed', 'unrouted']) await gone(name, `default-${name}`);
          await remove(`${DEFAULT}/pods/router`);
        },
      );

      it('takes its node along when it is deleted', { timeout: 180_000 }, async () => {
        for (const name of ['by-address', 'later']) await remove(`${DEFAULT}/services/${name}`);
        await gone('by-address', 'default-by-address');
        await gone('later', 'default-later');
        expect([...(await madeFor('by-address')), ...(await madeFor('later'))]).toEqual([]);
      });
    });

    describe('a ProxyClass', () => {
      it('is waited for, lands in the pod, and a change rolls its users', { timeout: 240_000 }, async () => {
        await service('classed', {}, { 'tailscale.com/expose': 'true', 'tailscale.com/proxy-class': 'edge' });
        const waiting = await ready(`${DEFAULT}/services/classed`, 'ProxyPending');
        expect(conditionOf(waiting)?.message).toContain('ProxyClass "edge" does not exist');
        await api('POST', `${TAILSCALE}/proxyclasses`, {
          apiVersion: 'tailscale.com/v1alpha1',
          kind: 'ProxyClass',
          metadata: { name: 'edge' },
          spec: {
            statefulSet: { pod: { labels: { team: 'edge' }, priorityClassName: 'system-node-critical' } },
          },
        });
        await ready(`${DEFAULT}/services/classed`);
        const name = podOf('svc', 'classed');
        const before = await site.pod(NAMESPACE, name);
        expect(before.spec['priorityClassName']).toBe('system-node-critical');
        await api('PATCH', `${TAILSCALE}/proxyclasses/edge`, {
          spec: { statefulSet: { pod: { labels: { team: 'core' } } } },
        });
        await until('a pod of the other team', async () => {
          const { metadata } = (await site.pod(NAMESPACE, name)) as unknown as Resource;
          return metadata.labels?.['team'] === 'core' ? true : undefined;
        });
        await ready(`${DEFAULT}/services/classed`);
        await remove(`${DEFAULT}/services/classed`);
        await gone('classed', 'default-classed');
      });
    });

    describe('a Connector', () => {
      const connector = (name: string, spec: object): object => ({
        apiVersion: 'tailscale.com/v1alpha1',
        kind: 'Connector',
        metadata: { name },
        spec,
      });

      it.each<[string, object]>([
        ['no role', {}],
        ['two that exclude each other', { exitNode: true, appConnector: {} }],
        ['one name for two nodes', { exitNode: true, hostname: 'out', replicas: 2 }],
        ['a name and a prefix', { exitNode: true, hostname: 'out', hostnamePrefix: 'out' }],
        ['what is no network', { subnetRouter: { advertiseRoutes: ['here'] } }],
      ])('is refused by the API server with %s', async (_name, spec) => {
        await expect(api('POST', `${TAILSCALE}/connectors`, connector('refused', spec))).rejects.toThrow(
          '422',
        );
      });

      it(
        'routes a network, approved by the operator, and withdraws it live',
        { timeout: 240_000 },
        async () => {
          const { spec } = await read(`${DEFAULT}/services/plain`);
          const target = `http://${spec.clusterIP}/`;
          await expect(site.http('client', target)).rejects.toThrow('Command failed');
          const routes = (wanted: readonly string[]): object => ({
            subnetRouter: { advertiseRoutes: wanted },
          });
          await api('POST', `${TAILSCALE}/connectors`, connector('lab', routes([SERVICE_NETWORK])));
          const object = await ready(`${TAILSCALE}/connectors/lab`);
          expect(object.status).toMatchObject({ subnetRoutes: SERVICE_NETWORK, isExitNode: false });
          expect((await nodeNamed('lab-connector')).approved_routes).toEqual([SERVICE_NETWORK]);
          expect(await poll('the cluster address by the route', target)).toMatchObject({ name: 'web' });
          const pod = await site.pod(NAMESPACE, podOf('connector', 'lab'));
          await api('PATCH', `${TAILSCALE}/connectors/lab`, { spec: routes(['192.0.2.0/24']) });
          await until('the route to go', async () => {
            const failed = await site.http('client', target).then(
              () => false,
              () => true,
            );
            return failed ? true : undefined;
          });
          expect((await site.pod(NAMESPACE, podOf('connector', 'lab'))).metadata.uid).toBe(pod.metadata.uid);
        },
      );

      it('becomes an exit node, and none again', { timeout: 180_000 }, async () => {
        await api('PATCH', `${TAILSCALE}/connectors/lab`, { spec: { exitNode: true } });
        await until('both routes', async () => {
          const { approved_routes: approved = [] } = await nodeNamed('lab-connector');
          return approved.includes('0.0.0.0/0') && approved.includes('::/0') ? true : undefined;
        });
        expect((await ready(`${TAILSCALE}/connectors/lab`)).status).toMatchObject({ isExitNode: true });
        await api('PATCH', `${TAILSCALE}/connectors/lab`, { spec: { exitNode: false } });
        await until('the status to fall back', async () =>
          (await read(`${TAILSCALE}/connectors/lab`)).status?.['isExitNode'] === false ? true : undefined,
        );
      });

      it('is served by its other node when one is killed, or lost', { timeout: 400_000 }, async () => {
        const { spec } = await read(`${DEFAULT}/services/plain`);
        const target = `http://${spec.clusterIP}/`;
        const subnetRouter = { advertiseRoutes: [SERVICE_NETWORK] };
        const twin = connector('twin', { subnetRouter, replicas: 2, hostnamePrefix: 'twin' });
        await api('POST', `${TAILSCALE}/connectors`, twin);
        await ready(`${TAILSCALE}/connectors/twin`);
        const primary = (): Promise<HeadscaleNode> =>
          until('a node that is led to', async () =>
            (await site.nodes()).find(
              ({ given_name, subnet_routes: routes }) =>
                given_name.startsWith('twin-') && routes?.includes(SERVICE_NETWORK),
            ),
          );
        await poll('the cluster by the route', target);
        for (const [end, limitMs] of [
          ['killed', OTHER_NODE_MS.killed],
          ['lost', OTHER_NODE_MS.lost],
        ] as const) {
          const first = (await primary()).given_name;
          const pod = podOf('connector', 'twin', Number(first.at(-1)));
          const load = site.load('client', target, 4, 2000, 1500);
          // Confirms that the load can get responses before the node fails.
          await site.http('client', target);
          if (end === 'killed') site.kill(NAMESPACE, pod);
          else await site.cut(NAMESPACE, pod);
          await poll('the cluster by the other node', target);
          const { done, failed, silentMs } = await load.end();
          process.stderr.write(
            `operator-workloads: a Connector's node ${end}: ${done} connections, ${failed} failed, at most ` +
              `${silentMs} ms without an answer\n`,
          );
          expect(silentMs).toBeLessThan(limitMs);
          if (end === 'lost') {
            expect((await primary()).given_name).not.toBe(first);
            await remove(`${OWN}/pods/${pod}?gracePeriodSeconds=0`);
          }
          await ready(`${TAILSCALE}/connectors/twin`);
        }
        await remove(`${TAILSCALE}/connectors/twin`);
        await gone('twin', 'twin-');
      });

      it('has as many nodes as it is told to', { timeout: 240_000 }, async () => {
        await api(
          'POST',
          `${TAILSCALE}/connectors`,
          connector('pair', { exitNode: true, replicas: 2, hostnamePrefix: 'pair' }),
        );
        await ready(`${TAILSCALE}/connectors/pair`);
        await nodeNamed('pair-0');
        await nodeNamed('pair-1');
        await api('PATCH', `${TAILSCALE}/connectors/pair`, { spec: { replicas: 1 } });
        await until('one node', async () => ((await site.node('pair-1')) === undefined ? true : undefined));
        const { status } = await ready(`${TAILSCALE}/connectors/pair`);
        expect(status).toMatchObject({ devices: [{ hostname: 'pair-0' }] });
        for (const name of ['pair', 'lab']) await remove(`${TAILSCALE}/connectors/${name}`);
        await gone('pair', 'pair-');
        await gone('lab', 'lab-');
      });
    });

    describe('all of them', () => {
      it('have accounts that read their own Secret and no other', async () => {
        const name = objectNameOf({ type: 'svc', namespace: 'default', name: 'plain' });
        const other = podOf('svc', 'by-name');
        const may = async (verb: string, secret: string): Promise<boolean> => {
          const answer = (await api('POST', '/apis/authorization.k8s.io/v1/subjectaccessreviews', {
            apiVersion: 'authorization.k8s.io/v1',
            kind: 'SubjectAccessReview',
            spec: {
              user: `system:serviceaccount:${NAMESPACE}:${name}`,
              resourceAttributes: { namespace: NAMESPACE, verb, resource: 'secrets', name: secret },
            },
          })) as { status: { allowed: boolean } };
          return answer.status.allowed;
        };
        expect(await may('get', `${name}-0`)).toBe(true);
        for (const secret of [other, `${name}-auth-0`, '']) {
          for (const verb of ['get', 'list', 'patch'])
            expect(await may(verb, secret), `${verb} ${secret}`).toBe(false);
        }
      });

      it('leave no auth key in logs, events, pods, or the state of nodes that have joined', async () => {
        const secrets = (await list(`${OWN}/secrets`)) as unknown as {
          metadata: { name: string };
          data?: Record<string, string>;
        }[];
        const keys = secrets
          .filter(({ metadata }) => /-auth-\d+$/.test(metadata.name))
          .map(({ data }) => Buffer.from(data?.['authkey'] ?? '', 'base64').toString());
        expect(keys.length).toBeGreaterThan(0);
        const others = secrets.filter(({ metadata }) => !/-auth-\d+$/.test(metadata.name));
        const seen = [
          site.operator.log(),
          JSON.stringify(await list(`${OWN}/pods`)),
          JSON.stringify(await list('/api/v1/events')),
          ...others.flatMap(({ data }) =>
            Object.values(data ?? {}).map((value) => Buffer.from(value, 'base64').toString()),
          ),
        ];
        for (const key of keys) expect(seen.some((text) => text.includes(key))).toBe(false);
      });

      it('are well, as the doctor sees them, and what is left is not', { timeout: 120_000 }, async () => {
        const { code, statuses, text } = await site.examine();
        expect(
          Object.entries(statuses).filter(([, status]) => status === 'failed' || status === 'warning'),
          text,
        ).toEqual([]);
        expect(code).toBe(0);
        expect(statuses).toMatchObject({
          rights: 'ok',
          'auth-keys': 'ok',
          services: 'ok',
          'left-nodes': 'ok',
        });
        const labels = parentLabels({ type: 'svc', namespace: 'default', name: 'nobody' });
        await api('POST', `${OWN}/secrets`, {
          apiVersion: 'v1',
          kind: 'Secret',
          metadata: { name: 'ts-nobody-0', labels },
        });
        await site.tailnet.admin(
          'nodes',
          'tag',
          '-i',
          String((await nodeNamed('client')).id),
          '-t',
          'tag:k8s',
        );
        const after = await site.examine();
        expect(after.statuses).toMatchObject({ 'left-objects': 'warning', 'left-nodes': 'warning' });
        expect(after.text).toContain('secret/ts-nobody-0');
        await remove(`${OWN}/secrets/ts-nobody-0`);
      });

      it('are left in peace when nothing changes', async () => {
        const account = `system:serviceaccount:${NAMESPACE}:tailcast-operator`;
        const requests = (): number =>
          site.cluster.audit().filter(({ user, verb }) => user.username === account && verb !== 'watch')
            .length;
        const quiet = await until('five quiet seconds', async () => {
          const before = requests();
          await new Promise((done) => setTimeout(done, 5000));
          return requests() === before ? true : undefined;
        });
        expect(quiet).toBe(true);
      });

      it('come up whole when the operator is killed again and again', { timeout: 300_000 }, async () => {
        site.operator.signal('SIGKILL');
        await service('survivor', { type: 'LoadBalancer', loadBalancerClass: 'tailscale' });
        for (let life = 0; life < 4; life += 1) {
          const operator = site.launch(`operator-${life}`);
          const before = (await madeFor('survivor')).length;
          // The operator is killed after each write until all objects exist.
          await until('a sign of work', async () => {
            const { metadata } = await read(`${DEFAULT}/services/survivor`);
            const more = (await madeFor('survivor')).length > before;
            return more || before >= 8 || (life === 0 && (metadata.finalizers ?? []).length > 0)
              ? true
              : undefined;
          });
          operator.signal('SIGKILL');
        }
        site.launch('operator-last');
        await ready(`${DEFAULT}/services/survivor`);
        const nodes = (await site.nodes()).filter(({ given_name }) =>
          given_name.startsWith('default-survivor'),
        );
        expect(nodes.map(({ given_name }) => given_name)).toEqual(['default-survivor']);
        expect(await poll('the survivor', `http://${nodes[0]?.ip_addresses[0]}/`)).toMatchObject({
          name: 'web',
        });
      });

      it('go, and nothing is left in the cluster or the tailnet', { timeout: 240_000 }, async () => {
        for (const name of ['plain', 'outer', 'by-name', 'survivor'])
          await remove(`${DEFAULT}/services/${name}`);
        await until('an empty namespace', async () => {
          const left = (await list(`${OWN}/secrets`)).filter(
            ({ metadata }) => metadata.labels?.['tailscale.com/managed'],
          );
          const nodes = (await site.nodes()).filter(
            ({ given_name }) => given_name.startsWith('default-') || given_name === 'shop',
          );
          if (left.length === 0 && nodes.length === 0) return true;
          throw new Error(JSON.stringify({ left: left.map(({ metadata }) => metadata.name), nodes }));
        });
        const services = await list(`${DEFAULT}/services`);
        expect(services.map(({ metadata }) => metadata.name).toSorted()).toEqual([
          'balanced',
          'foreign',
          'inner',
          'kubernetes',
        ]);
      });
    });
  },
);
