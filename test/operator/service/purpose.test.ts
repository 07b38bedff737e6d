import { describe, expect, it } from 'vitest';
import { isOfInterest, projectService, proxyClassNameOf } from '../../../src/operator/service/predicates.ts';
import { purposeOf } from '../../../src/operator/service/classify.ts';
import { parseService } from '../../../src/operator/service/resource.ts';
import { parseObject } from '../../../src/operator/kube-object.ts';
import { EXPOSED, service } from './services.ts';

const purpose = (spec: object, annotations: Record<string, string> = {}, servesUnclassed = false) =>
  purposeOf(parseService(service(spec, annotations)), servesUnclassed);
const LOAD_BALANCER = { type: 'LoadBalancer', loadBalancerClass: 'tailscale' };
const ingress = (target: string) => ({ kind: 'proxy', duty: { kind: 'ingress', target } });

describe('what a Service asks for', () => {
  it.each<[string, object, Record<string, string>, object]>([
    ['nothing', {}, {}, { kind: 'none' }],
    ['to be exposed', {}, EXPOSED, ingress('10.96.0.10')],
    ['nothing, saying so', {}, { 'tailscale.com/expose': 'false' }, { kind: 'none' }],
    ['a load balancer', LOAD_BALANCER, {}, ingress('10.96.0.10')],
    [
      'somebody else’s load balancer',
      { type: 'LoadBalancer', loadBalancerClass: 'cloud' },
      {},
      { kind: 'none' },
    ],
    ['a load balancer of no class', { type: 'LoadBalancer' }, {}, { kind: 'none' }],
    [
      'an outer name to be exposed',
      { type: 'ExternalName', externalName: 'db.example.com', clusterIP: '' },
      EXPOSED,
      { kind: 'proxy', duty: { kind: 'ingress-name', target: 'db.example.com' } },
    ],
    [
      'to lead to a name',
      { type: 'ExternalName', externalName: 'unused', clusterIP: '' },
      { 'tailscale.com/tailnet-fqdn': 'db.lab.ts.net' },
      { kind: 'proxy', duty: { kind: 'egress-name', target: 'db.lab.ts.net.' } },
    ],
    [
      'to lead to a name of any domain, dot and all',
      {},
      { 'tailscale.com/tailnet-fqdn': 'db.net.example.org.' },
      { kind: 'proxy', duty: { kind: 'egress-name', target: 'db.net.example.org.' } },
    ],
    [
      'to lead to an address',
      {},
      { 'tailscale.com/tailnet-ip': '100.64.0.7' },
      { kind: 'proxy', duty: { kind: 'egress-address', target: '100.64.0.7' } },
    ],
    [
      'to lead to a name of 253 characters',
      {},
      { 'tailscale.com/tailnet-fqdn': `${'a.'.repeat(126)}a.` },
      { kind: 'proxy', duty: { kind: 'egress-name', target: `${'a.'.repeat(126)}a.` } },
    ],
    [
      'to lead to an address, in the old spelling',
      {},
      { 'tailscale.com/ts-tailnet-target-ip': 'fd7a:115c:a1e0::7' },
      { kind: 'proxy', duty: { kind: 'egress-address', target: 'fd7a:115c:a1e0::7' } },
    ],
    [
      'a group of proxies',
      {},
      { 'tailscale.com/tailnet-ip': '100.64.0.7', 'tailscale.com/proxy-group': 'out' },
      { kind: 'none' },
    ],
  ])('is %s', (_name, spec, annotations, expected) => {
    expect(purpose(spec, annotations)).toEqual(expected);
  });

  it('is a load balancer of no class where the operator is told so', () => {
    expect(purpose({ type: 'LoadBalancer' }, {}, true)).toEqual(ingress('10.96.0.10'));
    expect(purpose({ type: 'LoadBalancer', loadBalancerClass: 'cloud' }, {}, true)).toEqual({ kind: 'none' });
  });

  it.each<[string, object, Record<string, string>, string]>([
    ['a headless Service', { clusterIP: 'None' }, EXPOSED, 'headless'],
    ['no address yet', { clusterIP: '' }, EXPOSED, 'clusterIP'],
    ['a bad host name', {}, { ...EXPOSED, 'tailscale.com/hostname': 'a_b' }, 'tailscale.com/hostname: "a_b"'],
    ['a host name with dots', {}, { ...EXPOSED, 'tailscale.com/hostname': 'a.b' }, 'tailscale.com/hostname'],
    ['a bad tag', {}, { ...EXPOSED, 'tailscale.com/tags': 'tag:ok, oops' }, 'tailscale.com/tags: "oops"'],
    [
      'two targets',
      {},
      { 'tailscale.com/tailnet-ip': '100.64.0.7', 'tailscale.com/tailnet-fqdn': 'a.lab.ts.net' },
      'only one of',
    ],
    // toLowerCase turns U+212A into k
    [
      'a host name with another K',
      {},
      { ...EXPOSED, 'tailscale.com/hostname': '\u212akeys' },
      'tailscale.com/hostname',
    ],
    [
      'a name with another K',
      {},
      { 'tailscale.com/tailnet-fqdn': 'db.la\u212a.ts.net' },
      'tailscale.com/tailnet-fqdn',
    ],
    ['a short name', {}, { 'tailscale.com/tailnet-fqdn': 'db' }, 'tailscale.com/tailnet-fqdn: "db"'],
    [
      'what is no address',
      {},
      { 'tailscale.com/tailnet-ip': '100.64.0' },
      'tailscale.com/tailnet-ip: "100.64.0"',
    ],
    [
      'a name of 254 characters',
      {},
      { 'tailscale.com/tailnet-fqdn': `${'a.'.repeat(126)}ab` },
      'is not a full MagicDNS name',
    ],
    ...[
      '127.0.0.1',
      '169.254.169.254',
      '0.0.0.0',
      '224.0.0.1',
      '::',
      '::1',
      'fe80::1',
      'fe80::1%eth0',
      'ff02::1',
      '::ffff:169.254.169.254',
    ].map((address): [string, object, Record<string, string>, string] => [
      `the target ${address}`,
      {},
      { 'tailscale.com/tailnet-ip': address },
      `tailscale.com/tailnet-ip: "${address}" is a loopback, link-local, unspecified or multicast address`,
    ]),
    [
      'both ways',
      {},
      { ...EXPOSED, 'tailscale.com/tailnet-ip': '100.64.0.7' },
      'remove tailscale.com/expose',
    ],
    [
      'a load balancer that leads out',
      { type: 'LoadBalancer', loadBalancerClass: 'cloud' },
      { 'tailscale.com/tailnet-ip': '100.64.0.7' },
      'make it ExternalName',
    ],
  ])('is invalid with %s, naming the field', (_name, spec, annotations, part) => {
    expect(purpose(spec, annotations)).toEqual({ kind: 'invalid', message: expect.stringContaining(part) });
  });
});

describe('the copy of all Services', () => {
  const kept = (spec: object, annotations = {}, metadata = {}) =>
    projectService(parseObject(service(spec, annotations, metadata)));

  it('holds what tells ours from others, and nothing else', () => {
    const { metadata, spec } = kept(
      LOAD_BALANCER,
      { ...EXPOSED, 'kubectl.kubernetes.io/last-applied-configuration': 'x'.repeat(1000) },
      { labels: { 'tailscale.com/proxy-class': 'a', app: 'web' }, managedFields: [{ manager: 'kubectl' }] },
    );
    expect(spec).toEqual({ ...LOAD_BALANCER, clusterIP: '10.96.0.10' });
    expect(metadata).toEqual({
      name: 'web',
      namespace: 'prod',
      uid: 'service-uid',
      resourceVersion: undefined,
      labels: { 'tailscale.com/proxy-class': 'a' },
      annotations: EXPOSED,
    });
  });

  it('is complete for the Services of groups', () => {
    const annotations = { 'tailscale.com/proxy-group': 'in', other: 'x' };
    const { metadata, spec } = kept({ ...LOAD_BALANCER, selector: { app: 'web' } }, annotations, {
      managedFields: [{ manager: 'kubectl' }],
    });
    expect(spec).toMatchObject({ selector: { app: 'web' } });
    expect(metadata.annotations).toEqual(annotations);
    expect(metadata).not.toHaveProperty('managedFields');
    const left = kept(
      { selector: { app: 'web' } },
      {},
      { finalizers: ['tailscale.com/service-pg-finalizer'] },
    );
    expect(left['spec']).toMatchObject({ selector: { app: 'web' } });
  });

  it('says which are looked at', () => {
    expect(isOfInterest(kept({}), false)).toBe(false);
    expect(isOfInterest(kept({ type: 'LoadBalancer' }), false)).toBe(false);
    expect(isOfInterest(kept({ type: 'LoadBalancer' }), true)).toBe(true);
    expect(isOfInterest(kept(LOAD_BALANCER), false)).toBe(true);
    expect(isOfInterest(kept({}, EXPOSED), false)).toBe(true);
    expect(isOfInterest(kept({}, { 'tailscale.com/tailnet-ip': 'x' }), false)).toBe(true);
    expect(isOfInterest(kept({}, {}, { finalizers: ['tailscale.com/finalizer'] }), false)).toBe(true);
  });

  it('says which class they follow: the label wins', () => {
    const labels = { 'tailscale.com/proxy-class': 'of-label' };
    const annotations = { 'tailscale.com/proxy-class': 'of-annotation' };
    expect(proxyClassNameOf({ labels, annotations }, 'default')).toBe('of-label');
    expect(proxyClassNameOf({ annotations }, 'default')).toBe('of-annotation');
    expect(proxyClassNameOf({}, 'default')).toBe('default');
  });
});
