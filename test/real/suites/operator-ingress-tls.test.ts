/** Ingresses with their own certificates and real peers: tailscaled forwards connections to `tailcast ingress`. */
import { connect as connectTls } from 'node:tls';
import { beforeAll, expect, it } from 'vitest';
import { objectNameOf } from '../../../src/operator/workload/workload.ts';
import { createTestAuthority, type TestAuthority } from '../../support/issued-certificates.ts';
import { create, manifests } from '../operator/installation.ts';
import {
  DOMAIN,
  NAMESPACE,
  PORT,
  webPod,
  type TlsAnswer,
  type WebAnswer,
  type WorkloadSite,
} from '../operator/workload-site.ts';
import { describeSite } from '../operator/workload-suite.ts';

const DEFAULT = '/api/v1/namespaces/default';
const INGRESSES = '/apis/networking.k8s.io/v1/namespaces/default/ingresses';
const OWN = 'shop.own.example';
const BAD = 'bad.own.example';

describeSite(
  'operator-ingress-tls',
  'Ingresses with certificates of their own',
  ({ start, startClient, api, read, list, until }) => {
    let site: WorkloadSite;
    let authority: TestAuthority;
    let address: string;
    const ask = (
      how: 'https' | 'ws' | 'grpc',
      path: string,
      headers: Readonly<Record<string, string>> = {},
      host = OWN,
    ): Promise<TlsAnswer> => site.tls('client', how, { address, host, path, ca: authority.caPem, headers });
    const facts = ({ text }: TlsAnswer): WebAnswer => JSON.parse(text) as WebAnswer;
    async function tlsData(): Promise<object> {
      const { certificatePem, keyPem } = await authority.issue([OWN]);
      const encoded = (text: string): string => Buffer.from(text).toString('base64');
      return { 'tls.crt': encoded(certificatePem), 'tls.key': encoded(keyPem) };
    }
    async function events(): Promise<string> {
      const items = (await list(`${DEFAULT}/events`)) as unknown as { reason: string; message: string }[];
      return items.map(({ reason, message }) => `${reason}: ${message}`).join('\n');
    }

    beforeAll(async () => {
      authority = await createTestAuthority();
      site = await start();
      for (const manifest of manifests('deploy/rbac/ingress-secrets.yaml'))
        await create(site.cluster, manifest);
      await api('POST', `${DEFAULT}/pods`, webPod('web', { app: 'web' }));
      await api('POST', `${DEFAULT}/services`, {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name: 'web' },
        spec: {
          selector: { app: 'web' },
          ports: [
            { name: 'web', port: 80, targetPort: PORT },
            { name: 'rpc', port: 81, targetPort: PORT + 1, appProtocol: 'kubernetes.io/h2c' },
          ],
        },
      });
      await api('POST', `${DEFAULT}/secrets`, {
        apiVersion: 'v1',
        kind: 'Secret',
        metadata: { name: 'shop-tls' },
        type: 'kubernetes.io/tls',
        data: await tlsData(),
      });
      await startClient();
      const to = (name: string): object => ({ service: { name: 'web', port: { name } } });
      await api('POST', INGRESSES, {
        apiVersion: 'networking.k8s.io/v1',
        kind: 'Ingress',
        metadata: { name: 'shop', annotations: { 'tailscale.com/http-redirect': 'true' } },
        spec: {
          ingressClassName: 'tailscale',
          defaultBackend: to('web'),
          tls: [
            { hosts: [OWN], secretName: 'shop-tls' },
            { hosts: [BAD], secretName: 'missing' },
          ],
          rules: [
            {
              host: OWN,
              http: { paths: [{ path: '/rpc.Echo', pathType: 'Prefix', backend: to('rpc') }] },
            },
          ],
        },
      });
      [address = ''] = (await until('its node', () => site.node('shop'))).ip_addresses;
    }, 300_000);

    it('are served under their own name, and say the ports', { timeout: 180_000 }, async () => {
      const answer = await until('an answer', async () => {
        const said = await ask('https', '/a?b=1');
        return said.status === 200 ? said : undefined;
      });
      expect(facts(answer)).toMatchObject({ name: 'web', path: '/a?b=1', host: OWN });
      const [client = ''] = (await site.node('client'))?.ip_addresses ?? [];
      expect(facts(answer).caller).toBe(client);
      const shown = await until('its status', async () => {
        const { status } = await read(`${INGRESSES}/shop`);
        return status?.loadBalancer?.ingress?.[0];
      });
      const ports = [443, 80].map((port) => ({ port, protocol: 'TCP' }));
      expect(shown).toEqual({ hostname: `shop.${DOMAIN}`, ports });
    });

    it('tell pods nothing about callers that a caller made up', async () => {
      const forged = { 'Tailscale-User-Login': 'mallory@example.com', 'X-Forwarded-For': '10.0.0.1' };
      for (const how of ['https', 'ws'] as const) {
        const { login, caller } = facts(await ask(how, '/', forged));
        expect(login ?? '').not.toContain('mallory');
        expect(caller).not.toContain('10.0.0.1');
      }
    });

    it('tell pods which person calls', async () => {
      const socket = await site.tailnet.node('db').connect(address, 443);
      const secure = connectTls({ socket, servername: OWN, ca: authority.caPem });
      secure.write(`GET /me HTTP/1.1\r\nHost: ${OWN}\r\nConnection: close\r\n\r\n`);
      const text = (await secure.setEncoding('utf8').toArray()).join('');
      expect(text).toMatch(/^HTTP\/1\.1 200 /);
      expect(text).toContain('"login":"alice@example.com"');
    });

    it('take WebSockets and gRPC along', async () => {
      expect(facts(await ask('ws', '/live'))).toMatchObject({ name: 'web', path: '/live', host: OWN });
      expect(await ask('grpc', '/rpc.Echo/Say')).toEqual({ text: 'question', grpcStatus: '0' });
    });

    it('lead HTTP to HTTPS', async () => {
      expect(await site.http('client', `http://${address}/x`, OWN)).toEqual({ status: 301 });
    });

    it('leave a host alone whose Secret is missing, and say so', async () => {
      await expect(ask('https', '/', {}, BAD)).rejects.toThrow(
        /before secure TLS connection was established|ECONNRESET|alert/,
      );
      expect(await events()).toContain(
        `InvalidTLSSecret: spec.tls[1].secretName: Secret "missing" does not exist`,
      );
    });

    it('serve a new certificate of the Secret without a restart', { timeout: 240_000 }, async () => {
      const name = `${objectNameOf({ type: 'ingress', namespace: 'default', name: 'shop' })}-0`;
      const { uid } = (await site.pod(NAMESPACE, name)).metadata;
      const before = await ask('https', '/');
      await api('PATCH', `${DEFAULT}/secrets/shop-tls`, { data: await tlsData() });
      await until('the new one', async () =>
        (await ask('https', '/')).serial === before.serial ? undefined : true,
      );
      expect((await site.pod(NAMESPACE, name)).metadata.uid).toBe(uid);
    });
  },
);
