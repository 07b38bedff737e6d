/**
 * Runs the containers of the chart's pods as real processes, with the variables and files of the chart: tailcast, and
 * the entry point of the stock image (containerboot) with a real tailscaled.
 */
import { once } from 'node:events';
import {
  chmodSync,
  chownSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { connect as connectTls } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startDemoCluster, type DemoCluster } from '../../../demo/cluster.ts';
import { mergeKubeconfig } from '../../../src/kube/kubeconfig-write.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import {
  ROOT,
  exampleFile,
  manifestsOf,
  template,
  type Container,
  type Manifest,
  type Workload,
} from '../chart/render.ts';
import { createTestAuthority, type TestAuthority } from '../../support/issued-certificates.ts';
import { ensurePeer } from '../rig/build.ts';
import { type Program, type Rig, createRig, freePort } from '../rig/rig.ts';
import { type Tailnet, type TailnetNode, nodeEnvironment, startTailnet } from '../rig/tailnet.ts';

const USER = 65_532;
const POD = 'tc-gateway-0';
const RECORDER = 'tc-recorder-0';
/** Certificates of the tailnet: headscale issues none, so the test issues the certificate of the recorder's node. */
const RECORDER_NAME = `${RECORDER}.lab.ts.net`;
const isRoot = process.getuid?.() === 0;
const CAPABILITY = 'tailscale.com/cap/kubernetes';

let rig: Rig;
let tailnet: Tailnet;
let cluster: DemoCluster;
let folder: string;
let gateway: Program;
let gatewayEnvironment: Record<string, string>;
let recorderPort: number;
let authority: TestAuthority;

beforeAll(async () => {
  const { helm = '' } = await ensurePeer('helm');
  const { containerboot = '' } = await ensurePeer('containerboot');
  const { tailscaled = '' } = await ensurePeer('tailnet');
  rig = createRig();
  tailnet = await startTailnet(rig, {
    nodes: [
      { name: 'alice', user: 'alice@example.com' },
      { name: 'bob', user: 'bob@example.com' },
    ],
    policy: {
      tagOwners: { 'tag:k8s-gateway': ['alice@example.com'], 'tag:tsrecorder': ['alice@example.com'] },
      acls: [{ action: 'accept', src: ['*'], dst: ['*:*'] }],
      grants: [
        {
          src: ['alice@example.com'],
          dst: ['tag:k8s-gateway'],
          app: { [CAPABILITY]: [{ impersonate: { groups: ['sre'] } }] },
        },
      ],
    },
  });
  cluster = await startDemoCluster({ log: createSilentLogger() });
  rig.onStop(() => cluster.close());
  const sets = [
    `tailscale.loginServer=${tailnet.controlUrl}`,
    'tailscale.domain=lab.ts.net',
    'tailscale.state=volume',
    'recorder.ui=true',
    'recorder.viewers={alice@example.com}',
  ];
  const manifests = manifestsOf(
    template(helm, 'tc', '-f', exampleFile('headscale'), ...sets.flatMap((set) => ['--set', set])),
  );
  // Processes of the pods run as another user than the tests, so the folder must be accessible to all users.
  chmodSync(rig.folder, 0o755);
  authority = await createTestAuthority();
  const pods = { manifests, containerboot, tailscaled };
  await Promise.all([startGateway(pods), startRecorder(pods)]);
});

afterAll(() => rig?.stop());

interface Pods {
  readonly manifests: readonly Manifest[];
  readonly containerboot: string;
  readonly tailscaled: string;
}

interface Pod {
  readonly directories: Record<string, string>;
  readonly tailscale: Program;
  /** Variables of the tailcast container. */
  readonly environment: Record<string, string>;
}

/** Starts the tailscale container of a pod, and waits until its node has joined the tailnet. */
async function startNode(
  { manifests, containerboot, tailscaled }: Pods,
  pod: {
    readonly name: string;
    readonly tag: string;
    readonly more: readonly string[];
    /** Returns the serve configuration with the addresses and names of the test. */
    readonly serve: (configuration: string) => string;
    readonly prepare?: (directories: Record<string, string>) => Promise<Record<string, string>>;
  },
): Promise<Pod> {
  const { name } = pod;
  const [set, config] = [name.replace(/-0$/, ''), `${name.replace(/-0$/, '')}-serve`];
  const { spec } = manifests.find(
    (manifest): manifest is Workload => manifest.kind === 'StatefulSet' && manifest.metadata.name === set,
  )!.spec.template;
  const { data } = manifests.find(({ metadata }) => metadata.name === config) as Manifest & {
    data: Record<string, string>;
  };
  const directories = volumes(join(rig.folder, name), [
    'tailscale',
    'tailscale-state',
    'serve',
    'bin',
    ...pod.more,
  ]);
  writeFileSync(join(directories['serve']!, 'serve.json'), pod.serve(data['serve.json']!));
  copyFileSync(tailscaled, join(directories['bin']!, 'tailscaled'));
  symlinkSync('tailscaled', join(directories['bin']!, 'tailscale'));
  const [sidecar] = spec.initContainers!;
  const tailscale = launch(`containerboot-${name}`, [containerboot], {
    ...variablesOf(name, sidecar!, directories),
    TS_AUTHKEY: await tailnet.authKey({ tags: [pod.tag] }),
    TS_LOCAL_ADDR_PORT: `127.0.0.1:${await freePort()}`,
    ...nodeEnvironment(await freePort()),
    PATH: `${directories['bin']}:/usr/bin:/bin`,
    ...(await pod.prepare?.(directories)),
  });
  const status = async (): Promise<true | undefined> =>
    existsSync(join(directories['tailscale']!, 'sock')) && /Startup complete/.test(tailscale.log())
      ? true
      : undefined;
  await rig.until('containerboot', status, { watch: [tailscale], timeoutMs: 40_000 });
  const environment = {
    ...variablesOf(name, spec.containers[0], directories),
    TAILCAST_OPS_LISTEN: `127.0.0.1:${await freePort()}`,
    TAILCAST_LOG_LEVEL: 'debug',
    PATH: '/usr/bin:/bin',
  };
  return { directories, tailscale, environment };
}

/** Starts a role with the variables of its container, and waits until it is ready. */
async function startRole(
  role: 'gateway' | 'recorder',
  { tailscale }: Pod,
  environment: Record<string, string>,
): Promise<Program> {
  const program = launch(role, [process.execPath, join(ROOT, 'src/main.ts'), role], environment);
  const isReady = async (): Promise<true | undefined> =>
    program.log().includes(`${role} is ready`) ? true : undefined;
  await rig.until(`the ${role}`, isReady, { watch: [program, tailscale] });
  return program;
}

async function startGateway(pods: Pods): Promise<void> {
  const port = await freePort();
  const pod = await startNode(pods, {
    name: POD,
    tag: 'tag:k8s-gateway',
    more: ['state', 'kube'],
    serve: (configuration) => configuration.replace(':8443', `:${port}`),
  });
  folder = join(rig.folder, POD);
  const kubeconfig = join(pod.directories['kube']!, 'kubeconfig');
  const entry = {
    name: 'demo',
    server: cluster.url,
    caPem: cluster.caPem,
    userName: 'a',
    token: cluster.adminToken,
  };
  writeFileSync(kubeconfig, mergeKubeconfig(undefined, entry, kubeconfig));
  gatewayEnvironment = {
    ...pod.environment,
    TAILCAST_LISTEN: `127.0.0.77:${port}`,
    TAILCAST_KUBECONFIG: kubeconfig,
  };
  gateway = await startRole('gateway', pod, gatewayEnvironment);
}

async function startRecorder(pods: Pods): Promise<void> {
  const [port, proxied] = await Promise.all([freePort(), freePort()]);
  const pod = await startNode(pods, {
    name: RECORDER,
    tag: 'tag:tsrecorder',
    more: ['data'],
    serve: (configuration) => {
      const named = configuration
        .replace(':8080', `:${proxied}`)
        .replaceAll('${TS_CERT_DOMAIN}', RECORDER_NAME);
      // tailscaled serves certificates for names outside its tailnet only if they are in this list.
      return JSON.stringify({ ...JSON.parse(named), AllowFunnel: { [`${RECORDER_NAME}:443`]: true } });
    },
    async prepare({ 'tailscale-state': state = '' }) {
      const { certificatePem, keyPem } = await authority.issue([RECORDER_NAME]);
      const certificates = owned(join(state, 'certs'));
      const ca = join(certificates, 'authority.pem');
      for (const [path, text] of [
        [ca, authority.caPem],
        [join(certificates, `${RECORDER_NAME}.crt`), certificatePem],
        [join(certificates, `${RECORDER_NAME}.key`), keyPem],
      ] as const)
        writeFileSync(path, text, { mode: 0o644 });
      return { SSL_CERT_FILE: ca, TS_DEBUG_ACME_DIRECTORY_URL: 'http://127.0.0.1:1/directory' };
    },
  });
  recorderPort = port;
  await startRole('recorder', pod, {
    ...pod.environment,
    TAILCAST_LISTEN: `127.0.0.1:${port}`,
    TAILCAST_PROXY_PROTOCOL: pod.environment['TAILCAST_PROXY_PROTOCOL']!.replace(':8080', `:${proxied}`),
  });
}

/**
 * Creates a folder for each volume. The folder belongs to the pod's user, because no kubelet applies `fsGroup` here.
 */
function volumes(parent: string, names: readonly string[]): Record<string, string> {
  mkdirSync(parent, { mode: 0o755 });
  return Object.fromEntries(names.map((name) => [name, owned(join(parent, name))]));
}

/** Creates a folder that belongs to the pod's user. */
function owned(path: string): string {
  mkdirSync(path, { mode: 0o750 });
  if (isRoot) chownSync(path, USER, USER);
  return path;
}

/** Returns the variables of a container, with mount paths replaced by local folders. */
function variablesOf(
  pod: string,
  container: Container,
  directories: Record<string, string>,
): Record<string, string> {
  const mounts = (container.volumeMounts as readonly { name: string; mountPath: string }[]).toSorted(
    (a, b) => b.mountPath.length - a.mountPath.length,
  );
  const values = new Map([['POD_NAME', pod]]);
  for (const { name, value } of container.env) {
    if (value === undefined) continue;
    let text = value.replaceAll('$(POD_NAME)', pod);
    for (const { name: volume, mountPath } of mounts) {
      const path = directories[volume];
      if (path !== undefined && (text === mountPath || text.startsWith(`${mountPath}/`))) {
        text = path + text.slice(mountPath.length);
      }
    }
    values.set(name, text);
  }
  return Object.fromEntries(values);
}

/**
 * Runs a command without the environment of this process. If the tests run as root, the command runs as the pod's user.
 */
function launch(name: string, command: readonly string[], environment: Record<string, string>): Program {
  const user = isRoot ? ['setpriv', `--reuid=${USER}`, `--regid=${USER}`, '--clear-groups'] : [];
  const settings = Object.entries(environment).map(([key, value]) => `${key}=${value}`);
  return rig.launch({
    name,
    path: 'env',
    args: ['-u', 'TAILCAST_RIG', ...settings, ...user, ...command],
    stopSignal: 'SIGTERM',
  });
}

async function address(pod = POD): Promise<string> {
  return rig.until(`the node ${pod}`, async () => {
    const status = JSON.parse(await alice().cli('status', '--json')) as {
      Peer: Record<string, { HostName: string; TailscaleIPs: string[]; Online: boolean }>;
    };
    return Object.values(status.Peer).find(({ HostName }) => HostName === pod)?.TailscaleIPs[0];
  });
}

const alice = (): TailnetNode => tailnet.node('alice');

interface Listed {
  readonly recordings: readonly unknown[];
  /** Name of a viewer who matches no rule. */
  readonly noRuleFor?: string;
}

/** Requests the list of recordings, or another path, in the tailnet from the node of a user, over HTTPS or HTTP. */
async function watch(
  user: 'alice' | 'bob',
  { port = 443, path = '/api/v1/recordings', before }: { port?: number; path?: string; before?: string } = {},
): Promise<{ status: number; text: string }> {
  const socket = await tailnet.node(user).connect(await address(RECORDER), port);
  if (before !== undefined) socket.write(before);
  const stream =
    port === 443 ? connectTls({ socket, ca: authority.caPem, servername: RECORDER_NAME }) : socket;
  if (port === 443) await once(stream, 'secureConnect');
  stream.write(`GET ${path} HTTP/1.1\r\nHost: ${RECORDER_NAME}\r\nConnection: close\r\n\r\n`);
  const answer = await text(stream);
  return { status: Number(answer.split(' ')[1]), text: answer };
}

const listOf = ({ text: answer }: { readonly text: string }): Listed =>
  JSON.parse(/\{[^]*\}/.exec(answer)?.[0] ?? '') as Listed;

/** Sends a request as alice to the gateway's name. Trusts only the gateway's CA. */
async function ask(
  method: string,
  path: string,
  body?: object,
): Promise<{ status: number; body: { readonly status?: { readonly userInfo: unknown } } }> {
  const ca = readFileSync(join(folder, 'state', 'ca', 'ca.crt'));
  const socket = await alice().connect(await address(), 443);
  const tls = connectTls({ socket, ca, servername: `${POD}.lab.ts.net` });
  await once(tls, 'secureConnect');
  const payload = body === undefined ? undefined : JSON.stringify(body);
  const sent = request({
    method,
    path,
    createConnection: () => tls,
    headers: { host: `${POD}.lab.ts.net`, 'content-type': 'application/json', connection: 'close' },
  });
  sent.end(payload);
  const [response] = (await once(sent, 'response')) as [IncomingMessage];
  const text = (await response.toArray()).join('');
  return {
    status: response.statusCode ?? 0,
    body: JSON.parse(text) as { readonly status?: { readonly userInfo: unknown } },
  };
}

describe('the gateway’s pod, in a real tailnet', () => {
  it('joins under its name with its tag', async () => {
    const status = JSON.parse(await alice().cli('status', '--json')) as {
      Peer: Record<string, { HostName: string; Tags?: string[] }>;
    };
    expect(Object.values(status.Peer).find(({ HostName }) => HostName === POD)?.Tags).toEqual([
      'tag:k8s-gateway',
    ]);
  });

  it('serves callers as whom the tailnet says they are, with a certificate for its name', async () => {
    const { status, body } = await ask('POST', '/apis/authentication.k8s.io/v1/selfsubjectreviews', {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'SelfSubjectReview',
    });
    expect(status).toBe(201);
    expect(body.status?.userInfo).toMatchObject({
      username: 'alice@example.com',
      groups: expect.arrayContaining(['sre']),
    });
  });

  it('is well, as its doctor sees it', async () => {
    const doctor = launch(
      'doctor',
      [process.execPath, join(ROOT, 'src/main.ts'), 'doctor', 'gateway', '--json'],
      gatewayEnvironment,
    );
    await rig.until('the doctor', async () => (doctor.running ? undefined : true));
    const log = doctor.log();
    const report = JSON.parse(log.slice(log.indexOf('{\n'), log.lastIndexOf('\n}\n') + 2)) as {
      checks: { id: string; status: string; summary: string }[];
    };
    const found = Object.fromEntries(
      report.checks.map(({ id, status, summary }) => [id, `${status}: ${summary}`]),
    );
    expect(found['tailscaled']).toMatch(/^ok/);
    expect(found['node']).toMatch(/^ok: tc-gateway-0\.lab\.ts\.net .* is tag:k8s-gateway$/);
    expect(found['magic-dns']).toMatch(/^ok/);
    expect(found['certificate']).toMatch(/^ok: self-signed, .*tc-gateway-0\.lab\.ts\.net/);
    expect(found['api-server']).toMatch(/^ok/);
    expect(found['grants']).toContain('alice@example.com on alice.lab.ts.net → sre, not recorded');
    expect(found['state']).toMatch(/^ok/);
  });

  it('keeps its node and its authority when its containers restart', async () => {
    const before = {
      address: await address(),
      ca: readFileSync(join(folder, 'state', 'ca', 'ca.crt'), 'utf8'),
    };
    await gateway.stop();
    gateway.start();
    await rig.until('the gateway', async () => {
      const ready = await ask('GET', '/version').catch(() => undefined);
      return ready?.status === 200 ? true : undefined;
    });
    expect({
      address: await address(),
      ca: readFileSync(join(folder, 'state', 'ca', 'ca.crt'), 'utf8'),
    }).toEqual(before);
  });
});

describe('the recorder’s pod, in a real tailnet', () => {
  it('shows its page over HTTPS, with the certificate of its node', async () => {
    const { status, text: page } = await watch('alice', { path: '/' });
    expect([status, page.toLowerCase().includes('<!doctype html>')]).toEqual([200, true]);
  });

  it.each([443, undefined])('identifies viewers by their node, at port %s', async (port) => {
    const at = { port: port ?? recorderPort };
    const [seen, unseen] = [await watch('alice', at), await watch('bob', at)];
    expect([seen.status, listOf(seen).noRuleFor]).toEqual([200, undefined]);
    expect([unseen.status, listOf(unseen).noRuleFor]).toEqual([200, 'bob@example.com']);
  });

  it('accepts no PROXY header of a viewer', async () => {
    const { addresses } = alice();
    const before = `PROXY TCP4 ${addresses[0]} ${await address(RECORDER)} 1000 443\r\n`;
    await expect(watch('bob', { before })).rejects.toBeDefined();
    expect((await watch('bob', { port: recorderPort, before })).status).not.toBe(200);
  });
});
