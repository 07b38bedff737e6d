/**
 * A DNSConfig on real peers: the nameserver runs in pods, and other pods query it through the address of its Service.
 */
import { createServer } from 'node:http';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { create, manifests } from '../operator/installation.ts';
import { DOMAIN, NAMESPACE, webPod, PORT, type WorkloadSite } from '../operator/workload-site.ts';
import { conditionOf, describeSite, type Resource } from '../operator/workload-suite.ts';

const DEFAULT = '/api/v1/namespaces/default';
const TAILSCALE = '/apis/tailscale.com/v1alpha1';
const COREDNS = '/api/v1/namespaces/kube-system/configmaps';
const COREFILE = '.:53 {\n    errors\n}\n';
const DATABASE_PORT = 5432;

describeSite('operator-names', 'names in the cluster', ({ start, api, list, until, said }) => {
  let site: WorkloadSite;
  let server: string;
  const database = createServer((_request, response) =>
    response.end(JSON.stringify({ name: 'db', from: '' })),
  );
  const ask = (type: 'A' | 'AAAA', name: string): Promise<unknown> =>
    site.resolve('asker', server, type, name);
  /**
   * Repeats the query until the nameserver returns addresses, because a kubelet delivers a changed ConfigMap after a
   * delay.
   */
  const addresses = (name: string): Promise<readonly string[]> =>
    until(`addresses of ${name}`, async () => {
      const answer = await ask('A', name);
      if (Array.isArray(answer)) return answer as string[];
      throw new Error(String(answer));
    });
  function dnsConfig(name: string, body: object = {}): object {
    return {
      apiVersion: 'tailscale.com/v1alpha1',
      kind: 'DNSConfig',
      metadata: { name },
      spec: { nameserver: {} },
      ...body,
    };
  }
  const dns = (name: string, reason: string): Promise<Resource> =>
    said(`${TAILSCALE}/dnsconfigs/${name}`, reason);
  async function service(
    name: string,
    spec: object,
    annotations: Readonly<Record<string, string>>,
  ): Promise<void> {
    const metadata = { name, annotations };
    await api('POST', `${DEFAULT}/services`, { apiVersion: 'v1', kind: 'Service', metadata, spec });
  }
  const corefile = async (): Promise<string> =>
    ((await api('GET', `${COREDNS}/coredns`)) as { data: { Corefile: string } }).data.Corefile;

  beforeAll(async () => {
    site = await start();
    await new Promise<void>((done) => database.listen(DATABASE_PORT, '127.0.0.1', done));
    await api('POST', `${DEFAULT}/pods`, webPod('web', { app: 'web' }));
    await api('POST', `${DEFAULT}/pods`, webPod('asker', { app: 'asker' }));
    site.launch('operator-names', [`--tailnet-domain=${DOMAIN}`]);
    site.operator.signal('SIGTERM');
    await api('POST', `${TAILSCALE}/dnsconfigs`, dnsConfig('dns'));
    const { status } = await dns('dns', 'NameserverCreated');
    server = (status?.['nameserver'] as { ip: string } | undefined)?.ip ?? '';
    // The nameserver's pod is ready shortly before the node forwards packets for its Service.
    await until('the Service to be led to', async () => {
      const answer = await ask('A', DOMAIN);
      if (answer === 'ETIMEOUT') throw new Error(answer);
      return true;
    });
  }, 240_000);

  afterAll(() => void database.close());

  it('are unknown as they should be, before there is a Service', async () => {
    expect(server).toMatch(/^10\.96\./);
    expect(await ask('A', `db.${DOMAIN}`)).toBe('ENOTFOUND');
    expect(await ask('A', DOMAIN)).toBe('ENODATA');
    expect(await ask('A', 'example.com')).toBe('EREFUSED');
  });

  it('lead a pod to a node of the tailnet, whatever their case', { timeout: 240_000 }, async () => {
    await service(
      'db',
      { type: 'ExternalName', externalName: 'unused' },
      { 'tailscale.com/tailnet-fqdn': `db.${DOMAIN}` },
    );
    const [address = ''] = await addresses(`db.${DOMAIN}`);
    expect(await ask('A', `DB.${DOMAIN.toUpperCase()}`)).toEqual([address]);
    const reached = await until('the node', () => site.http('asker', `http://${address}:${DATABASE_PORT}/`));
    expect(reached).toMatchObject({ name: 'db' });
  });

  it('lead a pod straight to a Service that the tailnet reaches', { timeout: 240_000 }, async () => {
    await service(
      'web',
      { selector: { app: 'web' }, ports: [{ port: 80, targetPort: PORT }] },
      { 'tailscale.com/expose': 'true' },
    );
    const [address = ''] = await addresses(`default-web.${DOMAIN}`);
    expect(address).toMatch(/^10\.96\./);
    expect(await until('the pod', () => site.http('asker', `http://${address}/`))).toMatchObject({
      name: 'web',
    });
  });

  it('leave nothing behind when their Service goes', { timeout: 240_000 }, async () => {
    await api('DELETE', `${DEFAULT}/services/db`);
    await until('db to be unknown', async () =>
      (await ask('A', `db.${DOMAIN}`)) === 'ENOTFOUND' ? true : undefined,
    );
    expect(await addresses(`default-web.${DOMAIN}`)).toHaveLength(1);
  });

  it('are one nameserver’s: a second DNSConfig is refused', async () => {
    await api('POST', `${TAILSCALE}/dnsconfigs`, dnsConfig('second'));
    const { status } = await dns('second', 'MultipleDNSConfigsPresent');
    expect(status?.['nameserver']).toBeUndefined();
    await dns('dns', 'NameserverCreated');
    await api('DELETE', `${TAILSCALE}/dnsconfigs/second`);
  });

  it(
    'are written to the ConfigMap of CoreDNS on request, with a right for only this ConfigMap, and removed',
    { timeout: 240_000 },
    async () => {
      await api('POST', COREDNS, {
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { name: 'coredns' },
        data: { Corefile: COREFILE },
      });
      const annotate = (value: string | null): Promise<unknown> =>
        api('PATCH', `${TAILSCALE}/dnsconfigs/dns`, {
          metadata: { annotations: { 'tailcast.dev/coredns': value } },
        });
      await annotate('kube-system/coredns');
      const refused = await dns('dns', 'NameserverCreationFailed');
      expect(conditionOf(refused)?.message).toContain('forbidden');
      for (const manifest of manifests('deploy/rbac/operator-coredns.yaml'))
        await create(site.cluster, manifest);
      await until('the Corefile', async () =>
        (await corefile()).includes(`forward . ${server}`) ? true : undefined,
      );
      await annotate(null);
      await until('the Corefile as it was', async () => ((await corefile()) === COREFILE ? true : undefined));
      await dns('dns', 'NameserverCreated');
    },
  );

  it('go with the DNSConfig, and nothing of the nameserver is left', { timeout: 240_000 }, async () => {
    await api('DELETE', `${TAILSCALE}/dnsconfigs/dns`);
    const empty = await until('nothing of it', async () => {
      const paths = [
        `/api/v1/namespaces/${NAMESPACE}/services`,
        `/api/v1/namespaces/${NAMESPACE}/pods`,
        `/apis/apps/v1/namespaces/${NAMESPACE}/deployments`,
      ];
      const left = (await Promise.all(paths.map(list)))
        .flatMap((objects) => objects.map(({ metadata }) => metadata.name))
        .filter((name) => name.startsWith('nameserver'));
      if (left.length > 0) throw new Error(left.join());
      return true;
    });
    expect(empty).toBe(true);
  });
});
