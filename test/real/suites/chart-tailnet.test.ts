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
import { ensurePeer } from '../rig/build.ts';
import { type Program, type Rig, createRig, freePort } from '../rig/rig.ts';
import { type Tailnet, type TailnetNode, nodeEnvironment, startTailnet } from '../rig/tailnet.ts';

const USER = 65_532;
const POD = 'tc-gateway-0';
const isRoot = process.getuid?.() === 0;
const CAPABILITY = 'tailscale.com/cap/kubernetes';

let rig: Rig;
let tailnet: Tailnet;
let cluster: DemoCluster;
let folder: string;
let tailscale: Program;
let gateway: Program;
let gatewayEnvironment: Record<string, string>;

beforeAll(async () => {
  const { helm = '' } = await ensurePeer('helm');
  const { containerboot = '' } = await ensurePeer('containerboot');
  const { tailscaled = '' } = await ensurePeer('tailnet');
  rig = createRig();
  tailnet = await startTailnet(rig, {
    nodes: [{ name: 'alice', user: 'alice@example.com' }],
    policy: {
      tagOwners: { 'tag:k8s-gateway': ['alice@example.com'] },
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
  ];
  const manifests = manifestsOf(
    template(helm, 'tc', '-f', exampleFile('headscale'), ...sets.flatMap((set) => ['--set', set])),
  );
  await startPod(manifests, containerboot, tailscaled);
});

afterAll(() => rig?.stop());

async function startPod(
  manifests: readonly Manifest[],
  containerboot: string,
  tailscaled: string,
): Promise<void> {
  folder = join(rig.folder, POD);
  // Processes of the pod run as another user than the tests, so the folder must be accessible to all users.
  chmodSync(rig.folder, 0o755);
  const pod = manifests.find(
    (manifest): manifest is Workload =>
      manifest.kind === 'StatefulSet' && manifest.metadata.name === 'tc-gateway',
  )!.spec.template.spec;
  const port = await freePort();
  const serve = (
    manifests.find(({ kind }) => kind === 'ConfigMap') as Manifest & { data: Record<string, string> }
  ).data['serve.json']!;
  const directories = volumes(['tailscale', 'tailscale-state', 'state', 'serve', 'bin', 'kube']);
  writeFileSync(join(directories['serve']!, 'serve.json'), serve.replace(':8443', `:${port}`));
  copyFileSync(tailscaled, join(directories['bin']!, 'tailscaled'));
  symlinkSync('tailscaled', join(directories['bin']!, 'tailscale'));
  const [sidecar] = pod.initContainers!;
  tailscale = launch('containerboot', [containerboot], {
    ...variablesOf(sidecar!, directories),
    TS_AUTHKEY: await tailnet.authKey({ tags: ['tag:k8s-gateway'] }),
    TS_LOCAL_ADDR_PORT: `127.0.0.1:${await freePort()}`,
    ...nodeEnvironment(await freePort()),
    PATH: `${directories['bin']}:/usr/bin:/bin`,
  });
  const kubeconfig = join(directories['kube']!, 'kubeconfig');
  const entry = {
    name: 'demo',
    server: cluster.url,
    caPem: cluster.caPem,
    userName: 'a',
    token: cluster.adminToken,
  };
  writeFileSync(kubeconfig, mergeKubeconfig(undefined, entry, kubeconfig));
  gatewayEnvironment = {
    ...variablesOf(pod.containers[0], directories),
    TAILCAST_LISTEN: `127.0.0.77:${port}`,
    TAILCAST_OPS_LISTEN: `127.0.0.1:${await freePort()}`,
    TAILCAST_KUBECONFIG: kubeconfig,
    TAILCAST_LOG_LEVEL: 'debug',
    PATH: '/usr/bin:/bin',
  };
  const status = async (): Promise<true | undefined> =>
    existsSync(join(directories['tailscale']!, 'sock')) && /Startup complete/.test(tailscale.log())
      ? true
      : undefined;
  await rig.until('containerboot', status, { watch: [tailscale], timeoutMs: 40_000 });
  gateway = launch('gateway', [process.execPath, join(ROOT, 'src/main.ts'), 'gateway'], gatewayEnvironment);
  await rig.until(
    'the gateway',
    async () => (gateway.log().includes('gateway is ready') ? true : undefined),
    {
      watch: [gateway, tailscale],
    },
  );
}

/** Creates folders that belong to the pod's user, like volumes with `fsGroup`. */
function volumes(names: readonly string[]): Record<string, string> {
  mkdirSync(folder, { mode: 0o755 });
  return Object.fromEntries(
    names.map((name) => {
      const path = join(folder, name);
      mkdirSync(path, { mode: 0o750 });
      if (isRoot) chownSync(path, USER, USER);
      return [name, path];
    }),
  );
}

/** Variables of a container, with mount paths replaced by local folders. */
function variablesOf(container: Container, directories: Record<string, string>): Record<string, string> {
  const mounts = (container.volumeMounts as readonly { name: string; mountPath: string }[]).toSorted(
    (a, b) => b.mountPath.length - a.mountPath.length,
  );
  const values = new Map([['POD_NAME', POD]]);
  for (const { name, value } of container.env) {
    if (value === undefined) continue;
    let text = value.replaceAll('$(POD_NAME)', POD);
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

async function address(): Promise<string> {
  return rig.until('the gateway’s node', async () => {
    const status = JSON.parse(await alice().cli('status', '--json')) as {
      Peer: Record<string, { HostName: string; TailscaleIPs: string[]; Online: boolean }>;
    };
    return Object.values(status.Peer).find(({ HostName }) => HostName === POD)?.TailscaleIPs[0];
  });
}

const alice = (): TailnetNode => tailnet.node('alice');

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
