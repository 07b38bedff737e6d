/** A Kubernetes control plane of real programs with a simulated node (`test/real/peers/…/kubelet-double`). */
import { readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:https';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { ensurePeer } from './build.ts';
import { type Authority, createAuthority, createSigningKey } from './certificates.ts';
import { bootstrapObjects } from './kubernetes-objects.ts';
import { NODE_ADDRESS } from './network.ts';
import { type Program, type Rig, freePort } from './rig.ts';

export type KubernetesVersion = '1.36' | '1.34';

export interface KubernetesOptions {
  readonly version?: KubernetesVersion;
  /** True to start a controller manager, for service accounts, StatefulSets and garbage collection. Default true. */
  readonly controllers?: boolean;
  /**
   * Options of the cluster node; false: the cluster has no node. `webSockets`: the node accepts WebSocket streams
   * (1.36 only), so the API server does not translate them.
   */
  readonly node?:
    | false
    | {
        readonly webSockets?: boolean;
        readonly images?: Readonly<Record<string, readonly string[]>>;
        /**
         * If set, each pod has its own network namespace with a link to this bridge, and uses this file as
         * `/etc/hosts`.
         */
        readonly network?: { readonly bridge: string; readonly hostsPath: string };
      };
  /** Listening address of the API server. Default: 127.0.0.1. */
  readonly address?: string;
  /** Additional flags of the API server. */
  readonly apiServerFlags?: readonly string[];
}

/**
 * Users of the API server, each with its own token. `impersonator` is a service account with only the right to
 * impersonate.
 */
export type User = 'admin' | 'viewer' | 'nobody' | 'impersonator';

export interface Kubernetes {
  readonly version: KubernetesVersion;
  readonly host: string;
  readonly port: number;
  readonly url: string;
  readonly caPath: string;
  readonly ca: string;
  readonly authority: Authority;
  readonly tokens: Readonly<Record<User, string>>;
  /** Writes a kubeconfig for a token, or for a proxy in front of this API server. */
  kubeconfig(name: string, access: KubeconfigAccess): string;
  /** Sends a JSON request, for set-up and checks. Throws if the status is 400 or higher. */
  api(method: string, path: string, body?: unknown, user?: User): Promise<unknown>;
  /** Returns the audit log in order, with one event for each finished request or started stream. */
  audit(): readonly AuditEvent[];
  readonly programs: {
    readonly etcd: Program;
    readonly apiServer: Program;
    readonly controllers?: Program;
    readonly node?: Program;
  };
}

export interface KubeconfigAccess {
  readonly token?: string;
  readonly server?: string;
  readonly ca?: string;
  readonly insecure?: boolean;
  readonly proxyUrl?: string;
  /** Name for the certificate check if `server` is an address. */
  readonly tlsServerName?: string;
}

/** The parts of an audit event (audit.k8s.io/v1) that tests read. */
export interface AuditEvent {
  readonly auditID: string;
  readonly stage: string;
  readonly requestURI: string;
  readonly verb: string;
  readonly user: {
    readonly username: string;
    readonly uid?: string;
    readonly groups?: readonly string[];
    readonly extra?: Readonly<Record<string, readonly string[]>>;
  };
  readonly impersonatedUser?: {
    readonly username?: string;
    readonly groups?: readonly string[];
    readonly uid?: string;
    readonly extra?: Readonly<Record<string, readonly string[]>>;
  };
  readonly userAgent?: string;
  readonly objectRef?: {
    readonly resource?: string;
    readonly namespace?: string;
    readonly name?: string;
    readonly subresource?: string;
    readonly apiGroup?: string;
    readonly apiVersion?: string;
  };
  readonly responseStatus?: { readonly code?: number };
}

const TOKENS = {
  admin: 'rig-admin-token-4f1c',
  viewer: 'rig-viewer-token-9a2e',
  nobody: 'rig-nobody-token-77b0',
} as const;

const AUDIT_POLICY = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    users: ["system:apiserver", "system:kube-controller-manager", "rig:kubelet-double", "rig:probe"]
  - level: None
    userGroups: ["system:serviceaccounts:kube-system"]
  - level: Metadata
`;

/** Starts a control plane. Resolves when the API server responds, the bootstrap objects exist and the node is ready. */
export async function startKubernetes(rig: Rig, options: KubernetesOptions = {}): Promise<Kubernetes> {
  const version = options.version ?? '1.36';
  const newest = await ensurePeer('kubernetes-1.36');
  const apiServerPath =
    (version === '1.36' ? newest : await ensurePeer('kubernetes-1.34'))['kube-apiserver'] ?? '';
  const folder = join(rig.folder, `k${version}`);
  mkdirSync(folder);
  const authority = await createAuthority(folder, 'ca');
  const [etcdPort, port, signingKey] = await Promise.all([freePort(), freePort(), createSigningKey(folder)]);
  const suffix = `-${version}`;
  const etcd = rig.launch({
    name: `etcd${suffix}`,
    path: newest['etcd'] ?? '',
    args: [
      `--data-dir=${join(folder, 'etcd')}`,
      '--unsafe-no-fsync',
      `--listen-client-urls=http://127.0.0.1:${etcdPort}`,
      `--advertise-client-urls=http://127.0.0.1:${etcdPort}`,
      '--listen-peer-urls=http://127.0.0.1:0',
      '--log-level=warn',
    ],
  });
  const address = options.address ?? LOOPBACK;
  const cluster = createAccess(folder, authority, { address, port }, version);
  const apiServer = rig.launch({
    name: `kube-apiserver${suffix}`,
    path: apiServerPath,
    args: await apiServerArguments(folder, authority, { ...options, etcdPort, address, port, signingKey }),
  });
  await rig.until(`kube-apiserver ${version}`, () => cluster.ready(), { watch: [etcd, apiServer] });
  const controllers =
    options.controllers === false
      ? undefined
      : rig.launch({
          name: `kube-controller-manager${suffix}`,
          path: newest['kube-controller-manager'] ?? '',
          args: [
            `--kubeconfig=${await cluster.clientKubeconfig('controllers', 'system:kube-controller-manager')}`,
            '--controllers=*,-node-lifecycle-controller,-node-ipam-controller',
            '--leader-elect=false',
            '--secure-port=0',
            '--use-service-account-credentials=true',
            `--service-account-private-key-file=${signingKey.privatePath}`,
            `--root-ca-file=${authority.certificatePath}`,
          ],
        });
  const node =
    options.node === false ? undefined : await startNode(rig, cluster, folder, options.node ?? {}, suffix);
  const watch = [etcd, apiServer, ...(controllers ? [controllers] : []), ...(node ? [node] : [])];
  const impersonator = await bootstrap(rig, cluster, watch, controllers !== undefined);
  return {
    version,
    host: address,
    port,
    url: cluster.url,
    caPath: authority.certificatePath,
    ca: authority.certificate,
    authority,
    tokens: { ...TOKENS, impersonator },
    kubeconfig: cluster.kubeconfig,
    api: (method, path, body, user = 'admin') =>
      cluster.call(method, path, body, user === 'impersonator' ? impersonator : TOKENS[user]),
    audit: () => readAudit(join(folder, 'audit.log')),
    programs: {
      etcd,
      apiServer,
      ...(controllers === undefined ? {} : { controllers }),
      ...(node === undefined ? {} : { node }),
    },
  };
}

async function apiServerArguments(
  folder: string,
  authority: Authority,
  {
    etcdPort,
    address,
    port,
    signingKey,
    apiServerFlags = [],
  }: Pick<KubernetesOptions, 'apiServerFlags'> & {
    etcdPort: number;
    address: string;
    port: number;
    signingKey: { privatePath: string; publicPath: string };
  },
): Promise<string[]> {
  const serving = await authority.issue({
    name: 'apiserver',
    commonName: 'kube-apiserver',
    dnsNames: ['localhost', 'kubernetes', 'kubernetes.default', 'kubernetes.default.svc'],
    addresses: [...new Set([LOOPBACK, address, '10.96.0.1'])],
  });
  const toKubelet = await authority.issue({
    name: 'apiserver-kubelet-client',
    commonName: 'kube-apiserver-kubelet-client',
    groups: ['system:masters'],
  });
  const tokenFile = join(folder, 'tokens.csv');
  const probeLine = 'rig-probe-token-1d5c,rig:probe,rig-probe,"system:masters"';
  writeFileSync(
    tokenFile,
    [
      `${TOKENS.admin},rig-admin,rig-admin,"system:masters"`,
      `${TOKENS.viewer},rig-viewer,rig-viewer,"rig:viewers"`,
      `${TOKENS.nobody},rig-nobody,rig-nobody`,
      probeLine,
      '',
    ].join('\n'),
    { mode: 0o600 },
  );
  const auditPolicy = join(folder, 'audit-policy.yaml');
  writeFileSync(auditPolicy, AUDIT_POLICY);
  return [
    `--etcd-servers=http://127.0.0.1:${etcdPort}`,
    `--bind-address=${address}`,
    `--advertise-address=${address}`,
    '--endpoint-reconciler-type=none',
    `--secure-port=${port}`,
    `--tls-cert-file=${serving.certificatePath}`,
    `--tls-private-key-file=${serving.keyPath}`,
    `--client-ca-file=${authority.certificatePath}`,
    `--token-auth-file=${tokenFile}`,
    '--authorization-mode=Node,RBAC',
    '--service-account-issuer=https://kubernetes.default.svc',
    `--service-account-key-file=${signingKey.publicPath}`,
    `--service-account-signing-key-file=${signingKey.privatePath}`,
    '--service-cluster-ip-range=10.96.0.0/16',
    `--kubelet-client-certificate=${toKubelet.certificatePath}`,
    `--kubelet-client-key=${toKubelet.keyPath}`,
    `--kubelet-certificate-authority=${authority.certificatePath}`,
    '--kubelet-preferred-address-types=InternalIP',
    `--audit-policy-file=${auditPolicy}`,
    `--audit-log-path=${join(folder, 'audit.log')}`,
    '--audit-log-mode=blocking',
    '--profiling=false',
    '--allow-privileged=true',
    ...apiServerFlags,
  ];
}

async function startNode(
  rig: Rig,
  cluster: Access,
  folder: string,
  options: Exclude<KubernetesOptions['node'], false | undefined>,
  suffix: string,
): Promise<Program> {
  const { 'kubelet-double': path = '' } = await ensurePeer('kubelet-double');
  const serving = await cluster.authority.issue({
    name: 'kubelet',
    commonName: 'system:node:node-1',
    groups: ['system:nodes'],
    addresses: [options.network === undefined ? LOOPBACK : NODE_ADDRESS],
  });
  const images = Object.entries(options.images ?? {}).map(
    ([image, argv]) => `--image=${image}=${JSON.stringify(argv)}`,
  );
  return rig.launch({
    name: `kubelet-double${suffix}`,
    path,
    // The program stops the processes of its pods on SIGTERM.
    stopSignal: 'SIGTERM',
    args: [
      `--kubeconfig=${await cluster.clientKubeconfig('kubelet-double', 'rig:kubelet-double', ['system:masters'])}`,
      `--root=${join(folder, 'node')}`,
      `--certificate=${serving.certificatePath}`,
      `--key=${serving.keyPath}`,
      `--client-ca=${cluster.authority.certificatePath}`,
      `--websockets=${options.webSockets === true}`,
      ...(options.network === undefined
        ? []
        : [`--bridge=${options.network.bridge}`, `--hosts=${options.network.hostsPath}`]),
      ...images,
    ],
  });
}

/** Creates the objects for all tests. Returns the token of the impersonator. */
async function bootstrap(
  rig: Rig,
  cluster: Access,
  watch: readonly Program[],
  controllers: boolean,
): Promise<string> {
  for (const { path, object } of bootstrapObjects()) await cluster.call('POST', path, object);
  const account = '/api/v1/namespaces/tailcast/serviceaccounts/gateway';
  if (controllers) {
    // Pods need objects that the controller manager creates in each namespace.
    for (const path of ['serviceaccounts/default', 'configmaps/kube-root-ca.crt']) {
      await rig.until(path, () => cluster.call('GET', `/api/v1/namespaces/default/${path}`), { watch });
    }
  }
  const node = watch.find((program) => program.name.startsWith('kubelet-double'));
  if (node !== undefined) await rig.until('the node', () => node.firstLine, { watch });
  const answer = await cluster.call('POST', `${account}/token`, {
    apiVersion: 'authentication.k8s.io/v1',
    kind: 'TokenRequest',
    spec: { expirationSeconds: 24 * 3600 },
  });
  return (answer as { status: { token: string } }).status.token;
}

interface Access {
  readonly url: string;
  readonly authority: Authority;
  ready(): Promise<true | undefined>;
  call(method: string, path: string, body?: unknown, token?: string): Promise<unknown>;
  kubeconfig(name: string, access: KubeconfigAccess): string;
  clientKubeconfig(name: string, user: string, groups?: readonly string[]): Promise<string>;
}

function createAccess(
  folder: string,
  authority: Authority,
  at: Endpoint,
  version: KubernetesVersion,
): Access {
  const url = `https://${at.address}:${at.port}`;

  function write(name: string, user: object, cluster: object): string {
    const path = join(folder, `${name}.kubeconfig`);
    const config = {
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: `rig-${version}`, cluster }],
      users: [{ name, user }],
      contexts: [{ name, context: { cluster: `rig-${version}`, user: name, namespace: 'default' } }],
      'current-context': name,
    };
    writeFileSync(path, JSON.stringify(config, undefined, 2), { mode: 0o600 });
    return path;
  }

  return {
    url,
    authority,
    async ready() {
      const { status } = await exchange(at, authority.certificate, 'GET', '/readyz', PROBE_TOKEN);
      return status === 200 ? true : undefined;
    },
    async call(method, path, body, token = PROBE_TOKEN) {
      const answer = await exchange(at, authority.certificate, method, path, token, body);
      if (answer.status >= 400) throw new Error(`${method} ${path}: ${answer.status} ${answer.body}`);
      return answer.body === '' || !answer.json ? answer.body : JSON.parse(answer.body);
    },
    kubeconfig(name, access) {
      const trust =
        access.insecure === true
          ? { 'insecure-skip-tls-verify': true }
          : {
              'certificate-authority-data': Buffer.from(access.ca ?? authority.certificate).toString(
                'base64',
              ),
            };
      const proxy = access.proxyUrl === undefined ? {} : { 'proxy-url': access.proxyUrl };
      const checked = access.tlsServerName === undefined ? {} : { 'tls-server-name': access.tlsServerName };
      return write(name, access.token === undefined ? {} : { token: access.token }, {
        server: access.server ?? url,
        ...((access.server ?? url).startsWith('https:') ? trust : {}),
        ...proxy,
        ...checked,
      });
    },
    async clientKubeconfig(name, user, groups = []) {
      const leaf = await authority.issue({ name: `client-${name}`, commonName: user, groups });
      return write(
        name,
        { 'client-certificate': leaf.certificatePath, 'client-key': leaf.keyPath },
        { server: url, 'certificate-authority': authority.certificatePath },
      );
    },
  };
}

/** Sends a request of the rig itself; the audit log omits these requests. */
const PROBE_TOKEN = 'rig-probe-token-1d5c';

const LOOPBACK = '127.0.0.1';

interface Endpoint {
  readonly address: string;
  readonly port: number;
}

interface Answer {
  readonly status: number;
  readonly json: boolean;
  readonly body: string;
}

function exchange(
  { address, port }: Endpoint,
  ca: string,
  method: string,
  path: string,
  token: string,
  body?: unknown,
): Promise<Answer> {
  return new Promise((done, fail) => {
    const headers: Record<string, string> = { authorization: `Bearer ${token}`, accept: 'application/json' };
    const payload = body === undefined ? undefined : JSON.stringify(body);
    if (payload !== undefined) {
      headers['content-type'] = method === 'PATCH' ? 'application/merge-patch+json' : 'application/json';
      headers['content-length'] = String(Buffer.byteLength(payload));
    }
    const sent = request({ host: address, port, ca, method, path, headers, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', fail);
      response.on('end', () =>
        done({
          status: response.statusCode ?? 0,
          json: response.headers['content-type']?.startsWith('application/json') === true,
          body: Buffer.concat(chunks).toString(),
        }),
      );
    });
    sent.setTimeout(10_000, () => sent.destroy(new Error(`${method} ${path}: no answer in 10 s`)));
    sent.on('error', fail);
    sent.end(payload);
  });
}

function readAudit(path: string): AuditEvent[] {
  const lines = readFileSync(path, 'utf8').split('\n');
  // The last element is empty or an incomplete line.
  return lines.slice(0, -1).map((line) => JSON.parse(line) as AuditEvent);
}
