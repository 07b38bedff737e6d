/**
 * tailcast as installed: each role is its own process, started from the command line next to the tailscaled of its
 * node. The API server and the bucket are real.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CreateBucketCommand, S3Client } from '@aws-sdk/client-s3';
import type { Kubernetes } from '../rig/kubernetes.ts';
import { type Program, type Rig, freePort } from '../rig/rig.ts';
import type { S3Server } from '../rig/s3.ts';
import type { TailnetNode } from '../rig/tailnet.ts';

const MAIN = fileURLToPath(new URL('../../../src/main.ts', import.meta.url));
const CAPABILITY = 'tailscale.com/cap/kubernetes';

/** The roles reject unknown variables with the prefix of settings, such as the rig's marker. */
export const WITHOUT_MARKER = ['-u', 'TAILCAST_RIG'] as const;

export interface RoleOptions {
  readonly name: string;
  readonly role: 'gateway' | 'recorder';
  /** Settings by their names on the command line, without dashes. */
  readonly settings: Readonly<Record<string, string>>;
  readonly env?: Readonly<Record<string, string>>;
}

export interface Role {
  readonly program: Program;
  /** Port of `/readyz` and `/metrics` on 127.0.0.1. */
  readonly opsPort: number;
  /** Returns one metric of the process, summed over its labels; 0 if it does not exist. */
  metric(name: string): Promise<number>;
}

/** Starts a role and returns when it reports that it is ready. */
export async function startRole(rig: Rig, { name, role, settings, env = {} }: RoleOptions): Promise<Role> {
  const opsPort = await freePort();
  const ops = `http://127.0.0.1:${opsPort}`;
  const flags = Object.entries(settings).map(([key, value]) => `--${key}=${value}`);
  const program = rig.launch({
    name,
    path: 'env',
    args: [...WITHOUT_MARKER, process.execPath, MAIN, role, ...flags, `--ops-listen=127.0.0.1:${opsPort}`],
    env,
    stopSignal: 'SIGTERM',
  });
  await rig.until(name, () => isReady(ops), { watch: [program] });
  return { program, opsPort, metric: (metric) => readMetric(ops, metric) };
}

async function isReady(ops: string): Promise<true | undefined> {
  const response = await fetch(`${ops}/readyz`, { signal: AbortSignal.timeout(5_000) });
  if (response.ok) return true;
  throw new Error(await response.text());
}

async function readMetric(ops: string, name: string): Promise<number> {
  const text = await (await fetch(`${ops}/metrics`)).text();
  const values = [...text.matchAll(new RegExp(String.raw`^${name}(?:\{[^}]*\})? (\S+)$`, 'gm'))];
  return values.reduce((sum, [, value]) => sum + Number(value), 0);
}

export interface SiteRecorder extends Role {
  /** URL of the page and the API for programs on this machine. */
  readonly url: string;
  readonly port: number;
  /** `ip:port` in the tailnet, for a grant. */
  readonly address: string;
}

/**
 * Starts a recorder with a bucket next to the tailscaled of `node`. By default, the recorder listens on 127.0.0.1, to
 * which a userspace tailscaled forwards connections, so that the recorder can identify uploaders. With `port: 80`, the
 * recorder is behind `tailscale serve`, because gateways that find recorders by tag use port 80. `tailscale serve`
 * listens on that port without privileges, but the recorder cannot identify uploaders.
 */
export async function startSiteRecorder(
  rig: Rig,
  options: {
    readonly name: string;
    readonly node: TailnetNode;
    readonly s3: S3Server;
    readonly bucket: string;
    readonly port?: 80;
    readonly settings?: Readonly<Record<string, string>> | undefined;
  },
): Promise<SiteRecorder> {
  const { name, node, s3, bucket } = options;
  const port = await freePort();
  const role = await startRole(rig, {
    name,
    role: 'recorder',
    settings: {
      listen: `127.0.0.1:${port}`,
      store: `s3://${bucket}/`,
      spool: join(rig.folder, `${name}-spool`),
      's3-endpoint': s3.endpoint,
      's3-region': s3.region,
      identity: options.port === undefined ? 'tailscale' : 'loopback',
      ...(options.port === undefined ? { socket: node.socketPath } : {}),
      hosts: node.addresses[0],
      ...options.settings,
    },
    env: { AWS_ACCESS_KEY_ID: s3.accessKeyId, AWS_SECRET_ACCESS_KEY: s3.secretAccessKey },
  });
  if (options.port !== undefined)
    await node.cli('serve', '--bg', `--tcp=${options.port}`, `tcp://127.0.0.1:${port}`);
  const address = `${node.addresses[0]}:${options.port ?? port}`;
  return { ...role, url: `http://127.0.0.1:${port}`, port, address };
}

/** Creates an empty bucket at the S3 server. */
export async function createBucket(s3: S3Server, bucket: string): Promise<void> {
  const client = new S3Client({
    endpoint: s3.endpoint,
    region: s3.region,
    forcePathStyle: true,
    credentials: s3,
  });
  await client.send(new CreateBucketCommand({ Bucket: bucket }));
  client.destroy();
}

export interface SiteGateway extends Role {
  /** Listening address of the gateway on this machine. */
  readonly host: string;
  readonly port: number;
  /** PEM of the CA that its clients must trust. */
  readonly ca: string;
}

export interface SiteGatewayOptions {
  readonly name: string;
  readonly node: TailnetNode;
  readonly cluster: Kubernetes;
  /**
   * Default `127.0.0.1`, the target of a userspace tailscaled. With any other address, every connection must start
   * with a PROXY header.
   */
  readonly host?: string;
  readonly settings?: Readonly<Record<string, string>>;
}

/** Starts a gateway in auth mode next to the tailscaled of `node`; its account may only impersonate. */
export async function startSiteGateway(rig: Rig, options: SiteGatewayOptions): Promise<SiteGateway> {
  const { name, node, cluster, host = '127.0.0.1' } = options;
  const port = await freePort();
  const stateDirectory = join(rig.folder, `${name}-state`);
  const role = await startRole(rig, {
    name,
    role: 'gateway',
    settings: {
      listen: `${host}:${port}`,
      ...(host === '127.0.0.1' ? {} : { 'proxy-protocol': 'require' }),
      kubeconfig: cluster.kubeconfig(`${name}-upstream`, { token: cluster.tokens.impersonator }),
      socket: node.socketPath,
      'recorder-dial': 'tailscale',
      tls: 'self-signed',
      'tls-names': [node.dnsName, ...node.addresses].join(','),
      'state-directory': stateDirectory,
      ...options.settings,
    },
  });
  return { ...role, host, port, ca: readFileSync(join(stateDirectory, 'ca', 'ca.crt'), 'utf8') };
}

/** Returns a kubeconfig for a user at a tailnet node, through the HTTP or SOCKS proxy of its tailscaled. */
export function kubeconfigAt(
  from: TailnetNode,
  to: {
    readonly node: TailnetNode;
    readonly port: number;
    readonly ca: string;
    readonly cluster: Kubernetes;
  },
  via: 'http' | 'socks5' = 'http',
): string {
  return to.cluster.kubeconfig(`${from.name}-${via}-${to.port}`, {
    server: `https://${to.node.addresses[0]}:${to.port}`,
    ca: to.ca,
    proxyUrl: `${via}://127.0.0.1:${via === 'http' ? from.httpProxyPort : from.socksPort}`,
    token: 'unused',
  });
}

/** Grant for connections from `src` to `tag:k8s`. */
export interface SiteGrant {
  readonly src: string;
  readonly groups: readonly string[];
  /** Recorders by tag or by `ip:port`. */
  readonly recorder?: readonly string[];
  readonly enforce?: boolean;
  readonly events?: boolean;
}

/** Returns a policy that allows all connections, with the grants of the callers at the gateway. */
export function sitePolicy(grants: readonly SiteGrant[], owner = 'alice@example.com'): object {
  return {
    tagOwners: { 'tag:k8s': [owner], 'tag:recorder': [owner], 'tag:ci': [owner] },
    acls: [{ action: 'accept', src: ['*'], dst: ['*:*'] }],
    grants: grants.map(({ src, groups, recorder = [], enforce, events }) => ({
      src: [src],
      dst: ['tag:k8s'],
      app: {
        [CAPABILITY]: [
          {
            impersonate: { groups },
            recorder: recorder.filter((one) => one.startsWith('tag:')),
            recorderAddrs: recorder.filter((one) => !one.startsWith('tag:')),
            ...(enforce === undefined ? {} : { enforceRecorder: enforce }),
            ...(events === undefined ? {} : { enableEvents: events }),
          },
        ],
      },
    })),
  };
}
