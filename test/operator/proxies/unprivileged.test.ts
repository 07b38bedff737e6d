import type { V1StatefulSet } from '@kubernetes/client-node';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createConnectorReconciler } from '../../../src/operator/connector/reconcile.ts';
import { KINDS } from '../../../src/operator/kube-object.ts';
import { objectNameOf } from '../../../src/operator/workload/workload.ts';
import { planForwards, UNPRIVILEGED } from '../../../src/operator/workload/unprivileged.ts';
import { createServiceReconciler } from '../../../src/operator/service/reconcile.ts';
import { createBench, OWN, SETS, settle, type Bench } from '../bench.ts';
import { EXPOSED, PATH, service } from '../service/services.ts';

const NAME = objectNameOf({ type: 'svc', namespace: 'prod', name: 'web' });
const POD = `${NAME}-0`;
const LOCKED = {
  runAsNonRoot: true,
  allowPrivilegeEscalation: false,
  readOnlyRootFilesystem: true,
  capabilities: { drop: ['ALL'] },
};
const port = (
  number: number,
  protocol = 'TCP',
  name = '',
): { name: string; port: number; protocol: string } => ({
  name,
  port: number,
  protocol,
});

describe('a plan of forwards', () => {
  it.each([
    [{ kind: 'ingress', target: '10.96.0.10' }, { '80': { TCPForward: '10.96.0.10:80' } }],
    [{ kind: 'ingress', target: 'fd00::10' }, { '80': { TCPForward: '[fd00::10]:80' } }],
    [{ kind: 'ingress-name', target: 'db.example.com' }, { '80': { TCPForward: 'db.example.com:80' } }],
  ] as const)('lets tailscaled forward to %j', (duty, TCP) => {
    const plan = planForwards(duty, [port(80)]);
    expect(plan).toMatchObject({
      kind: 'planned',
      unserved: undefined,
      duty: { kind: 'forward-in', of: duty },
    });
    const config = plan.kind === 'planned' && 'serveConfig' in plan.duty ? plan.duty.serveConfig : '';
    expect(JSON.parse(config)).toEqual({ TCP });
  });

  it('takes each port once, in order, and names a target without the dot at its end', () => {
    expect(
      planForwards({ kind: 'egress-name', target: 'db.lab.ts.net.' }, [port(443), port(80), port(443)]),
    ).toMatchObject({
      duty: { kind: 'forward-out', ports: [80, 443] },
    });
  });

  it('says what is not carried', () => {
    const plan = planForwards({ kind: 'ingress', target: '10.96.0.10' }, [
      port(53),
      port(53, 'UDP', 'dns'),
      port(9, 'SCTP'),
    ]);
    expect(plan).toMatchObject({ unserved: expect.stringContaining('not served: UDP 53 (dns), SCTP 9') });
  });

  it.each([
    [[], 'none is declared'],
    [[port(53, 'UDP', 'dns')], 'there is only UDP 53 (dns)'],
  ])('is impossible with %j', (ports, why) => {
    expect(planForwards({ kind: 'egress-address', target: '100.64.0.1' }, ports)).toMatchObject({
      kind: 'impossible',
      message: expect.stringContaining(why),
    });
  });
});

describe('a class that says tailcast.dev/unprivileged', () => {
  let bench: Bench;
  beforeEach(async () => {
    bench = await createBench({ defaultClass: 'safe' });
    proxyClass('true');
  });
  afterEach(() => bench.close());

  function proxyClass(value: string, pod: object = {}): void {
    bench.putClass('safe', { statefulSet: { pod } }, { [UNPRIVILEGED]: value });
  }
  const run = (): Promise<number | undefined> => createServiceReconciler(bench.deps()).reconcile('prod/web');
  const put = (spec: object, annotations: Record<string, string> = EXPOSED): void => {
    const before = bench.object(PATH);
    const next = service(spec, annotations, { finalizers: before?.metadata.finalizers });
    const status = before?.['status'];
    bench.api.put(PATH, status === undefined ? next : { ...next, status });
  };
  const set = (name = NAME): V1StatefulSet => bench.object(`${SETS}/${name}`) as unknown as V1StatefulSet;
  const podOf = () => set().spec!.template.spec!;
  const variables = (container: number) => bench.variables(NAME, container);
  const condition = (): unknown => bench.conditions(PATH).at(-1);

  it('makes an exposed Service a pod without any privilege', async () => {
    put({ ports: [port(80)] });
    await run();
    expect(podOf().initContainers).toBeUndefined();
    expect(podOf().securityContext).toEqual({ seccompProfile: { type: 'RuntimeDefault' } });
    expect(podOf().containers).toHaveLength(1);
    expect(podOf().containers[0]!.securityContext).toMatchObject(LOCKED);
    expect(variables(0)).toMatchObject({ TS_USERSPACE: 'true', TS_SERVE_CONFIG: expect.any(String) });
    expect(variables(0)).not.toHaveProperty('TS_DEST_IP');
    expect(JSON.parse(bench.data(`${OWN}/secrets/${POD}`, 'serve-config')!)).toEqual({
      TCP: { '80': { TCPForward: '10.96.0.10:80' } },
    });
  });

  it('changes ports without another pod, and says which are not served', async () => {
    put({ ports: [port(80)] });
    await run();
    bench.startPod(POD);
    bench.join(POD);
    await settle(run);
    expect(condition()).toMatchObject({ status: 'True', reason: 'ProxyCreated' });
    const template = JSON.stringify(set().spec!.template);
    put({ ports: [port(80), port(81), port(53, 'UDP')] });
    await settle(run);
    expect(JSON.stringify(set().spec!.template)).toBe(template);
    expect(bench.data(`${OWN}/secrets/${POD}`, 'serve-config')).toContain('10.96.0.10:81');
    expect(condition()).toMatchObject({
      status: 'True',
      reason: 'ProxyPartial',
      message: expect.stringContaining('UDP 53'),
    });
    expect(bench.events()).toContainEqual(expect.stringContaining('PortsNotServed: not served: UDP 53'));
  });

  it('gives a Service that leads to the tailnet a forwarder beside tailscaled', async () => {
    put(
      { type: 'ExternalName', clusterIP: undefined, externalName: 'unused', ports: [port(80), port(9005)] },
      { 'tailscale.com/tailnet-fqdn': 'db.lab.ts.net' },
    );
    await run();
    const [tailscale, forwarder] = podOf().containers;
    for (const container of [tailscale, forwarder]) expect(container!.securityContext).toMatchObject(LOCKED);
    expect(forwarder!.args).toEqual(['forwarder']);
    expect(variables(1)).toEqual({
      TAILCAST_TARGET: 'db.lab.ts.net',
      TAILCAST_PORTS: '80,9005',
      TAILCAST_SOCKET: variables(0)['TS_SOCKET'],
      // Port 9005 belongs to the Service, so the forwarder uses the next port for its health checks.
      TAILCAST_OPS_LISTEN: ':9006',
    });
    expect(forwarder!.readinessProbe?.httpGet).toMatchObject({ path: '/readyz', port: 9006 });
    expect(podOf().securityContext?.sysctls).toEqual([
      { name: 'net.ipv4.ip_unprivileged_port_start', value: '0' },
    ]);
    expect(variables(0)).not.toHaveProperty('TS_TAILNET_TARGET_FQDN');
    expect(variables(0)).not.toHaveProperty('TS_LOCAL_ADDR_PORT');
    const service = bench.object(PATH)!['spec'] as { externalName: string };
    expect(service.externalName).toBe(`${NAME}.tailcast.svc.cluster.local`);
    // The annotation that names the target is the same as for other proxies, because the nameserver needs it.
    expect(set().spec!.template.metadata!.annotations).toEqual({
      'tailscale.com/operator-last-set-ts-tailnet-target-fqdn': 'db.lab.ts.net.',
    });
  });

  it('leaves the forwarder alone in what it says about the tailscale container', async () => {
    proxyClass('true', {
      tailscaleContainer: { image: 'mirror/tailscale', env: [{ name: 'TS_X', value: '1' }] },
    });
    put(
      { type: 'ExternalName', clusterIP: undefined, externalName: 'unused', ports: [port(5432)] },
      { 'tailscale.com/tailnet-ip': '100.64.0.5' },
    );
    await run();
    expect(podOf().containers[0]!.image).toBe('mirror/tailscale');
    expect(podOf().containers[1]!.image).not.toBe('mirror/tailscale');
    expect(variables(1)).not.toHaveProperty('TS_X');
    expect(podOf().securityContext?.sysctls).toBeUndefined();
  });

  it('makes a Service invalid that declares nothing which can be carried', async () => {
    put({ ports: [port(53, 'UDP')] });
    await run();
    expect(condition()).toMatchObject({ status: 'False', reason: 'ProxyInvalid' });
    expect(set()).toBeUndefined();
  });

  it('changes privileged pods into others, and back', async () => {
    proxyClass('false');
    put({ ports: [port(80)] });
    await run();
    expect(podOf().containers[0]!.securityContext).toEqual({ privileged: true });
    proxyClass('true');
    await run();
    expect(podOf().containers[0]!.securityContext).toMatchObject(LOCKED);
    proxyClass('false');
    await run();
    expect(podOf().containers[0]!.securityContext).toMatchObject({ privileged: true });
    expect(variables(0)['TS_USERSPACE']).toBe('false');
  });

  it('keeps what carries packets waiting, and says why', async () => {
    const path = bench.put(KINDS.connector, { name: 'lab' }, { exitNode: true, proxyClass: 'safe' });
    await createConnectorReconciler(bench.deps()).reconcile('lab');
    expect(bench.condition(path)).toMatchObject({
      status: 'False',
      message: expect.stringContaining('name another class'),
    });
  });
});
