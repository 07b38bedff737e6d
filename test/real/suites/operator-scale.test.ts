/**
 * Many Services at once, with a real API server and its limits, and a minimal control server. No pods run: the test
 * writes their status. The test checks the number of requests, and only prints the duration, because the duration
 * depends on the machine.
 */
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { objectNameOf } from '../../../src/operator/workload/workload.ts';
import { NAMESPACE, install, launchOperator } from '../operator/installation.ts';
import { type Kubernetes, startKubernetes } from '../rig/kubernetes.ts';
import { type Program, type Rig, createRig } from '../rig/rig.ts';

const COUNT = Number(process.env['REAL_SCALE_SERVICES'] ?? '500');
/** Number of Services in the cluster. Most of them do not belong to the operator. */
const ALL = 5000;
const MOST_MIB = 150;
/** Maximum number of the operator's requests for one Service, from its creation until it is ready. */
const MOST_REQUESTS = 60;
const AT_ONCE = 16;

let rig: Rig;
let cluster: Kubernetes;
let control: Server;
let operator: Program;

/** Creates a server with the part of Headscale that the operator uses. */
function controlServer(): Server {
  let keys = 0;
  return createServer((request, response) => {
    const [, , , kind, id] = (request.url ?? '').split('/');
    request.resume();
    keys += 1;
    const answer =
      kind === 'node'
        ? { node: { givenName: id, name: id, ipAddresses: ['100.64.0.1'] } }
        : request.method === 'GET'
          ? { preAuthKeys: [] }
          : {
              preAuthKey: {
                id: String(keys),
                key: `key-${keys}`,
                expiration: new Date(Date.now() + 3_600_000),
              },
            };
    response.setHeader('content-type', 'application/json');
    response.end(JSON.stringify(answer));
  });
}

const encode = (text: string): string => Buffer.from(text).toString('base64');
const names = Array.from({ length: COUNT }, (_, index) => `web-${index}`);
const objectOf = (name: string): string => objectNameOf({ type: 'svc', namespace: 'default', name });

/** Runs a function for each item, a few at a time. */
async function each<T>(items: readonly T[], action: (item: T) => Promise<unknown>): Promise<void> {
  const rest = [...items];
  const work = async (): Promise<void> => {
    for (let item = rest.pop(); item !== undefined; item = rest.pop()) await action(item);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

/** Simulates the kubelet and the pod of a proxy: the proxy's node has joined, and the proxy's rules are installed. */
async function join(object: string): Promise<void> {
  await cluster.api('PATCH', `/api/v1/namespaces/${NAMESPACE}/secrets/${object}-0`, {
    data: {
      device_id: encode(object),
      device_fqdn: encode(`${object}.lab.ts.net.`),
      device_ips: encode('["100.64.0.1"]'),
    },
  });
  await cluster.api('PATCH', `/apis/apps/v1/namespaces/${NAMESPACE}/statefulsets/${object}/status`, {
    status: { observedGeneration: 1, replicas: 1, readyReplicas: 1, updatedReplicas: 1 },
  });
}

interface Listed {
  readonly items: readonly {
    readonly metadata: { readonly name: string };
    readonly status?: { readonly conditions?: readonly { readonly status: string }[] };
  }[];
}

const requests = (): number =>
  cluster
    .audit()
    .filter(({ user }) => user.username === `system:serviceaccount:${NAMESPACE}:tailcast-operator`).length;
const memory = (): number =>
  Math.round(
    Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${operator.pid}/status`, 'utf8'))?.[1] ?? '0') / 1024,
  );

beforeAll(async () => {
  rig = createRig();
  cluster = await startKubernetes(rig, { controllers: false, node: false });
  control = controlServer();
  await new Promise<void>((done) => control.listen(0, '127.0.0.1', done));
  const { kubeconfig } = await install(rig, cluster);
  const { port } = control.address() as AddressInfo;
  operator = launchOperator(rig, {
    kubeconfig,
    controlUrl: `http://127.0.0.1:${port}`,
    apiKey: 'key',
    isBuilt: true,
  });
}, 120_000);

afterAll(async () => {
  control?.close();
  await rig?.stop();
}, 60_000);

describe(`${COUNT} Services`, () => {
  it('are among many others, which cost no request', { timeout: 300_000 }, async () => {
    const others = Array.from({ length: ALL - COUNT }, (_, index) => `other-${index}`);
    await each(others, (name) =>
      cluster.api('POST', '/api/v1/namespaces/kube-public/services', {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name, labels: { app: name }, annotations: { 'example.com/team': 'platform' } },
        // The Services are headless, because the address range is smaller than their number.
        spec: { selector: { app: name }, clusterIP: 'None', ports: [{ port: 80 }] },
      }),
    );
    const about = cluster
      .audit()
      .filter(
        ({ user, requestURI }) =>
          user.username.endsWith(':tailcast-operator') && requestURI.includes('kube-public'),
      );
    expect(about).toEqual([]);
  });

  it('become ready with few requests each', { timeout: 900_000 }, async () => {
    const startedAtMs = Date.now();
    await each(names, (name) =>
      cluster.api('POST', '/api/v1/namespaces/default/services', {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name },
        spec: { type: 'LoadBalancer', loadBalancerClass: 'tailscale', ports: [{ port: 80 }] },
      }),
    );
    const joined = new Set<string>();
    await rig.until(
      'all Services',
      async () => {
        const sets = (await cluster.api(
          'GET',
          `/apis/apps/v1/namespaces/${NAMESPACE}/statefulsets`,
        )) as Listed;
        const fresh = sets.items.map(({ metadata }) => metadata.name).filter((name) => !joined.has(name));
        for (const name of fresh) joined.add(name);
        await each(fresh, join);
        const services = (await cluster.api('GET', '/api/v1/namespaces/default/services')) as Listed;
        const ready = services.items.filter(({ status }) => status?.conditions?.[0]?.status === 'True');
        if (ready.length === COUNT) return true;
        throw new Error(`${ready.length} of ${COUNT} are ready, ${joined.size} have objects`);
      },
      { timeoutMs: 880_000 },
    );
    const tookMs = Date.now() - startedAtMs;
    expect(joined).toEqual(new Set(names.map(objectOf)));
    const perService = requests() / COUNT;
    process.stdout.write(
      `operator-scale: ${COUNT} Services in ${Math.round(tookMs / 1000)} s, ${perService.toFixed(1)} requests ` +
        `each, operator ${memory()} MiB of ${ALL} Services\n`,
    );
    expect(perService).toBeLessThan(MOST_REQUESTS);
    expect(memory()).toBeLessThan(MOST_MIB);
  });

  it('are left in peace when nothing changes', { timeout: 120_000 }, async () => {
    const quiet = await rig.until(
      'five quiet seconds',
      async () => {
        const before = requests();
        await new Promise((done) => setTimeout(done, 5000));
        // One request is normal: the operator reopens a watch that the API server has closed.
        return requests() - before <= 1 ? true : undefined;
      },
      { timeoutMs: 110_000 },
    );
    expect(quiet).toBe(true);
  });
});
