/** Services in clusters that admit no privileged pod: programs without capabilities forward the connections. */
import { beforeAll, expect, it } from 'vitest';
import { objectNameOf } from '../../../src/operator/workload/workload.ts';
import { UNPRIVILEGED } from '../../../src/operator/workload/unprivileged.ts';
import {
  DOMAIN,
  NAMESPACE,
  PORT,
  tailnetWebPod,
  webPod,
  type WebAnswer,
  type WorkloadSite,
} from '../operator/workload-site.ts';
import { conditionOf, describeSite, type Condition } from '../operator/workload-suite.ts';

const DEFAULT = '/api/v1/namespaces/default';
const CLASSES = '/apis/tailscale.com/v1alpha1/proxyclasses';
const CLASS = { 'tailscale.com/proxy-class': 'powerless' };
const NOTHING = '0'.repeat(16);
const BYTES = 64 * 1024 * 1024;

describeSite(
  'operator-unprivileged',
  'proxies without privileges',
  ({ start, startClient, api, until, said }) => {
    let site: WorkloadSite;
    const podOf = (name: string): string => `${objectNameOf({ type: 'svc', namespace: 'default', name })}-0`;

    async function service(name: string, annotations: object, spec: object): Promise<void> {
      await api('POST', `${DEFAULT}/services`, {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name, annotations },
        spec,
      });
    }
    const condition = async (name: string, reason: string): Promise<Condition> =>
      conditionOf(await said(`${DEFAULT}/services/${name}`, reason))!;
    const addressOf = (name: string): Promise<string> =>
      until(`node ${name}`, async () => (await site.node(name))?.ip_addresses[0]);
    const poll = (what: string, url: string, pod: string): Promise<WebAnswer> =>
      until(what, () => site.http(pod, url));
    const uidOf = async (name: string): Promise<string> =>
      (await site.pod(NAMESPACE, podOf(name))).metadata.uid;
    const exposed = { 'tailscale.com/expose': 'true' };
    const tcp = (port: number): object => ({ name: `tcp-${port}`, port, targetPort: PORT });
    const inward = {
      selector: { app: 'web' },
      ports: [tcp(80), { ...tcp(80), name: 'echo', protocol: 'UDP' }],
    };
    const outward = (ports: readonly number[]): object => ({
      type: 'ExternalName',
      externalName: 'unused',
      ports: ports.map((port) => ({ name: `tcp-${port}`, port })),
    });
    const outside = `outside.${DOMAIN}`;

    /** Returns the URL of the pod of an egress Service, for requests of other pods. */
    async function egressUrl(name: string): Promise<string> {
      const { status } = await site.pod(NAMESPACE, podOf(name));
      return `http://${status.podIP}:${PORT}/`;
    }

    beforeAll(async () => {
      site = await start(['--recorder-image=tailcast/unprivileged']);
      const key = await site.tailnet.authKey({ tags: ['tag:client'] });
      await api('POST', `${DEFAULT}/pods`, webPod('web', { app: 'web' }));
      await startClient();
      await api('POST', `${DEFAULT}/pods`, tailnetWebPod('outside', key, site.tailnet.controlUrl));
      await api('POST', CLASSES, {
        apiVersion: 'tailscale.com/v1alpha1',
        kind: 'ProxyClass',
        metadata: { name: 'powerless', annotations: { [UNPRIVILEGED]: 'true' } },
        spec: { statefulSet: { pod: { tailscaleContainer: { image: 'tailscale/unprivileged' } } } },
      });
      await addressOf('outside');
      await site.banish('client');
    }, 240_000);

    it('carry connections from the tailnet, and say what they do not', { timeout: 180_000 }, async () => {
      await service('plain', { ...exposed, ...CLASS }, inward);
      const { status, message } = await condition('plain', 'ProxyPartial');
      expect(status).toBe('True');
      expect(message).toContain('not served: UDP 80 (echo)');
      const address = await addressOf('default-plain');
      expect(await poll('the Service', `http://${address}/`, 'client')).toMatchObject({ name: 'web' });
    });

    it('follow a port that is added, without a restart', { timeout: 180_000 }, async () => {
      const before = await uidOf('plain');
      await api('PATCH', `${DEFAULT}/services/plain`, { spec: { ports: [tcp(80), tcp(81)] } });
      const address = await addressOf('default-plain');
      expect(await poll('the new port', `http://${address}:81/`, 'client')).toMatchObject({ name: 'web' });
      await condition('plain', 'ProxyCreated');
      expect(await uidOf('plain')).toBe(before);
    });

    it('carry connections into the tailnet, by name', { timeout: 180_000 }, async () => {
      await service('out', { 'tailscale.com/tailnet-fqdn': outside, ...CLASS }, outward([PORT]));
      await condition('out', 'ProxyCreated');
      const answer = await poll('the node', await egressUrl('out'), 'web');
      expect(answer).toMatchObject({ name: 'outside' });
      expect(answer.from).toContain(await addressOf('default-out'));
    });

    it('have programs without any capability, in pods that ask for none', async () => {
      for (const name of ['plain', 'out']) {
        const programs = site
          .powers(NAMESPACE, podOf(name))
          .filter(({ name: program }) => program !== 'sleep');
        expect(programs.map(({ name: program }) => program)).toContain('tailscaled');
        expect(programs.filter(({ effective }) => effective !== NOTHING)).toEqual([]);
        const { spec } = await site.pod(NAMESPACE, podOf(name));
        expect(spec['initContainers']).toBeUndefined();
        for (const { securityContext } of spec['containers'] as { securityContext: object }[]) {
          expect(securityContext).toMatchObject({
            runAsNonRoot: true,
            allowPrivilegeEscalation: false,
            readOnlyRootFilesystem: true,
            capabilities: { drop: ['ALL'] },
          });
        }
      }
    });

    it('refuse what has no TCP port', { timeout: 120_000 }, async () => {
      await service(
        'voice',
        { 'tailscale.com/tailnet-fqdn': outside, ...CLASS },
        {
          type: 'ExternalName',
          externalName: 'unused',
          ports: [{ name: 'rtp', port: 5004, protocol: 'UDP' }],
        },
      );
      expect((await condition('voice', 'ProxyInvalid')).message).toContain('there is only UDP 5004 (rtp)');
    });

    it(
      'carry fewer bytes than the kernel does: how many fewer is printed',
      { timeout: 300_000 },
      async () => {
        await service('fast', exposed, inward);
        await service('fast-out', { 'tailscale.com/tailnet-fqdn': outside }, outward([PORT]));
        await condition('fast', 'ProxyCreated');
        await condition('fast-out', 'ProxyCreated');
        const best = async (pod: string, url: string): Promise<number> => {
          await poll('the way', url, pod);
          const rates: number[] = [];
          for (let run = 0; run < 3; run += 1) rates.push(await site.fetch(pod, url, BYTES));
          return Math.max(...rates);
        };
        const ways = {
          in: [
            await best('client', `http://${await addressOf('default-fast')}/`),
            await best('client', `http://${await addressOf('default-plain')}/`),
          ],
          out: [await best('web', await egressUrl('fast-out')), await best('web', await egressUrl('out'))],
        };
        for (const [way, [kernel = 0, forwarded = 0]] of Object.entries(ways)) {
          const mib = (rate: number): string => (rate / 1024 ** 2).toFixed(0);
          process.stdout.write(
            `operator-unprivileged: ${way}: kernel ${mib(kernel)} MiB/s, forwarded ${mib(forwarded)} MiB/s, ` +
              `ratio ${(forwarded / kernel).toFixed(2)}\n`,
          );
          expect(forwarded / kernel).toBeGreaterThan(0.05);
        }
      },
    );

    it('go, and nothing is left', { timeout: 180_000 }, async () => {
      for (const name of ['plain', 'out', 'voice', 'fast', 'fast-out'])
        await api('DELETE', `${DEFAULT}/services/${name}`);
      const gone = await until('no nodes of Services', async () => {
        const left = (await site.nodes()).filter(({ given_name }) => given_name.startsWith('default-'));
        if (left.length === 0) return true;
        throw new Error(left.map(({ given_name }) => given_name).join());
      });
      expect(gone).toBe(true);
    });
  },
);
