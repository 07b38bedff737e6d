/** A tailnet of real programs on the loopback interface: headscale as control server, tailscaled in userspace mode. */
import { execFile } from 'node:child_process';
import { mkdirSync, symlinkSync, writeFileSync, readFileSync } from 'node:fs';
import { once } from 'node:events';
import { type Socket, connect } from 'node:net';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { ensurePeer } from './build.ts';
import { type Program, type Rig, freePort } from './rig.ts';

const run = promisify(execFile);

export interface TailnetNode {
  readonly name: string;
  /** MagicDNS name without the dot at its end. */
  readonly dnsName: string;
  readonly addresses: readonly [ipv4: string, ipv6: string];
  readonly socketPath: string;
  /** Proxies into the tailnet, for clients of this node: `socks5h://…` and `http://…`. */
  readonly socksPort: number;
  readonly httpProxyPort: number;
  readonly program: Program;
  /** Returns the private machine key in base64, as tailscaled stores it in its state. */
  machineKey(): string;
  /**
   * Connects to a tailnet address as a program on this node would.
   *
   * @throws Error if the node cannot reach the address
   */
  connect(address: string, port: number): Promise<Socket>;
  /** Runs the node's command line client. */
  cli(...args: readonly string[]): Promise<string>;
}

export interface Tailnet {
  readonly controlUrl: string;
  readonly nodes: Readonly<Record<string, TailnetNode>>;
  readonly control: Program;
  node(name: string): TailnetNode;
  /** Adds a node to the tailnet. */
  join(options: NodeOptions): Promise<TailnetNode>;
  /** Creates a reusable auth key for nodes of this user or with these tags. */
  authKey(owner: { readonly user: string } | { readonly tags: readonly string[] }): Promise<string>;
  /** Replaces the policy; nodes receive it within milliseconds. */
  setPolicy(policy: object): void;
  /** Replaces the additional DNS names of the tailnet; the values are IPv4 addresses. */
  setNames(names: Readonly<Record<string, string>>): void;
  /** Removes a node from the control server, as an administrator does. */
  remove(name: string): Promise<void>;
  /** Runs headscale's command line client and parses its JSON. */
  admin(...args: readonly string[]): Promise<unknown>;
}

export interface NodeOptions {
  readonly name: string;
  /** User of the node; undefined for a tagged node. */
  readonly user?: string;
  readonly tags?: readonly string[];
}

export interface TailnetOptions {
  readonly nodes?: readonly NodeOptions[];
  readonly policy?: object;
  /** Listening address of the control server. Default: 127.0.0.1. */
  readonly address?: string;
}

export const DOMAIN = 'lab.ts.net';

const CONNECT_MS = 15_000;

/** The nodes of the standard tailnet; `ci` is a tagged client. */
const STANDARD_NODES: readonly NodeOptions[] = [
  { name: 'proxy', tags: ['tag:k8s'] },
  { name: 'recorder', tags: ['tag:recorder'] },
  { name: 'alice', user: 'alice@example.com' },
  { name: 'bob', user: 'bob@example.com' },
  { name: 'ci', tags: ['tag:ci'] },
];

/** Returns a policy: alice is a cluster administrator with recorded sessions, bob a viewer, `tag:ci` a deployer. */
export function standardPolicy(): object {
  const capability = 'tailscale.com/cap/kubernetes';
  return {
    groups: {},
    tagOwners: {
      'tag:k8s': ['alice@example.com'],
      'tag:recorder': ['alice@example.com'],
      'tag:ci': ['alice@example.com'],
    },
    acls: [{ action: 'accept', src: ['*'], dst: ['*:*'] }],
    grants: [
      {
        src: ['alice@example.com'],
        dst: ['tag:k8s'],
        app: {
          [capability]: [
            {
              impersonate: { groups: ['system:masters'] },
              recorder: ['tag:recorder'],
              enforceRecorder: true,
            },
          ],
        },
      },
      {
        src: ['bob@example.com'],
        dst: ['tag:k8s'],
        app: { [capability]: [{ impersonate: { groups: ['rig:viewers'] } }] },
      },
      {
        src: ['tag:ci'],
        dst: ['tag:k8s'],
        app: { [capability]: [{ impersonate: { groups: ['rig:deployers'] } }] },
      },
    ],
  };
}

/** Starts the control server and the nodes, and returns when all nodes can reach each other. */
export async function startTailnet(rig: Rig, options: TailnetOptions = {}): Promise<Tailnet> {
  const { headscale = '', tailscaled = '' } = await ensurePeer('tailnet');
  const folder = join(rig.folder, 'tn');
  mkdirSync(folder);
  const policyPath = join(folder, 'policy.json');
  writeFileSync(policyPath, JSON.stringify(options.policy ?? standardPolicy()));
  const namesPath = join(folder, 'names.json');
  writeFileSync(namesPath, '[]');
  const [port, metricsPort, grpcPort, stunPort] = await Promise.all([
    freePort(),
    freePort(),
    freePort(),
    freePort(),
  ]);
  const address = options.address ?? '127.0.0.1';
  const controlUrl = `http://${address}:${port}`;
  const configPath = join(folder, 'headscale.json');
  writeFileSync(
    configPath,
    JSON.stringify(
      controlConfig(folder, { address, port, metricsPort, grpcPort, stunPort, policyPath, namesPath }),
    ),
  );
  const control = rig.launch({ name: 'headscale', path: headscale, args: ['serve', '--config', configPath] });
  await rig.until('headscale', () => healthy(`${controlUrl}/health`), { watch: [control] });

  async function admin(...args: readonly string[]): Promise<unknown> {
    const { stdout } = await run(headscale, [...args, '--config', configPath, '--output', 'json'], {
      encoding: 'utf8',
    });
    return JSON.parse(stdout === '' ? 'null' : stdout);
  }

  const users = new Map<string, Promise<string>>();
  function userId(name: string): Promise<string> {
    const known = users.get(name);
    if (known !== undefined) return known;
    const created = createUser(admin, name);
    users.set(name, created);
    return created;
  }

  async function authKey(owner: { user: string } | { tags: readonly string[] }): Promise<string> {
    const whose = 'user' in owner ? ['--user', await userId(owner.user)] : ['--tags', owner.tags.join(',')];
    const answer = await admin('preauthkeys', 'create', '--reusable', '--expiration', '24h', ...whose);
    return (answer as { key: string }).key;
  }

  const nodes: Record<string, TailnetNode> = {};
  async function joinNode(node: NodeOptions): Promise<TailnetNode> {
    const owner = node.tags === undefined ? { user: node.user ?? 'nobody@example.com' } : { tags: node.tags };
    const joined = await startNode(rig, {
      folder,
      tailscaled,
      controlUrl,
      name: node.name,
      authKey: await authKey(owner),
    });
    nodes[node.name] = joined;
    return joined;
  }

  // The policy names these users, so they must exist before the first node requests its rules.
  await Promise.all(
    [...new Set((options.nodes ?? STANDARD_NODES).flatMap((node) => node.user ?? []))].map(userId),
  );
  control.signal('SIGHUP');
  await Promise.all((options.nodes ?? STANDARD_NODES).map(joinNode));
  await meshed(rig, Object.values(nodes));

  return {
    controlUrl,
    nodes,
    control,
    node(name) {
      const node = nodes[name];
      if (node === undefined) throw new Error(`no node ${name} in this tailnet`);
      return node;
    },
    async join(node) {
      const joined = await joinNode(node);
      await meshed(
        rig,
        Object.values(nodes).filter(({ program }) => program.running),
      );
      return joined;
    },
    authKey,
    setPolicy(policy) {
      writeFileSync(policyPath, JSON.stringify(policy));
      control.signal('SIGHUP');
    },
    setNames(names) {
      const records = Object.entries(names).map(([Name, Value]) => ({ Name, Value }));
      writeFileSync(namesPath, JSON.stringify(records));
    },
    async remove(name) {
      const list = (await admin('nodes', 'list')) as { id: string | number; given_name: string }[];
      const found = list.find((node) => node.given_name === name);
      if (found === undefined) throw new Error(`the control server knows no node ${name}`);
      await admin('nodes', 'delete', '--identifier', String(found.id), '--force');
    },
    admin,
  };
}

async function createUser(admin: Tailnet['admin'], name: string): Promise<string> {
  const email = name.includes('@') ? ['--email', name] : [];
  const answer = await admin('users', 'create', name, ...email);
  return String((answer as { id: string | number }).id);
}

interface NodeSetup {
  readonly folder: string;
  readonly tailscaled: string;
  readonly controlUrl: string;
  readonly name: string;
  readonly authKey: string;
}

async function startNode(
  rig: Rig,
  { folder, tailscaled, controlUrl, name, authKey }: NodeSetup,
): Promise<TailnetNode> {
  // The folder is private, because every user who can open the LocalAPI socket may use it.
  const home = join(folder, name);
  mkdirSync(home, { mode: 0o700 });
  const socketPath = join(home, 's');
  const [port, socksPort, httpProxyPort] = await Promise.all([freePort(), freePort(), freePort()]);
  const program = rig.launch({
    name: `tailscaled-${name}`,
    path: tailscaled,
    args: [
      '--tun=userspace-networking',
      `--port=${port}`,
      `--statedir=${home}`,
      `--socket=${socketPath}`,
      `--socks5-server=127.0.0.1:${socksPort}`,
      `--outbound-http-proxy-listen=127.0.0.1:${httpProxyPort}`,
    ],
    env: nodeEnvironment(port),
  });
  // tailscaled includes the command line client, and acts as the client if its name is `tailscale`.
  const client = join(home, 'tailscale');
  symlinkSync(tailscaled, client);
  async function cli(...args: readonly string[]): Promise<string> {
    const { stdout } = await run(client, ['--socket', socketPath, ...args], {
      encoding: 'utf8',
      timeout: 30_000,
    });
    return stdout;
  }
  await rig.until(`tailscaled of ${name}`, () => cli('status', '--json'), { watch: [program] });
  await cli(
    'up',
    `--login-server=${controlUrl}`,
    `--authkey=${authKey}`,
    `--hostname=${name}`,
    '--accept-dns=false',
    '--accept-routes=false',
    '--timeout=30s',
  );
  const self = (
    JSON.parse(await cli('status', '--json')) as { Self: { DNSName: string; TailscaleIPs: [string, string] } }
  ).Self;
  return {
    name,
    dnsName: self.DNSName.replace(/\.$/, ''),
    addresses: self.TailscaleIPs,
    socketPath,
    socksPort,
    httpProxyPort,
    program,
    machineKey() {
      const state = JSON.parse(readFileSync(join(home, 'tailscaled.state'), 'utf8')) as {
        readonly _machinekey: string;
      };
      return state._machinekey;
    },
    connect: (address, targetPort) => connectThrough(httpProxyPort, address, targetPort),
    cli,
  };
}

/**
 * Returns the environment variables that keep a node on this machine: no log upload, no port mapping, relays without
 * TLS.
 */
export function nodeEnvironment(port: number): Record<string, string> {
  return {
    TS_DEBUG_USE_DERP_HTTP: '1',
    TS_DEBUG_OMIT_LOCAL_ADDRS: '1',
    TS_DISABLE_PORTMAPPER: '1',
    TS_NO_LOGS_NO_SUPPORT: 'true',
    TS_PANIC_IF_HIT_MAIN_CONTROL: '1',
    TS_ASSUME_NETWORK_UP_FOR_TEST: '1',
    TS_DEBUG_PRETENDPOINT: `127.0.0.1:${port}`,
  };
}

/** Opens a tunnel through the node's HTTP proxy. Bytes that the peer sends early stay readable from the socket. */
async function connectThrough(proxyPort: number, address: string, port: number): Promise<Socket> {
  const socket = connect({ host: '127.0.0.1', port: proxyPort, allowHalfOpen: true });
  const target = `${address.includes(':') ? `[${address}]` : address}:${port}`;
  socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: ${target}\r\n\r\n`);
  let head = '';
  while (!head.endsWith('\r\n\r\n')) {
    const byte: unknown = socket.read(1);
    if (byte instanceof Buffer) head += byte.toString('latin1');
    else if (socket.readableEnded) break;
    else await once(socket, 'readable', { signal: AbortSignal.timeout(CONNECT_MS) });
  }
  if (/^HTTP\/1\.[01] 200 /.test(head)) return socket;
  socket.destroy();
  throw new Error(`no way to ${target}: ${head.split('\r\n')[0] ?? ''}`);
}

/** Sends pings between each pair of nodes, because `up` resolves before the other nodes know a new node. */
async function meshed(rig: Rig, nodes: readonly TailnetNode[]): Promise<void> {
  const watch = nodes.map(({ program }) => program);
  await Promise.all(
    nodes.flatMap((from) =>
      nodes
        .filter((to) => to.name > from.name)
        .map((to) =>
          rig.until(`${from.name} reaches ${to.name}`, () => ping(from, to.addresses[0]), { watch }),
        ),
    ),
  );
}

/** @throws Error if the address does not respond */
export function ping(from: TailnetNode, address: string): Promise<string> {
  return from.cli('ping', '--c=1', '--timeout=2s', '--until-direct=false', address);
}

async function healthy(url: string): Promise<true | undefined> {
  const response = await fetch(url, { signal: AbortSignal.timeout(2_000) });
  await response.arrayBuffer();
  return response.ok ? true : undefined;
}

interface ControlSetup {
  readonly address: string;
  readonly port: number;
  readonly metricsPort: number;
  readonly grpcPort: number;
  readonly stunPort: number;
  readonly policyPath: string;
  readonly namesPath: string;
}

/** Settings of headscale. The default settings would contact servers outside this machine. */
function controlConfig(
  folder: string,
  { address, port, metricsPort, grpcPort, stunPort, policyPath, namesPath }: ControlSetup,
): object {
  return {
    server_url: `http://${address}:${port}`,
    listen_addr: `${address}:${port}`,
    metrics_listen_addr: `127.0.0.1:${metricsPort}`,
    grpc_listen_addr: `127.0.0.1:${grpcPort}`,
    unix_socket: join(folder, 'h'),
    unix_socket_permission: '0700',
    noise: { private_key_path: join(folder, 'noise.key') },
    prefixes: { v4: '100.64.0.0/10', v6: 'fd7a:115c:a1e0::/48', allocation: 'sequential' },
    derp: {
      server: {
        enabled: true,
        region_id: 999,
        region_code: 'lab',
        region_name: 'lab',
        verify_clients: true,
        stun_listen_addr: `${address}:${stunPort}`,
        private_key_path: join(folder, 'derp.key'),
        automatically_add_embedded_derp_region: true,
        ipv4: address,
        // An unreachable address delays each network check by three seconds.
        ipv6: 'none',
      },
      urls: [],
      paths: [],
      auto_update_enabled: false,
    },
    disable_check_updates: true,
    database: { type: 'sqlite', sqlite: { path: join(folder, 'db.sqlite'), write_ahead_log: true } },
    policy: { mode: 'file', path: policyPath },
    dns: {
      magic_dns: true,
      base_domain: DOMAIN,
      override_local_dns: false,
      nameservers: { global: [], split: {} },
      search_domains: [],
      extra_records_path: namesPath,
    },
    logtail: { enabled: false },
    tuning: { batch_change_delay: '20ms', node_store_batch_timeout: '10ms' },
    log: { level: 'info', format: 'json' },
  };
}
