/**
 * `tailcast gateway --k3s` in front of a stand-in of k3s: a real API server without anonymous requests, behind a TLS
 * server that has k3s' own paths. tailscaled and the control server are real.
 *
 * k3s itself is not run. `startVpn` does what `pkg/vpn` of k3s does with `--vpn-auth`, and runs a `tailscale` program
 * that logs its arguments.
 */
import { execFile } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer, request as httpsRequest } from 'node:https';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type RunningGateway } from '../../../src/compose/gateway.ts';
import { GATEWAY_CHECKS } from '../../../src/compose/gateway-checks.ts';
import { GATEWAY_SETTINGS } from '../../../src/config/gateway.ts';
import { readSettings } from '../../../src/config/settings.ts';
import { createLogger } from '../../../src/observe/logger.ts';
import { ensurePeer } from '../rig/build.ts';
import { findKubectls, runKubectl } from '../rig/kubectl.ts';
import { startKubernetes, type Kubernetes } from '../rig/kubernetes.ts';
import { createRig, freePort, type Rig } from '../rig/rig.ts';
import { nodeEnvironment, startTailnet, type Tailnet } from '../rig/tailnet.ts';
import { listenOn } from '../../support/listen.ts';

const run = promisify(execFile);
const kubectl = (await findKubectls()).at(-1)!;

/**
 * Starts a TLS server in the role of k3s. The server handles k3s' own paths for authenticated clients, and forwards all
 * other requests to the API server.
 */
async function startFront(cluster: Kubernetes, folder: string) {
  const leaf = await cluster.authority.issue({ name: 'k3s', commonName: 'k3s', addresses: ['127.0.0.1'] });
  const own: string[] = [];
  const target = { host: cluster.host, port: cluster.port, ca: cluster.ca };
  const server = createServer(
    { key: readFileSync(leaf.keyPath), cert: readFileSync(leaf.certificatePath) },
    (incoming, response) => {
      const { method, url: path = '', rawHeaders: headers } = incoming;
      if (/^\/(?:v1-k3s\/|cacerts$|static\/)/.test(path)) {
        own.push(path);
        return void response.end('k3s');
      }
      const asked = httpsRequest(
        { ...target, method, path, headers: [...headers], agent: false },
        (answer) => {
          response.writeHead(answer.statusCode ?? 0, answer.rawHeaders);
          answer.pipe(response);
        },
      );
      asked.on('error', () => response.destroy());
      incoming.pipe(asked);
    },
  );
  server.on('upgrade', ({ method, url, rawHeaders }, client, head: Buffer) => {
    const upstream = connectTls(target, () => {
      const lines = rawHeaders.flatMap((name, index) =>
        index % 2 === 0 ? `${name}: ${rawHeaders[index + 1]}` : [],
      );
      upstream.write(`${method} ${url} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`);
      upstream.write(head);
      upstream.pipe(client).pipe(upstream);
    });
    upstream.on('error', () => client.destroy());
    client.on('error', () => upstream.destroy());
  });
  const port = await listenOn(server);
  const admin = join(folder, 'k3s.yaml');
  const writeAdmin = (): void => {
    const text = cluster.kubeconfig('k3s-admin', {
      token: cluster.tokens.admin,
      server: `https://127.0.0.1:${port}`,
    });
    writeFileSync(admin, readFileSync(text), { mode: 0o600 });
  };
  return { admin, writeAdmin, own, close: () => void (server.closeAllConnections(), server.close()) };
}

describe('a gateway on a k3s server', () => {
  let rig: Rig;
  let tailnet: Tailnet;
  let cluster: Kubernetes;
  let front: Awaited<ReturnType<typeof startFront>>;
  let vpnAuth: string;
  /** Node of the k3s server, not yet in the tailnet. */
  let node: { readonly socketPath: string; readonly bin: string; readonly log: () => string };
  const gateways: RunningGateway[] = [];
  let lines: string[] = [];

  beforeAll(async () => {
    rig = createRig();
    [cluster, tailnet] = await Promise.all([
      startKubernetes(rig, { node: {}, apiServerFlags: ['--anonymous-auth=false'] }),
      startTailnet(rig, { nodes: [{ name: 'alice', user: 'alice@example.com' }], policy: POLICY }),
    ]);
    front = await startFront(cluster, rig.folder);
    front.writeAdmin();
    node = await startNode();
    const key = await tailnet.authKey({ tags: ['tag:k8s'] });
    vpnAuth =
      `name=tailscale,joinKey=${key},controlServerURL=${tailnet.controlUrl},extraArgs=--hostname=k3s ` +
      '--accept-routes';
  });

  afterAll(async () => {
    for (const gateway of gateways) await gateway.close(0);
    front.close();
    await rig.stop();
  });

  /** Starts a tailscaled that needs a login, and writes a program `tailscale` that logs its arguments. */
  async function startNode() {
    const { tailscaled = '' } = await ensurePeer('tailnet');
    const home = join(rig.folder, 'n');
    const bin = join(home, 'bin');
    mkdirSync(bin, { recursive: true, mode: 0o700 });
    const [port, socketPath, client, logPath] = [
      await freePort(),
      join(home, 's'),
      join(home, 'tailscale'),
      join(home, 'arguments.log'),
    ];
    symlinkSync(tailscaled, client);
    writeFileSync(logPath, '');
    writeFileSync(
      join(bin, 'tailscale'),
      `#!/bin/sh\necho "$*" >> '${logPath}'\nexec '${client}' --socket='${socketPath}' "$@"\n`,
    );
    chmodSync(join(bin, 'tailscale'), 0o755);
    const program = rig.launch({
      name: 'tailscaled-k3s',
      path: tailscaled,
      args: ['--tun=userspace-networking', `--port=${port}`, `--statedir=${home}`, `--socket=${socketPath}`],
      env: nodeEnvironment(port),
    });
    await rig.until('tailscaled of k3s', () => run(client, ['--socket', socketPath, 'status', '--json']), {
      watch: [program],
    });
    return { socketPath, bin, log: () => readFileSync(logPath, 'utf8') };
  }

  const tailscale = async (...args: readonly string[]): Promise<string> =>
    (await run(join(node.bin, 'tailscale'), args, { encoding: 'utf8' })).stdout;
  const preferences = (): Promise<string> => tailscale('debug', 'prefs');

  async function start(environment: Readonly<Record<string, string>> = {}): Promise<RunningGateway> {
    lines = [];
    const config = readSettings(
      GATEWAY_SETTINGS,
      {
        flags: new Map<string, unknown>(
          Object.entries({
            k3s: true,
            socket: node.socketPath,
            tls: 'self-signed',
            listen: '127.0.0.1:0',
            opsListen: 'off',
            accessLog: false,
            stateDirectory: join(rig.folder, 'state'),
          }),
        ),
        environment: new Map(),
        file: undefined,
      },
      GATEWAY_CHECKS,
    );
    const configFile = join(rig.folder, 'config.yaml');
    writeFileSync(configFile, `write-kubeconfig: ${front.admin}\nvpn-auth: '${vpnAuth}'\n`);
    const gateway = await startGateway({
      config,
      environment: new Map(Object.entries({ K3S_CONFIG_FILE: configFile, ...environment })),
      log: createLogger({ level: 'info', destination: { write: (line) => void lines.push(line) } }),
      accessSink: process.stderr,
    });
    gateways.push(gateway);
    return gateway;
  }

  /** Runs kubectl as alice, through the tailnet. */
  async function asAlice(gateway: RunningGateway, ...args: readonly string[]) {
    const alice = tailnet.node('alice');
    const [address = ''] = (await tailscale('ip', '-4')).split('\n');
    await rig.until('alice reaches k3s', () => alice.cli('ping', '--c=1', '--until-direct=false', address));
    const kubeconfig = cluster.kubeconfig('alice', {
      token: 'unused',
      server: `https://${address}:${gateway.port}`,
      ca: gateway.caPem!,
      proxyUrl: `http://127.0.0.1:${alice.httpProxyPort}`,
      tlsServerName: 'localhost',
    });
    const { code, stdout, stderr } = await runKubectl(kubectl, args, { kubeconfig });
    return { code, text: stdout.toString(), problem: stderr.toString() };
  }

  it('joins the tailnet through the LocalAPI, creates its account, and serves', async () => {
    const before = readFileSync(front.admin);
    const gateway = await start();
    expect(
      await asAlice(gateway, 'auth', 'whoami', '-o', 'jsonpath={.status.userInfo.username}'),
    ).toMatchObject({
      code: 0,
      text: 'alice@example.com',
    });
    expect(await asAlice(gateway, 'get', 'namespace', 'default', '-o', 'name')).toMatchObject({ code: 0 });
    // the key must not be an argument of `tailscale`, because all users of the machine can see arguments
    expect(node.log().replaceAll(/^ip -4\n/gm, '')).toBe('');
    expect(lines.join('')).toContain(`tailcast kubeconfig https://k3s.lab.ts.net:${gateway.port} `);
    expect(lines.join('')).not.toContain('tskey');
    expect(readFileSync(front.admin)).toEqual(before);
    const [created] = cluster.audit().filter(({ objectRef }) => objectRef?.name === 'tailcast-gateway');
    expect(created?.user.username).toBe('rig-admin');
    for (const name of ['kubeconfig', 'token']) {
      expect(statSync(join(rig.folder, 'state', 'k3s', name)).mode & 0o777).toBe(0o600);
    }
  });

  it('uses an account that may only impersonate and renew its own token', async () => {
    const kubeconfig = join(rig.folder, 'state', 'k3s', 'kubeconfig');
    const may = async (...args: readonly string[]): Promise<string> =>
      (await runKubectl(kubectl, ['auth', 'can-i', ...args], { kubeconfig })).stdout.toString().trim();
    expect(await may('impersonate', 'users')).toBe('yes');
    expect(
      await may('create', 'serviceaccounts/tailcast-gateway', '--subresource=token', '-n', 'tailcast'),
    ).toBe('yes');
    expect(await may('create', 'serviceaccounts/default', '--subresource=token', '-n', 'tailcast')).toBe(
      'no',
    );
    expect(await may('get', 'secrets', '-A')).toBe('no');
    expect(await may('create', 'pods', '-A')).toBe('no');
  });

  it.each(['/v1-k3s/token', '/v1-k3s/cert/cacerts', '/cacerts', '/static/charts/x', '/v1%2Dk3s/token'])(
    'refuses %s, which k3s serves to its nodes',
    async (path) => {
      const { code, problem } = await asAlice(gateways[0]!, 'get', '--raw', path);
      expect(code).toBe(1);
      expect(problem).toContain('for its own nodes');
      expect(front.own).toEqual([]);
    },
  );

  it('starts again without the admin kubeconfig, and changes no node that runs', async () => {
    const [before, objects] = [await preferences(), cluster.audit().length];
    rmSync(front.admin);
    const gateway = await start();
    expect(await asAlice(gateway, 'get', 'namespaces', '-o', 'name')).toMatchObject({ code: 0 });
    expect(await preferences()).toBe(before);
    const admins = cluster
      .audit()
      .slice(objects)
      .filter(({ user }) => user.username === 'rig-admin');
    expect(admins).toEqual([]);
    front.writeAdmin();
  });

  it('leaves a node alone that k3s has logged in, and k3s one that the gateway has logged in', async () => {
    const mark = node.log().length;
    await startVpn(vpnAuth);
    expect(node.log().slice(mark)).toBe('status --json\n');
    await tailscale('logout');
    await startVpn(vpnAuth);
    expect(node.log().slice(mark)).toMatch(
      /status --json\nup --authkey \S+ --timeout=30s --reset --login-server \S+ --hostname=k3s --accept-routes\n$/,
    );
    const before = await preferences();
    await start({ K3S_VPN_AUTH: 'name=tailscale,joinKey=unused,extraArgs=--hostname=other' });
    expect(await preferences()).toBe(before);
  });

  it('does not start with an expired token, or a string that k3s would not accept', async () => {
    await expect(start({ K3S_VPN_AUTH: 'name=tailscale,key=x' })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
    });
    const claims = Buffer.from(JSON.stringify({ iat: 1, exp: 2 })).toString('base64url');
    writeFileSync(join(rig.folder, 'state', 'k3s', 'token'), `e30.${claims}.e30`);
    await expect(start()).rejects.toThrow('the token of the account has expired; delete ');
    rmSync(join(rig.folder, 'state', 'k3s'), { recursive: true });
    const gateway = await start();
    expect(await asAlice(gateway, 'get', 'namespaces', '-o', 'name')).toMatchObject({ code: 0 });
  });

  /** Does what `StartVPN` of k3s does. */
  async function startVpn(text: string): Promise<void> {
    const [pairs = '', extra = ''] = text.split(',extraArgs=');
    const values = new Map(pairs.split(',').map((pair) => [pair.split('=')[0], pair.split('=')[1] ?? '']));
    const status = JSON.parse(await tailscale('status', '--json')) as { readonly BackendState: string };
    if (status.BackendState === 'Running') return;
    const server = values.get('controlServerURL') ?? '';
    const login = server === '' ? [] : ['--login-server', server];
    const key = values.get('joinKey') ?? '';
    await tailscale('up', '--authkey', key, '--timeout=30s', '--reset', ...login, ...extra.split(/\s+/));
  }
});

const POLICY = {
  groups: {},
  tagOwners: { 'tag:k8s': ['alice@example.com'] },
  acls: [{ action: 'accept', src: ['*'], dst: ['*:*'] }],
  grants: [
    {
      src: ['alice@example.com'],
      dst: ['tag:k8s'],
      app: { 'tailscale.com/cap/kubernetes': [{ impersonate: { groups: ['system:masters'] } }] },
    },
  ],
};
