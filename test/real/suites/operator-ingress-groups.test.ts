/**
 * ProxyGroups of type ingress with real peers: Services and Ingresses with addresses that all nodes of a group share.
 */
import { beforeAll, expect, it } from 'vitest';
import {
  NAMESPACE,
  OTHER_NODE_MS,
  PORT,
  webPod,
  type Load,
  type Pod,
  type WebAnswer,
  type WorkloadSite,
} from '../operator/workload-site.ts';
import { conditionOf, describeSite, type Resource } from '../operator/workload-suite.ts';
import type { Program } from '../rig/rig.ts';

const DEFAULT = '/api/v1/namespaces/default';
const OWN = `/api/v1/namespaces/${NAMESPACE}`;
const INGRESSES = '/apis/networking.k8s.io/v1/namespaces/default/ingresses';
const GROUPS = '/apis/tailscale.com/v1alpha1/proxygroups';
/** Number of concurrent connections of a load, and the timeout of each connection in milliseconds. */
const AT_A_TIME = 4;
const LIMIT_MS = 1500;
/**
 * Maximum time without a response while an address moves. Connections to the old node fail after their timeout; new
 * connections reach the other node.
 */
const SILENT_MS = 2500;
const OF = (group: string) => ({ 'tailscale.com/proxy-group': group });

describeSite(
  'operator-ingress-groups',
  'groups of ingress nodes',
  ({ start, startClient, api, read, list, until, said }) => {
    let site: WorkloadSite;
    let last: Program | undefined;
    const group = (name: string, spec: object = {}): Promise<unknown> =>
      api('POST', GROUPS, {
        apiVersion: 'tailscale.com/v1alpha1',
        kind: 'ProxyGroup',
        metadata: { name },
        spec: { type: 'ingress', ...spec },
      });
    const service = (name: string, app: string, annotations: object, spec: object = {}): Promise<unknown> =>
      api('POST', `${DEFAULT}/services`, {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name, annotations },
        spec: {
          selector: { app },
          ports: [
            { name: 'http', port: 80, targetPort: PORT },
            { name: 'echo', port: 81, targetPort: PORT, protocol: 'UDP' },
          ],
          ...spec,
        },
      });
    const LOAD_BALANCER = {
      type: 'LoadBalancer',
      loadBalancerClass: 'tailscale',
      allocateLoadBalancerNodePorts: false,
    };
    const ingress = (name: string, app: string, annotations: object): Promise<unknown> =>
      api('POST', INGRESSES, {
        apiVersion: 'networking.k8s.io/v1',
        kind: 'Ingress',
        metadata: { name, annotations },
        spec: {
          ingressClassName: 'tailscale',
          tls: [{ hosts: [name] }],
          defaultBackend: { service: { name: app, port: { name: 'http' } } },
          rules: [
            {
              http: {
                paths: [
                  {
                    path: '/api',
                    pathType: 'Prefix',
                    backend: { service: { name: 'back', port: { number: 80 } } },
                  },
                ],
              },
            },
          ],
        },
      });
    const ipOf = ({ status }: Resource): string | undefined =>
      status?.loadBalancer?.ingress?.find(({ ip }) => ip !== undefined)?.ip;
    async function address(path: string): Promise<string> {
      return until(`${path} to say where it is`, async () => {
        const object = await read(path);
        const ip = ipOf(object);
        if (ip !== undefined) return ip;
        throw new Error(`${JSON.stringify(object.status)} ${await events()}`);
      });
    }
    const invalid = async (name: string, reason: string): Promise<string | undefined> => {
      const object = await said(`${DEFAULT}/services/${name}`, reason, 'TailscaleIngressSvcValid');
      return conditionOf(object, 'TailscaleIngressSvcValid')?.message;
    };
    const configured = (name: string): Promise<string> =>
      until(`${name} everywhere`, async () => {
        const object = await read(`${DEFAULT}/services/${name}`);
        const condition = conditionOf(object, 'TailscaleIngressSvcConfigured');
        const [, count, all] = /^(\d+)\/(\d+) /.exec(condition?.message ?? '') ?? [];
        if (count !== undefined && count === all) return condition?.message;
        throw new Error(JSON.stringify(condition));
      });
    async function events(): Promise<string> {
      return (await list(`${DEFAULT}/events`))
        .map((event) => event as unknown as { reason: string; message: string })
        .map(({ reason, message }) => `${reason}: ${message}`)
        .filter((text) => /Ingress|ProxyGroup|HTTPS/.test(text))
        .join('\n');
    }
    const ask = (ip: string, path = '/', host = '', headers: object = {}): Promise<WebAnswer> =>
      site.http('client', `http://${ip}${path}`, host, headers);
    const answered = (what: string, ip: string, name: string): Promise<WebAnswer> =>
      until(what, async () => {
        const answer = await ask(ip);
        return answer.name === name ? answer : undefined;
      });
    const pods = async (name: string): Promise<readonly Pod[]> =>
      (await list(
        `${OWN}/pods?labelSelector=tailscale.com/parent-resource%3D${name}`,
      )) as unknown as readonly Pod[];
    const nodesOf = async (prefix: string) =>
      (await site.nodes()).filter(({ given_name }) => given_name.startsWith(prefix));

    beforeAll(async () => {
      site = await start(['--ingress-addresses=10.99.0.0/24']);
      for (const name of ['front', 'back']) await api('POST', `${DEFAULT}/pods`, webPod(name, { app: name }));
      for (const name of ['front', 'back']) await service(name, name, {});
      await startClient();
    }, 300_000);

    it(
      'are asked for by members that come first, and say what is missing',
      { timeout: 120_000 },
      async () => {
        await service('shop', 'front', OF('in'), LOAD_BALANCER);
        await ingress('portal', 'front', OF('in'));
        const message = await invalid('shop', 'ProxyGroupNotReady');
        expect(message).toContain('"in" does not exist');
        await until('a word', async () =>
          (await events()).includes(
            'IngressNotServed: tailscale.com/proxy-group: ProxyGroup "in" does not exist',
          )
            ? true
            : undefined,
        );
      },
    );

    it('lead packets of every port to a Service', { timeout: 300_000 }, async () => {
      await group('in');
      const ip = await address(`${DEFAULT}/services/shop`);
      expect(ip).toMatch(/^10\.99\.0\./);
      await answered('an answer', ip, 'front');
      expect(await until('UDP', () => site.udp('client', ip, 81, 'hello'))).toBe('front: hello');
      await configured('shop');
      const { status } = await read(`${GROUPS}/in`);
      expect(status?.devices?.map(({ hostname }) => hostname)).toEqual(['in-0', 'in-1']);
    });

    it('serve an Ingress by path, with the name of who asks', { timeout: 300_000 }, async () => {
      const ip = await address(`${INGRESSES}/portal`);
      expect(ip).toMatch(/^10\.99\.0\./);
      const answer = await answered('an answer', ip, 'front');
      expect(answer.caller).toMatch(/^100\.64\./);
      expect(await ask(ip, '/api/v1')).toMatchObject({ name: 'back', path: '/api/v1' });
      expect(await ask(ip, '/', 'portal')).toMatchObject({ name: 'front' });
      expect(await ask(ip, '/', 'foreign.example.org')).toEqual({ status: 404 });
      const { login } = await ask(ip, '/', '', { 'Tailscale-User-Login': 'mallory@example.com' });
      expect(login ?? '').not.toContain('mallory');
      await said(`${GROUPS}/in`, 'True', 'ProxyGroupReady');
    });

    it('are on every node, and offered by each', async () => {
      const [shop, portal] = await Promise.all([
        address(`${DEFAULT}/services/shop`),
        address(`${INGRESSES}/portal`),
      ]);
      for (const node of await nodesOf('in-')) {
        expect([...(node.available_routes ?? [])].toSorted()).toEqual(
          [`${portal}/32`, `${shop}/32`].toSorted(),
        );
        expect([...(node.approved_routes ?? [])].toSorted()).toEqual(
          [`${portal}/32`, `${shop}/32`].toSorted(),
        );
      }
    });

    it('give one name to one of two', { timeout: 120_000 }, async () => {
      await service('rival', 'back', {
        ...OF('in'),
        'tailscale.com/hostname': 'portal',
        'tailscale.com/expose': 'true',
      });
      const message = await invalid('rival', 'IngressSvcInvalid');
      expect(message).toContain(
        'tailscale.com/hostname: the tailnet name portal belongs to Ingress default/portal',
      );
      await api('DELETE', `${DEFAULT}/services/rival`);
    });

    it('are rolled out while every new connection finds one that works', { timeout: 500_000 }, async () => {
      const [shop, portal] = await Promise.all([
        address(`${DEFAULT}/services/shop`),
        address(`${INGRESSES}/portal`),
      ]);
      const before = new Map((await pods('in')).map(({ metadata }) => [metadata.name, metadata.uid]));
      const loads = [
        site.load('client', `http://${shop}/`, AT_A_TIME, 2000, LIMIT_MS),
        site.load('client', `http://${portal}/`, AT_A_TIME, 2000, LIMIT_MS),
      ];
      let results: readonly Awaited<ReturnType<Load['end']>>[] = [];
      try {
        await site.restart('in');
        await site.rig.until(
          'two other pods',
          async () => {
            const now = await pods('in');
            const fresh = now.filter(({ metadata }) => before.get(metadata.name) !== metadata.uid);
            return now.length === 2 && fresh.length === 2 ? true : undefined;
          },
          { timeoutMs: 300_000 },
        );
        await said(`${GROUPS}/in`, 'True', 'ProxyGroupReady');
      } finally {
        results = await Promise.all(loads.map((load) => load.end()));
      }
      for (const [index, { meanwhile, done, failed, silentMs, errors }] of results.entries()) {
        const what = index === 0 ? 'Service' : 'Ingress';
        process.stderr.write(
          `operator-ingress-groups: ${what}: ${meanwhile} connections during the roll-out, ${done} in all, ` +
            `${failed} failed, at most ${silentMs} ms without an answer ${JSON.stringify(errors)}\n`,
        );
      }
      for (const { failed, silentMs } of results) {
        // The address moves to another node twice, which closes open connections.
        expect(failed).toBeLessThanOrEqual(2 * AT_A_TIME);
        expect(silentMs).toBeLessThan(SILENT_MS);
      }
    });

    it(
      'are served by another node when the one that is led to is killed, or lost',
      { timeout: 400_000 },
      async () => {
        const shop = await address(`${DEFAULT}/services/shop`);
        const primary = (): Promise<string> =>
          until(
            'a node that is led to',
            async () =>
              (await nodesOf('in-')).find(({ subnet_routes: routes }) => routes?.includes(`${shop}/32`))
                ?.given_name,
          );
        for (const [end, limitMs] of [
          ['killed', OTHER_NODE_MS.killed],
          ['lost', OTHER_NODE_MS.lost],
        ] as const) {
          const first = await primary();
          const load = site.load('client', `http://${shop}/`, AT_A_TIME, 2000, LIMIT_MS);
          // Confirms that the load can get responses before the node fails.
          await ask(shop);
          if (end === 'killed') site.kill(NAMESPACE, first);
          else await site.cut(NAMESPACE, first);
          await answered('an answer again', shop, 'front');
          const { done, failed, silentMs } = await load.end();
          process.stderr.write(
            `operator-ingress-groups: a node ${end}: ${done} connections, ${failed} failed, at most ${silentMs} ` +
              'ms without an answer\n',
          );
          expect(silentMs).toBeLessThan(limitMs);
          if (end === 'lost') {
            expect(await primary()).not.toBe(first);
            await api('DELETE', `${OWN}/pods/${first}?gracePeriodSeconds=0`);
          }
          await configured('shop');
          await said(`${GROUPS}/in`, 'True', 'ProxyGroupReady');
        }
      },
    );

    it('let members go to other groups, to nodes of their own, and away', { timeout: 500_000 }, async () => {
      await group('more', { replicas: 1, hostnamePrefix: 'extra' });
      const before = await address(`${DEFAULT}/services/shop`);
      await api('PATCH', `${DEFAULT}/services/shop`, { metadata: { annotations: OF('more') } });
      const ip = await until('another address', async () => {
        const now = ipOf(await read(`${DEFAULT}/services/shop`));
        return now !== undefined &&
          (await nodesOf('extra-')).some((node) => node.available_routes?.includes(`${now}/32`))
          ? now
          : undefined;
      });
      await answered('an answer', ip, 'front');
      await until('the old group to give it up', async () =>
        (await nodesOf('in-')).every((node) => node.available_routes?.includes(`${before}/32`) !== true)
          ? true
          : undefined,
      );
      await api('PATCH', `${DEFAULT}/services/shop`, {
        metadata: { annotations: { 'tailscale.com/proxy-group': null } },
      });
      const alone = await until('a node of its own', async () => {
        const entries = (await read(`${DEFAULT}/services/shop`)).status?.loadBalancer?.ingress ?? [];
        return entries.find(({ ip: one }) => one?.startsWith('100.') === true)?.ip;
      });
      await answered('an answer', alone, 'front');
      const { metadata, status } = await read(`${DEFAULT}/services/shop`);
      expect(metadata.finalizers?.filter((one) => one.startsWith('tailscale.com/'))).toEqual([
        'tailscale.com/finalizer',
      ]);
      expect(status?.conditions?.map(({ type }) => type)).toEqual(['TailscaleProxyReady']);
      await api('DELETE', `${DEFAULT}/services/shop`);
      await until('it to go', async () =>
        (await list(`${DEFAULT}/services`)).some(({ metadata: one }) => one.name === 'shop')
          ? undefined
          : true,
      );
      await until('its node to go', async () =>
        (await nodesOf('default-shop')).length === 0 ? true : undefined,
      );
    });

    it('come up whole when the operator is killed again and again', { timeout: 400_000 }, async () => {
      site.operator.signal('SIGKILL');
      await service('shop', 'back', OF('in'), LOAD_BALANCER);
      for (let life = 0; life < 6; life += 1) {
        const operator = site.launch(`operator-${life}`);
        await new Promise((done) => setTimeout(done, 900 + 150 * life));
        operator.signal('SIGKILL');
      }
      last = site.launch('operator-last');
      await configured('shop');
      const ip = await address(`${DEFAULT}/services/shop`);
      expect(await answered('an answer', ip, 'back')).toMatchObject({ name: 'back' });
    });

    it('go with all that they gave, and leave no node', { timeout: 400_000 }, async () => {
      for (const name of ['in', 'more']) await api('DELETE', `${GROUPS}/${name}`);
      await site.rig.until(
        'nothing of them',
        async () => {
          const nodes = [...(await nodesOf('in-')), ...(await nodesOf('extra-'))].map(
            ({ given_name }) => given_name,
          );
          const groups = (await list(GROUPS)).map(({ metadata }) => metadata.name);
          const left = (await list(`${OWN}/configmaps`))
            .map(({ metadata }) => metadata.name)
            .filter((name) => name.endsWith('-ingress-config'));
          const marked = [...(await list(`${DEFAULT}/services`)), ...(await list(INGRESSES))]
            .filter(({ metadata }) => metadata.finalizers?.some((one) => one.includes('-pg-')) === true)
            .map(({ metadata }) => metadata.name);
          if (nodes.length + groups.length + left.length + marked.length === 0) return true;
          throw new Error(JSON.stringify({ nodes, groups, left, marked }));
        },
        { timeoutMs: 300_000 },
      );
      await invalid('shop', 'ProxyGroupNotReady');
      expect(ipOf(await read(`${INGRESSES}/portal`))).toBeUndefined();
    });

    it('are removed by an operator that is uninstalled', { timeout: 400_000 }, async () => {
      await group('in', { replicas: 1 });
      await configured('shop');
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
      expect(await nodesOf('in-')).toEqual([]);
      for (const kind of ['secrets', 'pods', 'serviceaccounts', 'configmaps']) {
        const left = await list(`${OWN}/${kind}?labelSelector=tailscale.com/managed%3Dtrue`);
        expect(
          left.map(({ metadata }) => metadata.name),
          kind,
        ).toEqual([]);
      }
      for (const path of [`${GROUPS}/in`, `${DEFAULT}/services/shop`, `${INGRESSES}/portal`]) {
        const { metadata, status } = await read(path);
        expect(metadata.finalizers?.filter((one) => one.startsWith('tailscale.com/')) ?? [], path).toEqual(
          [],
        );
        expect(status?.conditions ?? [], path).toEqual([]);
        expect(status?.loadBalancer?.ingress ?? [], path).toEqual([]);
      }
    });
  },
);
