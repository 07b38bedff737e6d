/**
 * Installs the chart of a release, only from the release's folder, in a real cluster, up to the first recorded shell.
 * The pods run from the image of the release with the specification at the API server (`support/pod-container.ts`). The
 * stock container in each pod runs its own entry point with a real tailscaled.
 */
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readManifest } from '../../../scripts/release/project.ts';
import { createPod } from '../cases/case.ts';
import { type Outcome, run } from '../chart/render.ts';
import { serveApiServer } from '../operator/workload-site.ts';
import { ensurePeer } from '../rig/build.ts';
import { ensureDebianProgram } from '../rig/debian.ts';
import { type Kubernetes, startKubernetes } from '../rig/kubernetes.ts';
import { BRIDGE, NODE_ADDRESS, layNetwork, networkProblem } from '../rig/network.ts';
import { type Rig, createRig } from '../rig/rig.ts';
import { DOMAIN, type Tailnet, startTailnet } from '../rig/tailnet.ts';
import { expectSuccess, unpackImage } from '../support/container.ts';
import type { PodContainerSettings } from '../support/pod-container.ts';
import { cleanly, releaseFolder, tellTime } from '../support/release.ts';

const { version, publishing } = readManifest();
const NAMESPACE = 'recorded';
const USER = 65_532;
const GATEWAY = `tc-gateway-0.${DOMAIN}`;
const CAPABILITY = 'tailscale.com/cap/kubernetes';
const PATIENT = { timeoutMs: 180_000 } as const;
const SET_UP_MS = 900_000;

const problem = networkProblem();
if (problem !== undefined) process.stderr.write(`install-chart: skipped: ${problem}\n`);

describe.skipIf(problem !== undefined)('the chart of a release', () => {
  let rig: Rig;
  let release: string;
  let cluster: Kubernetes;
  let tailnet: Tailnet;
  let kubectl: string;
  let helm: string;
  let runc: string;
  let admin: string;
  let beganMs: number;
  const state = (): string => join(rig.folder, 'runc');

  beforeAll(async () => {
    // Containers have their own /tmp.
    process.env['TMPDIR'] = '/var/tmp';
    rig = createRig();
    // Pods run as another user, so the folder must be accessible.
    chmodSync(rig.folder, 0o755);
    kubectl = (await ensurePeer('kubernetes-1.36'))['kubectl'] ?? '';
    helm = (await ensurePeer('helm'))['helm'] ?? '';
    runc = ensureDebianProgram('runc');
    release = releaseFolder(rig.folder);
    const bundle = unpackImage(rig, join(release, `tailcast-image-${version}.oci.tar`), `v${version}-amd64`);
    const { hostsPath } = layNetwork(rig, { 'kubernetes.default.svc': ['10.96.0.1'] });
    [cluster, tailnet] = await Promise.all([
      startKubernetes(rig, {
        address: NODE_ADDRESS,
        node: { images: await images(), network: { bridge: BRIDGE, hostsPath } },
      }),
      startTailnet(rig, {
        address: NODE_ADDRESS,
        nodes: [{ name: 'alice', user: 'alice@example.com' }],
        policy: {
          tagOwners: {
            'tag:k8s-gateway': ['alice@example.com'],
            'tag:tsrecorder': ['alice@example.com'],
          },
          acls: [{ action: 'accept', src: ['*'], dst: ['*:*'] }],
          grants: [
            {
              src: ['alice@example.com'],
              dst: ['tag:k8s-gateway'],
              app: {
                [CAPABILITY]: [
                  {
                    impersonate: { groups: ['system:masters'] },
                    recorder: ['tag:tsrecorder'],
                    enforceRecorder: true,
                  },
                ],
              },
            },
          ],
        },
      }),
    ]);
    const settings: PodContainerSettings = {
      kubectl,
      kubeconfig: cluster.kubeconfig('pods', { token: cluster.tokens.admin }),
      namespace: NAMESPACE,
      runc,
      runcPid: process.pid,
      state: state(),
      bundle,
    };
    writeFileSync(settingsFile(), JSON.stringify(settings));
    rig.onStop(() => {
      for (const id of run(runc, ['--root', state(), 'list', '--quiet']).stdout.split('\n').filter(Boolean))
        spawnSync(runc, ['--root', state(), 'delete', '--force', id]);
    });
    await serveApiServer(rig, cluster, (await ensurePeer('kube-proxy'))['kube-proxy'] ?? '');
    admin = cluster.kubeconfig('admin', { token: cluster.tokens.admin });
    await createPod(cluster, 'shell', { command: ['sleep', 'infinity'] });
  }, SET_UP_MS);

  afterAll(() => rig?.stop());

  const settingsFile = (): string => join(rig.folder, 'pods.json');

  /**
   * Returns the commands that replace the chart's images. tailcast's image runs in a container; the stock image is
   * replaced by its entry point.
   */
  async function images(): Promise<Readonly<Record<string, readonly string[]>>> {
    const programs = join(rig.folder, 'programs');
    mkdirSync(programs);
    for (const [name, path] of [
      ['tailscaled', (await ensurePeer('kernel-tailscaled'))['tailscaled']],
      // The lean build of tailscaled includes the client, and acts as the client under this name.
      ['tailscale', (await ensurePeer('tailnet'))['tailscaled']],
      ['containerboot', (await ensurePeer('containerboot'))['containerboot']],
    ] as const)
      copyFileSync(path ?? '', join(programs, name));
    const asPodsUser = [
      'sh',
      '-c',
      // The pod's group owns its volumes, and its user has no privileges.
      'chgrp -R "$0" "$HOME/../../volumes" && chmod -R g+rwX "$HOME/../../volumes" && exec setpriv --reuid "$0" ' +
        '--regid "$0" --clear-groups --bounding-set=-all --no-new-privs "$@"',
      String(USER),
    ];
    return {
      [publishing.image]: [
        process.execPath,
        fileURLToPath(new URL('../support/pod-container.ts', import.meta.url)),
        settingsFile(),
      ],
      'tailscale/tailscale': [
        ...asPodsUser,
        'env',
        `PATH=${programs}:/usr/sbin:/usr/bin:/sbin:/bin`,
        'TS_DEBUG_USE_DERP_HTTP=1',
        'TS_DISABLE_PORTMAPPER=1',
        'TS_NO_LOGS_NO_SUPPORT=true',
        'TS_PANIC_IF_HIT_MAIN_CONTROL=1',
        'containerboot',
      ],
    };
  }

  const asAdmin = (...args: readonly string[]): string =>
    expectSuccess(run(kubectl, ['--kubeconfig', admin, '-n', NAMESPACE, ...args]));
  /** Runs a program in a container of a pod, like `kubectl exec`. */
  const inside = (pod: string, role: string, ...args: readonly string[]): Outcome =>
    run(runc, ['--root', state(), 'exec', `${pod}-${role}`, ...args]);

  it('is templated and applied, and its pods run from the image of the release as the chart says', async () => {
    const values = join(rig.folder, 'values.yaml');
    writeFileSync(
      values,
      JSON.stringify({
        tailscale: { loginServer: tailnet.controlUrl, domain: DOMAIN },
        gateway: { replicas: 1, tls: 'self-signed' },
        recorder: { enabled: true, ui: false, viewers: ['*'], trustedGateways: ['tag:k8s-gateway'] },
      }),
    );
    beganMs = Date.now();
    asAdmin('create', 'namespace', NAMESPACE);
    const key = await tailnet.authKey({ tags: ['tag:k8s-gateway', 'tag:tsrecorder'] });
    asAdmin('create', 'secret', 'generic', 'tailscale-auth', `--from-literal=authkey=${key}`);
    const chart = join(release, `tailcast-chart-${version}.tgz`);
    const rendered = expectSuccess(run(helm, ['template', 'tc', chart, '-n', NAMESPACE, '-f', values]));
    const manifests = join(rig.folder, 'rendered.yaml');
    writeFileSync(manifests, rendered);
    asAdmin('apply', '-f', manifests);
    for (const role of ['recorder', 'gateway']) {
      const pod = `tc-${role}-0`;
      await rig
        .until(`${pod} to be ready`, () => isReady(pod), PATIENT)
        .catch((error: unknown) => {
          throw new Error(logsOf(pod, role), { cause: error });
        });
      const status = expectSuccess(
        inside(pod, role, 'node', '-p', 'fs.readFileSync("/proc/1/status", "utf8")'),
      );
      for (const line of [/^Uid:\s+65532\s/m, /^CapEff:\s+0+$/m, /^CapBnd:\s+0+$/m, /^NoNewPrivs:\s+1$/m])
        expect(status).toMatch(line);
      expect(inside(pod, role, 'node', '-e', 'fs.writeFileSync("/app/new", "")').stderr).toContain('EROFS');
    }
  }, 400_000);

  it('finds all well, as the first command of its notes says', () => {
    const { stdout } = inside(
      'tc-gateway-0',
      'gateway',
      'node',
      '/app/scripts/tailcast.mjs',
      'doctor',
      'gateway',
      '--json',
    );
    const { checks } = JSON.parse(stdout) as { checks: { id: string; status: string; summary: string }[] };
    expect(checks.length).toBeGreaterThan(5);
    expect(checks.filter(({ status }) => status === 'failed')).toEqual([]);
  });

  it('records the first shell of somebody of the tailnet, and shows it to them', async () => {
    const alice = tailnet.node('alice');
    const home = mkdtempSync(join(rig.folder, 'alice-'));
    const bin = plugin(home);
    const env = cleanly({
      PATH: `${bin}:/usr/bin:/bin`,
      HOME: home,
      KUBECONFIG: join(home, 'config'),
      // Alice's machine reaches the tailnet through the HTTP proxy of its tailscaled.
      HTTPS_PROXY: `http://127.0.0.1:${alice.httpProxyPort}`,
      NODE_USE_ENV_PROXY: '1',
    });
    const asAlice = (...args: readonly string[]): Outcome => {
      const { status, stdout, stderr } = spawnSync(kubectl, args, { encoding: 'utf8', env });
      return { code: status ?? 1, stdout, stderr };
    };
    const authority = join(home, 'ca.crt');
    writeFileSync(
      authority,
      expectSuccess(
        inside(
          'tc-gateway-0',
          'gateway',
          'node',
          '-p',
          'fs.readFileSync("/var/lib/tailcast/ca/ca.crt", "utf8")',
        ),
      ),
    );
    expectSuccess(asAlice('tailcast', 'kubeconfig', GATEWAY, '--certificate-authority', authority));
    const shell = await rig.until(
      'a shell',
      async () => {
        const outcome = asAlice('-n', 'default', 'exec', 'shell', '--', 'echo', 'first-shell');
        return outcome.code === 0 ? outcome : Promise.reject(new Error(outcome.stderr));
      },
      PATIENT,
    );
    expect(shell.stdout).toBe('first-shell\n');
    const listed = await rig.until(
      'the recording',
      async () => {
        const outcome = asAlice('tailcast', 'ls');
        return /echo first-shell/.test(outcome.stdout)
          ? outcome.stdout
          : Promise.reject(new Error(outcome.stderr));
      },
      PATIENT,
    );
    tellTime('chart', beganMs);
    expect(listed).toContain('alice@example.com');
    expect(expectSuccess(asAlice('tailcast', 'play', 'latest', '--speed', '1000'))).toContain('first-shell');
  }, 400_000);

  async function isReady(pod: string): Promise<true | undefined> {
    const { status } = (await cluster.api('GET', `/api/v1/namespaces/${NAMESPACE}/pods/${pod}`)) as {
      status: { conditions?: readonly { type: string; status: string }[] };
    };
    const ready = status.conditions?.some((each) => each.type === 'Ready' && each.status === 'True');
    return ready === true ? true : undefined;
  }

  /** Installs tailcast's kubectl plugin from the release, in a folder below `home`. */
  function plugin(home: string): string {
    const folder = join(home, 'plugin');
    mkdirSync(folder);
    const archive = join(release, `kubectl-tailcast_v${version}_linux_amd64.tar.gz`);
    expectSuccess(run('tar', ['-xzf', archive, '-C', folder]));
    return folder;
  }

  const logsOf = (pod: string, role: string): string =>
    ['tailscale', role]
      .map((name) =>
        run(kubectl, ['--kubeconfig', admin, '-n', NAMESPACE, 'logs', pod, '-c', name, '--tail=15']),
      )
      .map(({ stdout, stderr }) => stdout + stderr)
      .join('\n---\n');
});
