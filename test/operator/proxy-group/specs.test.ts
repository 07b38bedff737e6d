import { describe, expect, it } from 'vitest';
import { GATEWAY_SETTINGS } from '../../../src/config/gateway.ts';
import { readSettings } from '../../../src/config/settings.ts';
import { assertPrivateProxyListener } from '../../../src/tailnet/proxied-listener.ts';
import type { TailnetService } from '../../../src/operator/auth-keys.ts';
import type { NodeState } from '../../../src/operator/workload/node-state.ts';
import { proxyGroupNodes } from '../../../src/operator/proxy-group/group.ts';
import { ANNOTATIONS, settingsOf } from '../../../src/operator/proxy-group/resource.ts';
import {
  decideGroupService,
  serviceNameOf,
  isServiceOfGroup,
  removeServicesExcept,
} from '../../../src/operator/proxy-group/service.ts';
import {
  gatewayStatefulSet,
  type GatewayContext,
} from '../../../src/operator/proxy-group/stateful-set-specs.ts';
import { backends, urlOf, verdictsOf, type Seen } from '../../../src/operator/proxy-group/status.ts';
import { createControlDouble } from '../recorder/control-double.ts';
import { OPTIONS } from '../recorder/recorders.ts';
import { proxyGroup } from './proxy-groups.ts';

const TAILSCALE: GatewayContext = { service: 'svc:prod', issuesCertificates: true };
const HEADSCALE: GatewayContext = { service: undefined, issuesCertificates: false };

function podOf(spec: object = {}, context = TAILSCALE, metadata: object = {}) {
  const set = gatewayStatefulSet(proxyGroup(spec, metadata), context, OPTIONS);
  const { template, volumeClaimTemplates } = set.spec;
  const [container] = template.spec!.containers;
  const [tailscale] = template.spec!.initContainers!;
  const serve: unknown = JSON.parse(template.metadata!.annotations!['tailcast.dev/serve-config']!);
  return {
    set,
    template,
    pod: template.spec!,
    container: container!,
    tailscale: tailscale!,
    serve,
    volumeClaimTemplates,
  };
}

/** Returns the settings as the gateway itself parses them. */
function configOf(...parameters: Parameters<typeof podOf>) {
  const environment = new Map(
    podOf(...parameters).container.env!.map(({ name, value }) => [
      name,
      (value ?? '').replaceAll('$(POD_NAME)', 'prod-0'),
    ]),
  );
  return readSettings(GATEWAY_SETTINGS, { flags: new Map(), environment, file: undefined });
}

describe('the StatefulSet of a ProxyGroup', () => {
  it('sets what the gateway reads, on a listener that only this machine’s tailscaled reaches', () => {
    const config = configOf();
    expect(config).toMatchObject({
      mode: 'auth',
      listen: { host: '127.0.0.77', port: 8443 },
      proxyProtocol: 'require',
      recorderDial: 'tailscale',
      socket: '/run/tailscale/sock',
      tls: 'tailscale',
      drainSeconds: 60,
    });
    expect(() => assertPrivateProxyListener(config.listen.host)).not.toThrow();
    const { pod, container } = podOf();
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(config.drainSeconds);
    expect(container.readinessProbe?.httpGet).toEqual({ path: '/readyz', port: config.opsListen?.port });
  });

  it('forwards port 443 of the node, and of the Service where there is one', () => {
    const tcp = { 443: { TCPForward: '127.0.0.77:8443', ProxyProtocol: 2 } };
    expect(podOf().serve).toEqual({ TCP: tcp, Services: { 'svc:prod': { TCP: tcp } } });
    expect(podOf({}, HEADSCALE).serve).toEqual({ TCP: tcp });
  });

  it('has an authority of its own that outlives pods, where the control server issues nothing', () => {
    const { volumeClaimTemplates, pod } = podOf({}, HEADSCALE);
    expect(volumeClaimTemplates?.map(({ metadata }) => metadata?.name)).toEqual(['state']);
    expect(pod.volumes?.map(({ name }) => name)).not.toContain('state');
    expect(configOf({}, HEADSCALE)).toMatchObject({
      tls: 'self-signed',
      stateDirectory: '/var/lib/tailcast',
      tlsNames: ['prod-0', 'prod-0.example.ts.net'],
    });
    expect(podOf().volumeClaimTemplates).toBeUndefined();
  });

  it('takes a certificate from a Secret when it is told to', () => {
    const metadata = { annotations: { [ANNOTATIONS.tlsSecret]: 'gateway-tls' } };
    const { pod } = podOf({}, HEADSCALE, metadata);
    expect(pod.volumes).toContainEqual({
      name: 'tls',
      secret: { secretName: 'gateway-tls', defaultMode: 0o440 },
    });
    expect(configOf({}, HEADSCALE, metadata)).toMatchObject({
      tls: 'files',
      tlsCert: '/etc/tailcast-tls/tls.crt',
    });
  });

  it('names nodes by a prefix and their number', () => {
    const env = podOf({ hostnamePrefix: 'k8s' }).tailscale.env!;
    expect(env.find(({ name }) => name === 'TS_HOSTNAME')?.value).toBe('k8s-$(POD_INDEX)');
    const names = env.map(({ name }) => name);
    expect(names.indexOf('POD_INDEX')).toBeLessThan(names.indexOf('TS_HOSTNAME'));
  });

  it('lets settings of the annotation win, once each, and refuses what is none', () => {
    const annotations = {
      [ANNOTATIONS.env]: 'TAILCAST_LOG_LEVEL=debug\n# a comment\n\nTAILCAST_DRAIN_SECONDS=5\n',
    };
    const { container } = podOf({}, TAILSCALE, { annotations });
    const names = container.env!.map(({ name }) => name);
    expect(new Set(names).size).toBe(names.length);
    expect(configOf({}, TAILSCALE, { annotations })).toMatchObject({ logLevel: 'debug', drainSeconds: 5 });
    const bad = proxyGroup({}, { annotations: { [ANNOTATIONS.env]: 'LD_PRELOAD=/tmp/x' } });
    expect(settingsOf(bad).problem).toContain('LD_PRELOAD');
    const noPort = proxyGroup({}, { annotations: { [ANNOTATIONS.env]: 'TAILCAST_OPS_LISTEN=:0' } });
    expect(settingsOf(noPort).problem).toBe(
      `${ANNOTATIONS.env}: TAILCAST_OPS_LISTEN: Invalid value: ":0": a port from 1 to 65535 is required`,
    );
  });

  it('does not depend on the number of replicas in its template', () => {
    expect(podOf({ replicas: 5 }).template).toEqual(podOf({ replicas: 1 }).template);
  });

  it('runs under the account that may impersonate only in auth mode', () => {
    expect(podOf().pod.serviceAccountName).toBe('kube-apiserver-auth-proxy');
    expect(podOf({ kubeAPIServer: { mode: 'noauth' } }).pod.serviceAccountName).toBe('prod');
  });
});

describe('the Service of a ProxyGroup', () => {
  const group = proxyGroup({ tags: ['tag:b', 'tag:a'] });
  const nodes = proxyGroupNodes(group, OPTIONS);
  const made = (): TailnetService => {
    const decision = decideGroupService(group, nodes, undefined);
    if (decision.kind !== 'put') throw new Error(decision.kind);
    return { ...decision.service, addrs: ['100.100.0.1'] };
  };
  const owned = (...uids: readonly string[]) => ({
    'tailscale.com/owner-references': JSON.stringify({
      ownerRefs: uids.map((uid) => ({
        operatorID: 'n1',
        resource: { kind: 'ProxyGroup', name: 'prod', uid },
      })),
    }),
  });

  it('has the group’s name, or the one that it asks for', () => {
    expect(serviceNameOf(group)).toBe('svc:prod');
    expect(serviceNameOf(proxyGroup({ kubeAPIServer: { hostname: 'cluster' } }))).toBe('svc:cluster');
  });

  it('is made with the tags of the nodes, and says whose it is', () => {
    expect(made()).toMatchObject({ name: 'svc:prod', tags: ['tag:a', 'tag:b'], ports: ['tcp:443'] });
    expect(JSON.parse(made().annotations['tailscale.com/owner-references']!)).toEqual({
      ownerRefs: [
        { operatorID: 'tailcast-operator', resource: { kind: 'ProxyGroup', name: 'prod', uid: 'uid-1' } },
      ],
    });
  });

  it('stays as it is when nothing changes, whatever the order of its tags', () => {
    expect(decideGroupService(group, nodes, { ...made(), tags: ['tag:b', 'tag:a'] })).toEqual({
      kind: 'keep',
    });
  });

  it('keeps its addresses when it changes', () => {
    const decision = decideGroupService(group, nodes, { ...made(), ports: ['tcp:80'] });
    expect(decision).toMatchObject({ kind: 'put', service: { addrs: ['100.100.0.1'], ports: ['tcp:443'] } });
  });

  it('is taken over from the reference’s operator, which named the same resource', () => {
    const decision = decideGroupService(group, nodes, { ...made(), annotations: owned('uid-1') });
    expect(decision).toMatchObject({ kind: 'put', service: { addrs: ['100.100.0.1'] } });
  });

  it.each([
    ['nobody', {}],
    ['another group', owned('uid-2')],
    ['two groups', owned('uid-1', 'uid-2')],
    ['something unreadable', { 'tailscale.com/owner-references': '{' }],
  ])('is refused when it belongs to %s', (_name, annotations) => {
    const existing = { ...made(), annotations };
    expect(decideGroupService(group, nodes, existing)).toMatchObject({
      kind: 'refuse',
      message: expect.stringContaining('spec.kubeAPIServer.hostname'),
    });
    expect(isServiceOfGroup(existing, 'uid-1')).toBe(false);
  });

  it.each([
    ['is renamed', ['svc:prod'], ['svc:prod', 'svc:other']],
    ['is deleted', [], ['svc:other']],
  ])('is removed when the group %s, but no Service of another owner', async (_name, keep, left) => {
    const control = createControlDouble(Date.now);
    for (const service of [
      made(),
      { ...made(), name: 'svc:old' },
      { ...made(), name: 'svc:other', annotations: {} },
    ])
      control.known.set(service.name, service);
    await removeServicesExcept(control, keep, (service) => isServiceOfGroup(service, 'uid-1'));
    expect([...control.known.keys()]).toEqual(left);
  });
});

describe('the status of a ProxyGroup', () => {
  const node = (ordinal: number, more: Partial<NodeState> = {}): NodeState => ({
    deviceId: `n${ordinal}`,
    dnsName: `prod-${ordinal}.example.ts.net`,
    addresses: [],
    https: true,
    advertised: ['svc:prod'],
    routes: [],
    brokenKey: undefined,
    podUid: undefined,
    ...more,
  });
  const seen = (more: Partial<Seen> = {}): Seen => ({
    replicas: 2,
    readyPods: 2,
    nodes: [node(0), node(1)],
    service: 'svc:prod',
    settled: true,
    ...more,
  });

  it.each<[string, Partial<Seen>, number, readonly boolean[]]>([
    // the booleans mean available, configured and ready, in this order
    ['all is well', {}, 2, [true, true, true]],
    ['one pod is not ready', { readyPods: 1 }, 1, [true, true, false]],
    [
      'one node does not advertise',
      { nodes: [node(0), node(1, { advertised: [] })] },
      1,
      [true, true, false],
    ],
    [
      'one node has not joined',
      { nodes: [node(0), node(1, { deviceId: undefined })] },
      1,
      [true, true, false],
    ],
    ['no pod is ready', { readyPods: 0 }, 0, [true, false, false]],
    ['nobody has joined', { nodes: [], readyPods: 0 }, 0, [false, false, false]],
    [
      'there are no Services',
      { service: undefined, nodes: [node(0, { advertised: [] }), node(1)] },
      2,
      [true, true, true],
    ],
    ['replicas are being removed', { settled: false }, 2, [true, true, false]],
  ])('says what holds when %s', (_name, more, count, expected) => {
    const verdicts = verdictsOf(seen(more));
    expect(backends(seen(more))).toBe(count);
    expect([
      verdicts.ProxyGroupAvailable.ready,
      verdicts.KubeAPIServerProxyConfigured.ready,
      verdicts.ProxyGroupReady.ready,
    ]).toEqual(expected);
    expect(verdicts.KubeAPIServerProxyConfigured.message).toContain(
      `${count}/2 proxy backends ready and advertising`,
    );
  });

  it('names the Service, or the first node where there are none', () => {
    expect(urlOf(seen())).toBe('https://prod.example.ts.net');
    expect(urlOf(seen({ service: undefined }))).toBe('https://prod-0.example.ts.net');
    expect(urlOf(seen({ readyPods: 0 }))).toBeUndefined();
    expect(verdictsOf(seen({ service: undefined })).KubeAPIServerProxyConfigured.message).toContain(
      'each node has its own name',
    );
  });
});
