/** A dry run of the operator against a cluster: the settings select the resources that the operator manages. */
import { Writable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { runOperator } from '../../src/compose/operator.ts';
import { OPERATOR_SETTINGS } from '../../src/config/operator.ts';
import { startApiServerDouble, type ApiServerDouble } from '../operator/api-server-double.ts';
import { proxyGroupObject } from '../operator/proxy-group/proxy-groups.ts';
import { EXPOSED, PATH, service } from '../operator/service/services.ts';
import { settingsOf } from '../support/settings.ts';

const OURS = '/apis/tailscale.com/v1alpha1';

let api: ApiServerDouble;
beforeEach(async () => {
  api = await startApiServerDouble();
  api.put(`${OURS}/proxygroups/prod`, proxyGroupObject());
  for (const [path, kind] of [
    ['recorders/main', 'Recorder'],
    ['connectors/edge', 'Connector'],
    ['proxyclasses/small', 'ProxyClass'],
  ] as const) {
    const name = path.split('/')[1];
    const metadata = { name, uid: `uid-${name}`, generation: 1 };
    api.put(`${OURS}/${path}`, { apiVersion: 'tailscale.com/v1alpha1', kind, metadata, spec: {} });
  }
  api.put(PATH, service({}, EXPOSED));
  const backend = { service: { name: 'web', port: { number: 80 } } };
  api.put('/apis/networking.k8s.io/v1/namespaces/prod/ingresses/shop', {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'Ingress',
    metadata: { name: 'shop', namespace: 'prod', uid: 'uid-shop' },
    spec: { ingressClassName: 'tailscale', defaultBackend: backend, tls: [{ hosts: ['shop'] }] },
  });
  const gateways = 'gateway.networking.k8s.io/v1';
  api.put(`/apis/${gateways}/gatewayclasses/tailscale`, {
    apiVersion: gateways,
    kind: 'GatewayClass',
    metadata: { name: 'tailscale', uid: 'uid-class' },
    spec: { controllerName: 'tailcast.dev/gateway' },
  });
  api.put(`/apis/${gateways}/namespaces/prod/gateways/edge`, {
    apiVersion: gateways,
    kind: 'Gateway',
    metadata: { name: 'edge', namespace: 'prod', uid: 'uid-edge' },
    spec: { gatewayClassName: 'tailscale', listeners: [{ name: 'web', protocol: 'HTTP', port: 80 }] },
  });
  api.put(`/apis/${gateways}/namespaces/prod/httproutes/web`, {
    apiVersion: gateways,
    kind: 'HTTPRoute',
    metadata: { name: 'web', namespace: 'prod', uid: 'uid-web' },
    spec: { parentRefs: [{ name: 'edge' }], rules: [{ backendRefs: [{ name: 'web', port: 80 }] }] },
  });
});
afterEach(() => api.close());

/** Returns the headings that a dry run prints: kind and name of each object. */
async function seenTo(flags: Readonly<Record<string, unknown>>): Promise<readonly string[]> {
  return (await dryRun(flags)).match(/^# [A-Z]\w+ \S+$/gm) ?? [];
}

async function dryRun(flags: Readonly<Record<string, unknown>>): Promise<string> {
  const config = settingsOf(OPERATOR_SETTINGS, {
    dryRun: true,
    logLevel: 'silent',
    kubeconfig: api.kubeconfig,
    namespace: 'tailcast',
    controlUrl: 'http://127.0.0.1:1',
    controllers: 'proxy-groups,services,ingresses,connectors',
    ...flags,
  });
  let printed = '';
  const stdout = new Writable({
    write(chunk: Buffer, _encoding, done) {
      printed += chunk.toString();
      done();
    },
  });
  const signal = new AbortController().signal;
  await runOperator(config, { stdout, stderr: stdout, environment: new Map(), signal }, '0.0.0');
  return printed;
}

describe('an operator', () => {
  it('sees to every kind', async () => {
    expect(await seenTo({})).toEqual([
      '# Recorder main',
      '# ProxyClass small',
      '# Connector edge',
      '# Ingress prod/shop',
      '# ProxyGroup prod',
      '# Service prod/web',
    ]);
  });

  it('sees to Gateways where it is told to, and says what it would say in routes', async () => {
    const printed = await dryRun({ controllers: 'services,gateways' });
    expect(printed.match(/^# Gateway\w* \S+$/gm)).toEqual([
      '# GatewayClass tailscale',
      '# Gateway prod/edge',
    ]);
    expect(printed).not.toContain('cannot be deployed');
    expect(printed).toContain(
      '# Accepted=True: Accepted; ResolvedRefs=False: spec.rules[0].backendRefs[0]: Service "web" has no port 80',
    );
  });

  it.each([
    ['proxy-groups', ['# ProxyGroup prod']],
    ['services', ['# Service prod/web']],
    ['connectors', ['# Connector edge']],
    ['ingresses', ['# Ingress prod/shop']],
  ])('leaves alone what it is not to see to: %s', async (controller, left) => {
    const all = await seenTo({});
    const controllers = ['proxy-groups', 'services', 'ingresses', 'connectors'].filter(
      (name) => name !== controller,
    );
    expect(await seenTo({ controllers: controllers.join(',') })).toEqual(
      all.filter((heading) => !left.includes(heading)),
    );
  });
});
