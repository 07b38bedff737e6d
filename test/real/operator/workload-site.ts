/**
 * A cluster and a tailnet in the network namespace of the suite. Pods have their own network namespaces, kube-proxy
 * rules implement Services, and the stock container's entry point runs tailscaled in kernel mode.
 */
import { execFile, spawn } from 'node:child_process';
import { mkdirSync, readFileSync, readdirSync, readlinkSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { GIVE_UP } from '../../../src/operator/workload/proxy-specs.ts';
import { ensurePeer } from '../rig/build.ts';
import { type Kubernetes, startKubernetes } from '../rig/kubernetes.ts';
import { BRIDGE, NODE_ADDRESS, layNetwork } from '../rig/network.ts';
import { type Program, type Rig, createRig } from '../rig/rig.ts';
import type { Digest } from './body.ts';
import { DOMAIN, type Tailnet, startTailnet } from '../rig/tailnet.ts';
import { NAMESPACE, examineOperator, install, launchOperator, ownImage } from './installation.ts';

const run = promisify(execFile);
const script = (name: string): string => fileURLToPath(new URL(`${name}.ts`, import.meta.url));

/** Target name of a Service of type ExternalName; pods find it in their hosts file. */
export const OUTER_NAME = 'outer.example.com';
/** IPv4 address of {@link OUTER_NAME}. */
export const OUTER_ADDRESS = '10.96.250.10';
export const TAGS = ['tag:k8s', 'tag:router', 'tag:client'];
export const PORT = 8080;
export const SERVICE_NETWORK = '10.96.0.0/16';
const SERVICE_NETWORK_6 = 'fd96::/112';

/**
 * Maximum time until another node of the group serves. A killed node closes its connections, so another node soon takes
 * over. Headscale notices a lost node by a ping every ten seconds with a timeout of five.
 */
export const OTHER_NODE_MS = { killed: 20_000, lost: 45_000 } as const;

export interface Pod {
  readonly metadata: { readonly name: string; readonly uid: string };
  readonly status: { readonly podIP?: string; readonly phase?: string };
  readonly spec: Readonly<Record<string, unknown>>;
}

/**
 * Response of `web.ts`. If the status is not 200, only `status` is set: such a response comes from a proxy, not from a
 * pod.
 */
export interface WebAnswer {
  readonly name: string;
  readonly from: string;
  readonly path?: string;
  readonly host?: string;
  readonly login?: string;
  /** Address of the caller, from `X-Forwarded-For`. */
  readonly caller?: string;
  readonly status?: number;
}

export interface TlsWish {
  readonly address: string;
  readonly host: string;
  readonly path: string;
  /** PEM. */
  readonly ca: string;
  readonly headers: Readonly<Record<string, string>>;
}

export interface TlsAnswer {
  readonly text: string;
  readonly status?: number;
  /** Subject of the certificate that the server presented. */
  readonly serial?: string;
  readonly grpcStatus?: string;
}

export interface WorkloadSite {
  readonly rig: Rig;
  readonly cluster: Kubernetes;
  readonly tailnet: Tailnet;
  readonly operator: Program;
  /** Starts another operator. */
  launch(name: string, more?: readonly string[]): Program;
  /** Returns the report of the operator's doctor. */
  examine(): ReturnType<typeof examineOperator>;
  /** Sends an HTTP request from a pod. */
  http(pod: string, url: string, host?: string, headers?: object): Promise<WebAnswer>;
  /** Sends a TLS request from a pod that trusts one CA only. Throws if the handshake fails. */
  tls(pod: string, how: 'https' | 'ws' | 'grpc', wish: TlsWish): Promise<TlsAnswer>;
  /** Downloads `bytes` bytes in a pod. @returns bytes per second */
  fetch(pod: string, url: string, bytes: number): Promise<number>;
  /** Uploads and downloads `bytes` bytes in a pod. */
  bodies(
    pod: string,
    url: string,
    bytes: number,
  ): Promise<Readonly<Record<'up' | 'down' | 'expected', Digest>>>;
  /** Arrival time of each line of a stream in a pod, in milliseconds after the first line. */
  lines(pod: string, url: string): Promise<readonly number[]>;
  /** Returns the responses of a WebSocket server to `messages` messages. */
  converse(pod: string, url: string, messages: number): Promise<readonly string[]>;
  /** Kills every process of a pod at once, like the OOM killer. */
  kill(namespace: string, pod: string): void;
  /** Disconnects a pod from the network permanently, like a lost machine. */
  cut(namespace: string, pod: string): Promise<void>;
  /** Adds an address to the network of a pod. */
  address(pod: string, address: string): Promise<void>;
  /** Returns names and capabilities of the processes of a pod, in the format of the kernel. */
  powers(namespace: string, pod: string): readonly { readonly name: string; readonly effective: string }[];
  /** Opens connections from a pod until `end` is called and at least `least` responses have arrived. */
  load(pod: string, url: string, parallel: number, least: number, limitMs?: number): Load;
  udp(pod: string, address: string, port: number, text: string): Promise<string>;
  /** Queries a nameserver from a pod. Returns the addresses, or the error of the query. */
  resolve(pod: string, server: string, type: 'A' | 'AAAA', name: string): Promise<unknown>;
  /** Removes a pod's routes to the addresses of Services, so that the pod acts as a client outside the cluster. */
  banish(pod: string): Promise<void>;
  pod(namespace: string, name: string): Promise<Pod>;
  /** Returns the node with this name at the control server. */
  node(name: string): Promise<HeadscaleNode | undefined>;
  nodes(): Promise<readonly HeadscaleNode[]>;
  /** Starts pods that serve HTTP, and a Service with port 80 for each. */
  serveWeb(...names: readonly string[]): Promise<void>;
  /** Waits until the objects and nodes of a resource are gone. @param type `ingress` or `gateway` */
  gone(type: string, name: string): Promise<boolean>;
  /** Restarts the pods of a StatefulSet in the operator's namespace, as `kubectl rollout restart` does. */
  restart(set: string): Promise<void>;
}

/** Sequential connections. */
export interface Load {
  end(): Promise<{
    /** Number of responses before `end` was called; `done` is the total. */
    readonly meanwhile: number;
    readonly done: number;
    readonly failed: number;
    /** Number of failures on established connections. */
    readonly broken: number;
    /** The longest time without a response. */
    readonly silentMs: number;
    readonly errors: Readonly<Record<string, number>>;
  }>;
}

export interface HeadscaleNode {
  readonly id: number | string;
  readonly given_name: string;
  readonly ip_addresses: readonly string[];
  readonly tags?: readonly string[];
  readonly approved_routes?: readonly string[];
  readonly available_routes?: readonly string[];
  readonly subnet_routes?: readonly string[];
}

/**
 * @param settings settings of every operator of the site
 * @param policy additional fields of the tailnet policy
 */
export async function startWorkloadSite(
  settings: readonly string[] = [],
  policy: object = {},
): Promise<WorkloadSite> {
  const [
    { tailscaled: kernel = '' },
    { tailscaled: lean = '' },
    { containerboot = '' },
    { 'kube-proxy': kubeProxy = '' },
  ] = await Promise.all([
    ensurePeer('kernel-tailscaled'),
    ensurePeer('tailnet'),
    ensurePeer('containerboot'),
    ensurePeer('kube-proxy'),
  ]);
  // Containers have their own /tmp, so the rig's folder must be elsewhere.
  process.env['TMPDIR'] = '/var/tmp';
  const rig = createRig();
  try {
    const { hostsPath } = layNetwork(rig, {
      'kubernetes.default.svc': ['10.96.0.1'],
      // The name has an IPv4 and an IPv6 address, because containerboot ignores a name that lacks one of them.
      [OUTER_NAME]: [OUTER_ADDRESS, 'fd77::ffff'],
    });
    const [cluster, tailnet] = await Promise.all([
      startKubernetes(rig, {
        address: NODE_ADDRESS,
        // Services can have an IPv4 and an IPv6 address.
        apiServerFlags: [`--service-cluster-ip-range=${SERVICE_NETWORK},${SERVICE_NETWORK_6}`],
        node: {
          images: images(rig, { kernel, lean, containerboot }),
          network: { bridge: BRIDGE, hostsPath },
        },
      }),
      startTailnet(rig, {
        address: NODE_ADDRESS,
        nodes: [{ name: 'db', user: 'alice@example.com' }],
        policy: {
          tagOwners: Object.fromEntries(TAGS.map((tag) => [tag, ['alice@example.com']])),
          acls: [{ action: 'accept', src: ['*'], dst: ['*:*'] }],
          ...policy,
        },
      }),
    ]);
    await serveApiServer(rig, cluster, kubeProxy);
    const { kubeconfig } = await install(rig, cluster);
    const apiKey = (await tailnet.admin('apikeys', 'create')) as string;
    const launch = (name: string, more: readonly string[] = []): Program =>
      launchOperator(rig, {
        kubeconfig,
        controlUrl: tailnet.controlUrl,
        apiKey,
        name,
        more: [...settings, ...more],
      });
    const nodes = async (): Promise<readonly HeadscaleNode[]> =>
      ((await tailnet.admin('nodes', 'list')) as readonly HeadscaleNode[] | null) ?? [];
    return {
      rig,
      cluster,
      tailnet,
      operator: launch('operator'),
      launch,
      examine: () =>
        examineOperator(rig, {
          kubeconfig,
          controlUrl: tailnet.controlUrl,
          apiKey,
          name: 'doctor',
          more: settings,
        }),
      async http(pod, url, host = '', headers = {}) {
        return JSON.parse(await inside(rig, pod, 'http', url, host, JSON.stringify(headers))) as WebAnswer;
      },
      async tls(pod, how, wish) {
        return JSON.parse(await inside(rig, pod, 'tls', how, JSON.stringify(wish))) as TlsAnswer;
      },
      fetch: async (pod, url, bytes) =>
        Number(await inside(rig, pod, 'fetch', `${url}?bytes=${bytes}`, String(bytes))),
      async bodies(pod, url, bytes) {
        const args = ['body', url, String(bytes)];
        return JSON.parse(await inside(rig, pod, ...args)) as Record<'up' | 'down' | 'expected', Digest>;
      },
      lines: async (pod, url) => JSON.parse(await inside(rig, pod, 'lines', url)) as number[],
      converse: async (pod, url, messages) =>
        JSON.parse(await inside(rig, pod, 'ws', url, String(messages))) as string[],
      kill(namespace, pod) {
        for (const { id } of programsOf(holderOf(rig, namespace, pod))) process.kill(id, 'SIGKILL');
      },
      async cut(namespace, pod) {
        const target = `--target=${holderOf(rig, namespace, pod)}`;
        await run('nsenter', [target, '--net', 'ip', 'link', 'set', 'eth0', 'down']);
      },
      async address(pod, address) {
        await enter(rig, pod, 'ip', 'addr', 'add', address, 'dev', 'lo');
      },
      powers: (namespace, pod) => programsOf(holderOf(rig, namespace, pod)),
      load: (pod, url, parallel, least, limitMs = 10_000) =>
        load(rig, pod, url, String(parallel), String(least), String(limitMs)),
      udp: (pod, address, port, text) => inside(rig, pod, 'udp', address, String(port), text),
      async resolve(pod, server, type, name) {
        return JSON.parse(await inside(rig, pod, 'dns', server, type, name)) as unknown;
      },
      async banish(pod) {
        await enter(rig, pod, 'ip', 'route', 'add', 'blackhole', SERVICE_NETWORK);
        await enter(rig, pod, 'ip', '-6', 'route', 'add', 'blackhole', SERVICE_NETWORK_6);
      },
      pod: async (namespace, name) =>
        (await cluster.api('GET', `/api/v1/namespaces/${namespace}/pods/${name}`)) as Pod,
      nodes,
      async serveWeb(...names) {
        for (const name of names) {
          await cluster.api('POST', '/api/v1/namespaces/default/pods', webPod(name, { app: name }));
          await cluster.api('POST', '/api/v1/namespaces/default/services', {
            apiVersion: 'v1',
            kind: 'Service',
            metadata: { name },
            spec: { selector: { app: name }, ports: [{ name: 'http', port: 80, targetPort: PORT }] },
          });
        }
      },
      async gone(type, name) {
        const labels = { 'parent-resource': name, 'parent-resource-type': type };
        const selector = Object.entries(labels).map(([key, value]) => `tailscale.com/${key}%3D${value}`);
        const check = async (): Promise<boolean> => {
          const left: string[] = [];
          for (const kind of ['secrets', 'services', 'serviceaccounts', 'pods']) {
            const path = `/api/v1/namespaces/${NAMESPACE}/${kind}?labelSelector=${selector.join(',')}`;
            const { items } = (await cluster.api('GET', path)) as { items: readonly Pod[] };
            left.push(...items.map(({ metadata }) => metadata.name));
          }
          const known = (await nodes()).filter(({ given_name }) => given_name.startsWith(name));
          if (left.length + known.length === 0) return true;
          throw new Error(JSON.stringify({ left, known }));
        };
        return rig.until(`nothing of ${name}`, check, { timeoutMs: 120_000 });
      },
      async restart(set) {
        const annotations = { 'kubectl.kubernetes.io/restartedAt': new Date().toISOString() };
        await cluster.api('PATCH', `/apis/apps/v1/namespaces/${NAMESPACE}/statefulsets/${set}`, {
          spec: { template: { metadata: { annotations } } },
        });
      },
      node: async (name) => (await nodes()).find((node) => node.given_name === name),
    };
  } catch (error) {
    await rig.stop();
    throw error;
  }
}

/** Runs `ask.ts` in the network of a pod. */
function inside(rig: Rig, pod: string, ...args: readonly string[]): Promise<string> {
  return enter(rig, pod, process.execPath, script('ask'), ...args);
}

function load(rig: Rig, pod: string, ...args: readonly string[]): Load {
  const [program = '', ...more] = entered(rig, pod, process.execPath, script('load'), ...args);
  const child = spawn(program, more, { stdio: ['ignore', 'pipe', 'inherit'] });
  const output = child.stdout.setEncoding('utf8').toArray();
  return {
    async end() {
      child.kill('SIGTERM');
      return JSON.parse((await output).join('')) as Awaited<ReturnType<Load['end']>>;
    },
  };
}

/** Timeout of one request, which is long enough for large bodies. */
const LIMIT_MS = 240_000;

/** Runs a program in the network of a pod of the namespace `default`. */
async function enter(rig: Rig, pod: string, ...argv: readonly string[]): Promise<string> {
  const [program = '', ...more] = entered(rig, pod, ...argv);
  const { stdout } = await run(program, more, { encoding: 'utf8', timeout: LIMIT_MS });
  return stdout;
}

function entered(rig: Rig, pod: string, ...argv: readonly string[]): readonly string[] {
  return ['nsenter', `--target=${holderOf(rig, 'default', pod)}`, '--net', ...argv];
}

/** Returns the process that keeps the network namespace of a pod open. */
function holderOf(rig: Rig, namespace: string, pod: string): string {
  return readFileSync(join(rig.folder, 'k1.36', 'node', 'networks', `${namespace}_${pod}`), 'utf8');
}

interface PodProgram {
  readonly id: number;
  readonly name: string;
  readonly effective: string;
}

/** Returns the processes in a network, without the process that keeps the network open. */
function programsOf(holder: string): readonly PodProgram[] {
  const network = readlinkSync(`/proc/${holder}/ns/net`);
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry) && entry !== holder)
    .flatMap((id) => {
      try {
        if (readlinkSync(`/proc/${id}/ns/net`) !== network) return [];
        const status = readFileSync(`/proc/${id}/status`, 'utf8');
        const member = (key: string): string => new RegExp(`^${key}:\\s+(.+)$`, 'm').exec(status)?.[1] ?? '';
        return [{ id: Number(id), name: member('Name'), effective: member('CapEff') }];
      } catch {
        // The process has exited.
        return [];
      }
    });
}

/** Drops all capabilities, like a container with `drop: [ALL]`. */
const POWERLESS = ['setpriv', '--bounding-set=-all', '--inh-caps=-all', '--no-new-privs'];

function images(
  rig: Rig,
  programs: { readonly kernel: string; readonly lean: string; readonly containerboot: string },
): Readonly<Record<string, readonly string[]>> {
  const folder = join(rig.folder, 'image');
  mkdirSync(folder);
  symlinkSync(programs.kernel, join(folder, 'tailscaled'));
  symlinkSync(programs.containerboot, join(folder, 'containerboot'));
  // The lean build of tailscaled includes the client, and acts as the client under this name.
  symlinkSync(programs.lean, join(folder, 'tailscale'));
  const tailscale = [
    'env',
    `PATH=${folder}:/usr/sbin:/usr/bin:/sbin:/bin`,
    'TS_DEBUG_USE_DERP_HTTP=1',
    'TS_DISABLE_PORTMAPPER=1',
    'TS_NO_LOGS_NO_SUPPORT=true',
    'TS_PANIC_IF_HIT_MAIN_CONTROL=1',
    'containerboot',
  ];
  const own = ownImage(rig);
  return {
    'tailscale/tailscale': [...tailscale.slice(0, -1), 'sh', '-c', CONTAINER],
    'tailscale/unprivileged': [...POWERLESS, ...tailscale],
    ...own,
    'tailcast/unprivileged': [...POWERLESS, ...Object.values(own).flat()],
    'tailcast/web': [process.execPath, script('web'), String(PORT)],
  };
}

/**
 * The kubelet double supports only HTTP for preStop hooks, so this script runs the command of an `exec` hook. When the
 * pod stops, only this script gets the stop signal, because `setsid` separates containerboot. The script runs the
 * command, and then stops containerboot.
 */
const CONTAINER = `
[ -n "$TS_INGRESS_PROXIES_CONFIG_PATH" ] || exec containerboot
setsid containerboot & child=$!
trap '${GIVE_UP.at(-1) ?? ''}; kill -TERM $child' TERM
while kill -0 $child 2>/dev/null; do wait $child; done
`;

/** Makes the API server reachable at the address of its Service, and starts kube-proxy for all Services. */
export async function serveApiServer(rig: Rig, cluster: Kubernetes, kubeProxy: string): Promise<void> {
  await cluster.api('POST', '/apis/discovery.k8s.io/v1/namespaces/default/endpointslices', {
    apiVersion: 'discovery.k8s.io/v1',
    kind: 'EndpointSlice',
    metadata: { name: 'kubernetes', labels: { 'kubernetes.io/service-name': 'kubernetes' } },
    addressType: 'IPv4',
    endpoints: [{ addresses: [NODE_ADDRESS] }],
    ports: [{ name: 'https', port: cluster.port, protocol: 'TCP' }],
  });
  rig.launch({
    name: 'kube-proxy',
    path: kubeProxy,
    args: [
      `--kubeconfig=${cluster.kubeconfig('kube-proxy', { token: cluster.tokens.admin })}`,
      '--hostname-override=node-1',
      '--proxy-mode=nftables',
      '--cluster-cidr=10.77.0.0/16',
      '--conntrack-max-per-core=0',
      '--conntrack-tcp-timeout-established=0',
      '--conntrack-tcp-timeout-close-wait=0',
      '--healthz-bind-address=127.0.0.1:10256',
      '--metrics-bind-address=127.0.0.1:10249',
    ],
  });
}

/** Returns a pod with a web server. */
export function webPod(name: string, labels: Readonly<Record<string, string>>): PodManifest {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace: 'default', labels },
    spec: {
      containers: [
        {
          name: 'web',
          image: 'tailcast/web',
          env: [{ name: 'POD_NAME', valueFrom: { fieldRef: { fieldPath: 'metadata.name' } } }],
        },
      ],
    },
  };
}

/** Returns a pod with a web server that is a tailnet node. */
export function tailnetWebPod(
  name: string,
  authKey: string,
  controlUrl: string,
  more: Readonly<Record<string, string>> = {},
): object {
  const node = clientPod(name, authKey, controlUrl, more);
  const web = webPod(name, {});
  return { ...node, spec: { ...node.spec, containers: [...node.spec.containers, ...web.spec.containers] } };
}

interface PodManifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: object;
  readonly spec: { readonly automountServiceAccountToken?: boolean; readonly containers: readonly object[] };
}

/** Returns a pod that is a tailnet node of a user and accepts routes. */
export function clientPod(
  name: string,
  authKey: string,
  controlUrl: string,
  more: Readonly<Record<string, string>> = {},
): PodManifest {
  const env = {
    TS_USERSPACE: 'false',
    TS_AUTHKEY: authKey,
    TS_HOSTNAME: name,
    TS_STATE_DIR: '/tmp/state',
    TS_KUBE_SECRET: '',
    TS_EXTRA_ARGS: `--login-server=${controlUrl} --accept-routes`,
    ...more,
  };
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace: 'default' },
    spec: {
      automountServiceAccountToken: false,
      containers: [
        {
          name: 'tailscale',
          image: 'tailscale/tailscale',
          env: Object.entries(env).map(([variable, value]) => ({ name: variable, value })),
          securityContext: { privileged: true },
        },
      ],
    },
  };
}

export { DOMAIN, NAMESPACE };
