/**
 * Runs the commands of README, docs/install.md and docs/operate.md for a host that is a tailnet node, with addresses
 * and folders of this machine. One word differs: headscale issues no certificates, so `--tls tailscale` becomes `--tls
 * files`, with files in the layout of a mounted Secret.
 */
import { once } from 'node:events';
import { mkdirSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { request as plainRequest } from 'node:http';
import { request } from 'node:https';
import { join } from 'node:path';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startDemoCluster, type DemoCluster } from '../../../demo/cluster.ts';
import { mergeKubeconfig } from '../../../src/kube/kubeconfig-write.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { argumentsOf, commandsOf, type Words } from '../../docs/ledger.ts';
import { createTestAuthority, type TestAuthority } from '../../support/issued-certificates.ts';
import { ROOT } from '../chart/render.ts';
import { ensurePeer } from '../rig/build.ts';
import { type Program, type Rig, createRig, freePort } from '../rig/rig.ts';
import { type Tailnet, startTailnet } from '../rig/tailnet.ts';

const CAPABILITY = 'tailscale.com/cap/kubernetes';
const NAME = 'gateway.lab.ts.net';

let rig: Rig;
let tailnet: Tailnet;
let cluster: DemoCluster;
let authority: TestAuthority;
let secret: string;
let kubeconfig: string;
let store: string;
let served: number;
let versions = 0;

beforeAll(async () => {
  await ensurePeer('tailnet');
  rig = createRig();
  const gateway = 'tag:k8s-gateway';
  const recorder = 'tag:tsrecorder';
  tailnet = await startTailnet(rig, {
    nodes: [
      { name: 'gateway', tags: [gateway] },
      { name: 'recorder', tags: [recorder] },
      { name: 'alice', user: 'alice@example.com' },
    ],
    policy: {
      tagOwners: { [gateway]: ['alice@example.com'], [recorder]: ['alice@example.com'] },
      acls: [{ action: 'accept', src: ['*'], dst: ['*:*'] }],
      grants: [
        {
          src: ['alice@example.com'],
          dst: [gateway],
          app: { [CAPABILITY]: [{ impersonate: { groups: ['sre'] } }] },
        },
      ],
    },
  });
  cluster = await startDemoCluster({ log: createSilentLogger() });
  rig.onStop(() => cluster.close());
  const { url: server, caPem, adminToken: token } = cluster;
  kubeconfig = join(rig.folder, 'kubeconfig');
  const entry = { name: 'demo', server, caPem, userName: 'a', token };
  writeFileSync(kubeconfig, mergeKubeconfig(undefined, entry, kubeconfig), { mode: 0o600 });
  authority = await createTestAuthority();
  secret = join(rig.folder, 'secret');
  mkdirSync(secret);
  await publish();
  store = join(rig.folder, 'recordings');
  served = await freePort();
});

afterAll(() => rig?.stop());

/**
 * Publishes a new certificate as the kubelet updates a Secret volume: creates a new folder and replaces the symlink.
 */
async function publish(): Promise<string> {
  const { certificatePem, keyPem } = await authority.issue([NAME, 'gateway']);
  versions += 1;
  const version = `..${versions}`;
  mkdirSync(join(secret, version));
  writeFileSync(join(secret, version, 'tls.crt'), certificatePem);
  writeFileSync(join(secret, version, 'tls.key'), keyPem, { mode: 0o600 });
  symlinkSync(version, join(secret, '..data_tmp'));
  renameSync(join(secret, '..data_tmp'), join(secret, '..data'));
  if (versions === 1) {
    for (const name of ['tls.crt', 'tls.key']) symlinkSync(join('..data', name), join(secret, name));
  }
  return certificatePem;
}

const files = (): Words => ({
  '--tls tailscale': `--tls files --tls-cert ${join(secret, 'tls.crt')} --tls-key ${join(secret, 'tls.key')}`,
});

/** Starts a documented `tailcast` command. Variables replace the usual paths of a host. */
function tailcast(
  command: string,
  words: Words,
  node: 'gateway' | 'recorder',
  variables: Words = {},
): Program {
  const [program, ...args] = argumentsOf(command, words);
  expect(program).toBe('tailcast');
  const all: Words = {
    KUBECONFIG: kubeconfig,
    TAILCAST_SOCKET: tailnet.node(node).socketPath,
    TAILCAST_OPS_LISTEN: 'off',
    ...variables,
  };
  return rig.launch({
    name: `tailcast-${args[0]}-${versions}-${Math.random().toString(36).slice(2, 8)}`,
    path: 'env',
    args: [
      '-u',
      'TAILCAST_RIG',
      ...Object.entries(all).map(([name, value]) => `${name}=${value}`),
      process.execPath,
      join(ROOT, 'src/main.ts'),
      ...args,
    ],
    stopSignal: 'SIGTERM',
  });
}

const saying = (program: Program, text: string): Promise<true> =>
  rig.until(`"${text}"`, async () => (program.log().includes(text) ? true : undefined), { watch: [program] });

/** Waits until a command has exited, and returns its output. */
async function outcome(program: Program): Promise<string> {
  await rig.until('its end', async () => (program.running ? undefined : true), { timeoutMs: 40_000 });
  return program.log();
}

async function dial(port: number): Promise<TLSSocket> {
  const socket = await tailnet.node('alice').connect(tailnet.node('gateway').addresses[0], port);
  const tls = connectTls({ socket, ca: authority.caPem, servername: NAME });
  await once(tls, 'secureConnect');
  return tls;
}

/** Returns alice's identity at the API server, through a port of the gateway's node. */
async function whoAmI(port: number): Promise<{ username: string; groups: string[] }> {
  const tls = await dial(port);
  const sent = request({
    method: 'POST',
    path: '/apis/authentication.k8s.io/v1/selfsubjectreviews',
    createConnection: () => tls,
    headers: { host: NAME, 'content-type': 'application/json', connection: 'close' },
  });
  sent.end(JSON.stringify({ apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' }));
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  const text = (await response.toArray()).join('');
  if (response.statusCode !== 201) throw new Error(text);
  return (JSON.parse(text) as { status: { userInfo: { username: string; groups: string[] } } }).status
    .userInfo;
}

const ALICE = { username: 'alice@example.com', groups: expect.arrayContaining(['sre']) };

/** Returns the failed checks of a doctor report, except those that must fail in this set-up. */
function failures(report: string, expected: readonly string[]): readonly string[] {
  const lines = report.split('\n').filter((line) => line.startsWith('FAIL'));
  return lines.filter((line) => !expected.some((title) => line.includes(title)));
}

interface Report {
  readonly checks: readonly { readonly id: string; readonly status: string; readonly summary: string }[];
}

/** Functions that test the documented commands, by command. */
const CASES: Readonly<Record<string, (command: string) => Promise<void>>> = {
  'tailscale serve --bg --tcp 443 --proxy-protocol 2 tcp://127.0.0.77:8443': async (command) => {
    const [program, ...args] = argumentsOf(command, { '127.0.0.77:8443': `127.0.0.77:${served}` });
    expect(program).toBe('tailscale');
    await tailnet.node('gateway').cli(...args);
    expect(await tailnet.node('gateway').cli('serve', 'status', '--json')).toContain(`127.0.0.77:${served}`);
  },

  'tailcast gateway --listen 127.0.0.77:8443 --proxy-protocol require --tls tailscale --recorder-dial tailscale':
    async (command) => {
      const words = { '127.0.0.77:8443': `127.0.0.77:${served}`, ...files() };
      const gateway = tailcast(command, words, 'gateway');
      await saying(gateway, 'gateway is ready');
      expect(await whoAmI(443)).toMatchObject(ALICE);
      const before = await serialAt(443);
      await publish();
      await rig.until('the new certificate', async () =>
        (await serialAt(443)) === before ? undefined : true,
      );
      expect(await whoAmI(443)).toMatchObject(ALICE);
      expect(gateway.running).toBe(true);
      await gateway.stop();
    },

  'tailcast doctor gateway --listen 127.0.0.77:8443 --proxy-protocol require --tls tailscale --recorder-dial tailscale':
    async (command) => {
      const words = { '127.0.0.77:8443': `127.0.0.77:${served}`, ...files() };
      const report = await outcome(tailcast(command, words, 'gateway'));
      expect(report).toMatch(/ok +.*gateway\.lab\.ts\.net .*tag:k8s-gateway/);
      expect(report).toContain('alice@example.com');
      // The gateway's account is the administrator of the demo, so the checks for additional rights fail.
      expect(failures(report, ['May nothing else', 'may nothing else'])).toEqual([]);
    },

  'tailcast gateway --listen 127.0.0.1:443 --tls tailscale --recorder-dial tailscale': async (command) => {
    const port = await freePort();
    const gateway = tailcast(command, { '127.0.0.1:443': `127.0.0.1:${port}`, ...files() }, 'gateway');
    await saying(gateway, 'gateway is ready');
    expect(await whoAmI(port)).toMatchObject(ALICE);
    await gateway.stop();
  },

  // A node in kernel mode has its address on the machine; a node in userspace mode forwards connections to loopback.
  'tailcast gateway --listen 100.64.0.9:443 --tls tailscale': async (command) => {
    const port = await freePort();
    const gateway = tailcast(command, { '100.64.0.9:443': `127.0.0.1:${port}`, ...files() }, 'gateway');
    await saying(gateway, 'gateway is ready');
    expect(await whoAmI(port)).toMatchObject(ALICE);
    await gateway.stop();
  },

  'tailcast recorder --listen $(tailscale ip -4):80 --store /var/lib/tailcast/recordings --uploaders tag:k8s-gateway':
    (command) => recorder(command),

  'tailcast doctor recorder --listen $(tailscale ip -4):80 --store /var/lib/tailcast/recordings --uploaders tag:k8s-gateway':
    async (command) => {
      const words = {
        '$(tailscale ip -4):80': `127.0.0.1:${await freePort()}`,
        '/var/lib/tailcast/recordings': store,
      };
      const report = await outcome(tailcast(command, words, 'recorder'));
      expect(report).toMatch(/ok +.*recorder\.lab\.ts\.net .*tag:tsrecorder/);
      expect(failures(report, [])).toEqual([]);
    },

  // As documented, this command reads the gateway's settings from environment variables.
  'tailcast doctor gateway --json': async (command) => {
    const variables = {
      TAILCAST_LISTEN: `127.0.0.77:${served}`,
      TAILCAST_PROXY_PROTOCOL: 'require',
      TAILCAST_RECORDER_DIAL: 'tailscale',
      TAILCAST_TLS: 'files',
      TAILCAST_TLS_CERT: join(secret, 'tls.crt'),
      TAILCAST_TLS_KEY: join(secret, 'tls.key'),
    };
    const { checks } = reportOf(await outcome(tailcast(command, {}, 'gateway', variables)));
    const found = new Map(checks.map(({ id, status }) => [id, status]));
    for (const id of ['tailscaled', 'node', 'certificate', 'api-server', 'grants'])
      expect(found.get(id), id).toBe('ok');
  },

  'tailcast doctor recorder --json --store /var/lib/tailcast/recordings': async (command) => {
    const words = { '/var/lib/tailcast/recordings': store };
    const { checks } = reportOf(
      await outcome(
        tailcast(command, words, 'recorder', { TAILCAST_LISTEN: `127.0.0.1:${await freePort()}` }),
      ),
    );
    expect(checks.filter(({ status }) => status === 'failed')).toEqual([]);
    expect(checks.map(({ id }) => id)).toContain('tailscaled');
  },
};

async function recorder(command: string): Promise<void> {
  const port = await freePort();
  const words = { '$(tailscale ip -4):80': `127.0.0.1:${port}`, '/var/lib/tailcast/recordings': store };
  const program = tailcast(command, words, 'recorder');
  await saying(program, 'recorder is ready');
  const socket = await tailnet.node('gateway').connect(tailnet.node('recorder').addresses[0], port);
  const sent = plainRequest({
    path: '/healthz',
    createConnection: () => socket,
    headers: { host: 'recorder' },
  });
  sent.end();
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  expect(response.resume().statusCode).toBe(200);
  await program.stop();
}

async function serialAt(port: number): Promise<string> {
  const tls = await dial(port);
  const { serialNumber } = tls.getPeerCertificate();
  tls.destroy();
  return serialNumber;
}

function reportOf(log: string): Report {
  return JSON.parse(log.slice(log.indexOf('{\n'), log.lastIndexOf('\n}\n') + 2)) as Report;
}

describe('a shown command', () => {
  it.each(commandsOf('host'))('does on a node of the tailnet what the page says: %s', async (command) => {
    const one = CASES[command];
    expect(one, 'what it does').toBeDefined();
    await one?.(command);
  });

  it('is shown for each that is tried', () => {
    expect(Object.keys(CASES).filter((command) => !commandsOf('host').includes(command))).toEqual([]);
  });
});
