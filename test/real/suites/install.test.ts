/**
 * Builds a release for this machine's architecture and installs it in every supported way. `INSTALL_RELEASE` names a
 * folder with an existing release.
 */
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { z } from 'zod';
import { differences, sizeBelow } from '../../../scripts/release/tree.ts';
import { ROOT, readManifest } from '../../../scripts/release/project.ts';
import { type Outcome, run } from '../chart/render.ts';
import { ensurePeer } from '../rig/build.ts';
import { ensureDebianProgram } from '../rig/debian.ts';
import { type Kubernetes, startKubernetes } from '../rig/kubernetes.ts';
import { createPod } from '../cases/case.ts';
import { type Program, type Rig, createRig, freePort } from '../rig/rig.ts';
import { expectSuccess, startContainer, unpackImage } from '../support/container.ts';
import { cleanly, makeRelease, releaseFolder, tellTime } from '../support/release.ts';
import { runInScratchRoot } from '../support/scratch-root.ts';

const MAKING_MS = 900_000;
const { version, engines } = readManifest();

let rig: Rig;
let release: string;
let kubectl: string;
let helm: string;

const file = (name: string): string => join(release, name);

let cluster: Promise<Kubernetes> | undefined;

/** Returns the cluster of all tests, and starts it on the first call. */
function realCluster(): Promise<Kubernetes> {
  cluster ??= startKubernetes(rig);
  return cluster;
}

beforeAll(async () => {
  rig = createRig();
  kubectl = (await ensurePeer('kubernetes-1.36'))['kubectl'] ?? '';
  helm = (await ensurePeer('helm'))['helm'] ?? '';
  ensureDebianProgram('rpm');
  release = releaseFolder(rig.folder);
}, MAKING_MS);

afterAll(() => rig?.stop());

async function ready(program: Program, pattern: RegExp): Promise<string> {
  return rig.until(`${program.name} says ${pattern}`, async () => pattern.exec(program.log())?.[1], {
    watch: [program],
  });
}

describe('the folder of a release', () => {
  it('has checksums that hold, and a provenance that names every file', () => {
    const lines = readFileSync(file('SHA256SUMS'), 'utf8').trim().split('\n');
    expectSuccess(run('sha256sum', ['--check', '--strict', 'SHA256SUMS'], undefined, release));
    const statement = z
      .object({ subject: z.array(z.object({ name: z.string(), digest: z.object({ sha256: z.string() }) })) })
      .parse(JSON.parse(readFileSync(file('provenance.intoto.json'), 'utf8')));
    const named = statement.subject.map(({ name, digest }) => `${digest.sha256}  ${name}`);
    expect(lines.filter((line) => !line.endsWith('provenance.intoto.json'))).toEqual(named);
    expect(named.length).toBeGreaterThan(8);
  });

  it(
    'is the same, byte for byte, when it is made again',
    () => {
      expect(differences(release, makeRelease(rig.folder, 'second'))).toEqual([]);
    },
    MAKING_MS,
  );
});

describe('the npm package', () => {
  it.each(['22', '24', '26'])(
    'installs on Node %s into an empty prefix, runs the demo, and leaves nothing when it is removed',
    async (major) => {
      const home = mkdtempSync(join(rig.folder, `npm-${major}-`));
      const bin = installNode(home, major);
      const prefix = join(home, 'prefix');
      const env = cleanly({
        // The folders in `PATH` contain no compiler and no other build tool.
        PATH: `${bin}:${linksTo(home, ['sh', 'env', 'npm'])}`,
        HOME: home,
        XDG_STATE_HOME: join(home, 'state'),
        npm_config_cache: join(home, 'cache'),
      });
      const npm = (...args: readonly string[]): string => {
        const { status, stdout, stderr } = spawnSync('npm', args, { encoding: 'utf8', env });
        return expectSuccess({ code: status ?? 1, stdout, stderr });
      };
      const beganMs = Date.now();
      npm(
        'install',
        '--global',
        `--prefix=${prefix}`,
        '--no-audit',
        '--no-fund',
        file(`tailcast-${version}.tgz`),
      );
      const installedMs = Date.now() - beganMs;
      expect(sizeBelow(prefix)).toBeLessThan(130e6);
      const modules = join(prefix, 'lib', 'node_modules', '@tailcast', 'tailcast', 'node_modules');
      for (const name of ['typescript', 'vitest', 'vite'])
        expect(existsSync(join(modules, name))).toBe(false);
      expect(existsSync(join(prefix, 'share', 'man', 'man1', 'tailcast-gateway.1'))).toBe(true);

      const command = (name: string, ...args: readonly string[]): Outcome => {
        const { status, stdout, stderr } = spawnSync(join(prefix, 'bin', name), args, {
          encoding: 'utf8',
          env,
        });
        return { code: status ?? 1, stdout, stderr };
      };
      expect(expectSuccess(command('tailcast', '--version'))).toMatch(new RegExp(`^${version}( \\(\\w+|$)`));
      expect(expectSuccess(command('kubectl_complete-tailcast', 'verif'))).toMatch(/^verify\t.*\n:4\n$/);
      for (const role of ['gateway', 'recorder', 'operator']) {
        const outcome = command('tailcast', role, '--listen=nowhere');
        expect(outcome.code, role).not.toBe(0);
        expect(outcome.stderr, role).not.toMatch(/\n\s+at /);
      }
      const startedMs = Date.now();
      await firstShell(`demo-${major}`, env, join(prefix, 'bin', 'tailcast'));
      tellTime(`npm package, Node ${major}`, startedMs - installedMs);
      npm('uninstall', '--global', `--prefix=${prefix}`, '@tailcast/tailcast');
      expect(readdirSync(join(prefix, 'bin'))).toEqual([]);
      expect(existsSync(modules)).toBe(false);
    },
    300_000,
  );

  it('is small, and holds nothing but what runs', () => {
    expect(statSync(file(`tailcast-${version}.tgz`)).size).toBeLessThan(1.3e6);
    const names = expectSuccess(run('tar', ['-tzf', file(`tailcast-${version}.tgz`)]))
      .trim()
      .split('\n');
    const strange = names.filter(
      (name) => !/^package\/(dist|man|scripts)\/|^package\/(LICENSE|README\.md|[\w-]+\.json)$/.test(name),
    );
    expect(strange).toEqual([]);
    expect(names.filter((name) => /\.(ts|map|tsbuildinfo)$/.test(name))).toEqual([]);
  });
});

/** Installs a version of Node.js from npm. Returns the folder of the program. */
function installNode(home: string, major: string): string {
  if (major === '26') return join(ROOT, 'node_modules', 'node', 'bin');
  const folder = join(home, 'node');
  mkdirSync(folder);
  writeFileSync(join(folder, 'package.json'), '{}');
  const { status, stderr } = spawnSync('npm', ['install', '--no-audit', '--no-fund', `node@${major}`], {
    cwd: folder,
    encoding: 'utf8',
    env: cleanly(),
  });
  if (status !== 0) throw new Error(stderr);
  expect(Number(major)).toBeGreaterThanOrEqual(Number(/\d+/.exec(engines.node)?.[0]));
  return join(folder, 'node_modules', 'node', 'bin');
}

function linksTo(home: string, programs: readonly string[]): string {
  const folder = join(home, 'bin');
  mkdirSync(folder);
  for (const program of programs)
    symlinkSync(expectSuccess(run('which', [program])).trim(), join(folder, program));
  return folder;
}

const RECORDER_LISTEN = '127.0.0.1:8181';
const RECORDER_URL = `http://${RECORDER_LISTEN}/`;
const GATEWAY_LISTEN = '127.0.0.1:8443';

/** Returns the identity of all callers of a gateway with static identity: a user with enforced recording. */
function recordedAt(recorder: string): object {
  const rule = {
    impersonate: { groups: ['system:masters'] },
    recorderAddrs: [recorder],
    enforceRecorder: true,
  };
  return {
    nodeId: 'nIMAGE',
    nodeName: 'image.test',
    login: 'image@example.com',
    capabilities: { 'tailscale.com/cap/kubernetes': [rule] },
  };
}

/** Returns kubectl arguments for a command in a shell behind the gateway. */
function throughGateway(listen: string, authority: string): readonly string[] {
  const to = [`--server=https://${listen}`, `--certificate-authority=${authority}`, '--token=unused'];
  return ['--kubeconfig=/dev/null', ...to, 'exec', 'shell', '--', 'echo', 'first-shell'];
}

/** Starts the demo, runs a recorded shell, and finds the recording. */
async function firstShell(name: string, env: NodeJS.ProcessEnv, program: string): Promise<void> {
  const variables = Object.entries(env).flatMap(([name, value]) =>
    value === undefined ? [] : [`${name}=${value}`],
  );
  const demo = rig.launch({
    name,
    path: 'env',
    args: ['-i', ...variables, program, 'demo'],
    stopSignal: 'SIGTERM',
  });
  const kubeconfig = await ready(demo, /kubeconfig: (\S+)/);
  const player = await ready(demo, /player: (\S+)/);
  const echoed = run(kubectl, ['--kubeconfig', kubeconfig, 'exec', 'shell', '--', 'echo', 'first-shell']);
  expect(expectSuccess(echoed)).toBe('first-shell\n');
  await rig.until('the recording', async () => {
    const { stdout } = spawnSync(program, ['ls', '--recorder', player], { encoding: 'utf8', env });
    return /echo first-shell/.test(stdout) ? true : undefined;
  });
  await demo.stop();
}

describe('the image, as a container', () => {
  let bundle: string;
  let unpackedMs: number;

  beforeAll(() => {
    const beganMs = Date.now();
    bundle = unpackImage(rig, file(`tailcast-image-${version}.oci.tar`), `v${version}-amd64`);
    unpackedMs = Date.now() - beganMs;
  }, 300_000);

  it('has the tree that the Dockerfile makes', () => {
    const { commit = '' } = z
      .object({ commit: z.string().optional() })
      .parse(JSON.parse(readFileSync(join(bundle, 'rootfs', 'app', 'package.json'), 'utf8')));
    const { status, stdout, stderr } = spawnSync(
      process.execPath,
      [join(ROOT, 'scripts', 'image-check.mjs'), `--compare=${join(bundle, 'rootfs', 'app')}`],
      { encoding: 'utf8', env: cleanly({ COMMIT: commit }) },
    );
    expect(expectSuccess({ code: status ?? 1, stdout, stderr })).toContain(
      'ok    it is the same tree, file by file',
    );
  }, 600_000);

  it('has no shell, and no program that gives rights', () => {
    const programs = run('find', [
      join(bundle, 'rootfs'),
      '-name',
      'sh',
      '-o',
      '-name',
      'bash',
      '-o',
      '-perm',
      '/6000',
      '-type',
      'f',
    ]);
    expect(expectSuccess(programs).replaceAll(/.*\/node_modules\/.*\n/g, '')).toBe('');
  });

  it('runs a recorder without rights and without a writable root, answers its health check, and drains', async () => {
    const recorder = startContainer(rig, {
      name: 'recorder',
      bundle,
      args: ['recorder', '--identity=loopback', '--listen=127.0.0.1:8080', '--store=/data/recordings'],
    });
    await ready(recorder.program, /(recorder is ready)/);
    const status = expectSuccess(recorder.exec('node', '-p', 'fs.readFileSync("/proc/1/status", "utf8")'));
    expect(status).toMatch(/^CapEff:\s+0+$/m);
    expect(status).toMatch(/^CapBnd:\s+0+$/m);
    expect(status).toMatch(/^NoNewPrivs:\s+1$/m);
    expect(status).toMatch(/^Uid:\s+65532\s/m);
    const write = recorder.exec('node', '-e', 'fs.writeFileSync("/app/new", "")');
    expect(write.stderr).toContain('EROFS');
    expectSuccess(recorder.exec('node', '/app/dist/observe/health-probe.js', 'http://127.0.0.1:9003/livez'));
    await recorder.terminate();
    expect(recorder.program.log()).toContain('recorder ended: code 0');
  });

  it('keeps the first recorded shell of a real cluster: gateway and recorder, each a container', async () => {
    const kubernetes = await realCluster();
    await createPod(kubernetes, 'shell', { command: ['sleep', 'infinity'] });
    const data = mkdtempSync(join(rig.folder, 'data-'));
    chmodSync(data, 0o777);
    const put = (name: string, text: string): void => writeFileSync(join(data, name), text, { mode: 0o644 });
    put(
      'kubeconfig',
      readFileSync(kubernetes.kubeconfig('image', { token: kubernetes.tokens.admin }), 'utf8'),
    );
    const [listen, health, door] = [await freePort(), await freePort(), await freePort()];
    put('identity.json', JSON.stringify(recordedAt(`127.0.0.1:${listen}`)));
    const startedMs = Date.now();
    // The container shares the network of this machine, where the cluster runs.
    const beside = { bundle, data, networkOf: process.pid };
    const recorder = startContainer(rig, {
      ...beside,
      name: 'image-recorder',
      args: [
        'recorder',
        '--identity=loopback',
        `--listen=127.0.0.1:${listen}`,
        '--store=/data/recordings',
        '--ops-listen=off',
      ],
    });
    await ready(recorder.program, /(recorder is ready)/);
    const gateway = startContainer(rig, {
      ...beside,
      name: 'image-gateway',
      args: [
        'gateway',
        '--kubeconfig=/data/kubeconfig',
        '--identity=static',
        '--static-identity=/data/identity.json',
        '--state-directory=/data/gateway',
        `--listen=127.0.0.1:${door}`,
        `--ops-listen=127.0.0.1:${health}`,
      ],
    });
    await ready(gateway.program, /(gateway is ready)/);
    const probe = ['node', '/app/dist/observe/health-probe.js', `http://127.0.0.1:${health}/livez`] as const;
    expectSuccess(gateway.exec(...probe));
    const shell = run(kubectl, throughGateway(`127.0.0.1:${door}`, join(data, 'gateway', 'ca', 'ca.crt')));
    expect(expectSuccess(shell)).toBe('first-shell\n');
    const ask = (...words: readonly string[]): string => {
      const options = ['--recorder', `http://127.0.0.1:${listen}/`];
      return expectSuccess(recorder.exec('node', '/app/scripts/tailcast.mjs', ...words, ...options));
    };
    await rig.until('the recording', async () => (/echo first-shell/.test(ask('ls')) ? true : undefined));
    tellTime('image', startedMs - unpackedMs);
    expect(ask('play', 'latest', '--speed', '1000')).toContain('first-shell');
    for (const container of [gateway, recorder]) await container.terminate();
  }, 300_000);
});

describe('the packages for hosts', () => {
  it('install, upgrade with what was set and recorded, and go without taking recordings along', () => {
    const { code, stdout, stderr } = runInScratchRoot(
      mkdtempSync(join(rig.folder, 'deb-')),
      release,
      `
      began=$(date +%s)
      dpkg --install /mnt/tailcast_${version}_amd64.deb
      installed=$(( $(date +%s) - began ))
      tailcast --version
      getent passwd tailcast-gateway
      mkdir -p /var/lib/tailcast-recorder && echo kept > /var/lib/tailcast-recorder/recording
      echo '# mine' >> /etc/tailcast/recorder.yaml
      dpkg-deb --raw-extract /mnt/tailcast_${version}_amd64.deb /tmp/next
      sed -i 's/^Version: .*/Version: 99.0.0/' /tmp/next/DEBIAN/control
      echo '# new default' >> /tmp/next/etc/tailcast/recorder.yaml
      dpkg-deb --root-owner-group -Zgzip -z1 --build /tmp/next /tmp/next.deb
      dpkg --force-confdef --force-confold --install /tmp/next.deb
      grep '# mine' /etc/tailcast/recorder.yaml
      cat /var/lib/tailcast-recorder/recording
      says() { for turn in $(seq 600); do grep -q "$2" "/tmp/$1" && return; sleep 0.2; done; cat "/tmp/$1"; exit 1; }
      began=$(date +%s)
      tailcast demo --directory /tmp/demo > /tmp/demo.log 2>&1 &
      demo=$!
      says demo.log player:
      tailcast recorder --identity loopback --listen ${RECORDER_LISTEN} --store /tmp/recordings > /tmp/recorder.log 2>&1 &
      recorder=$!
      says recorder.log 'is ready'
      echo '${JSON.stringify(recordedAt(RECORDER_LISTEN))}' > /tmp/identity.json
      tailcast gateway --kubeconfig /tmp/demo/upstream.kubeconfig --identity static --static-identity /tmp/identity.json \\
        --state-directory /tmp/gateway --listen ${GATEWAY_LISTEN} > /tmp/gateway.log 2>&1 &
      gateway=$!
      says gateway.log 'is ready'
      ${[kubectl, ...throughGateway(GATEWAY_LISTEN, '/tmp/gateway/ca/ca.crt')].join(' ')}
      for turn in $(seq 300); do tailcast ls --recorder ${RECORDER_URL} | grep 'echo first-shell' && break; sleep 0.2; done
      echo "took: $(( installed + $(date +%s) - began ))"
      cat /tmp/recorder.log
      for role in $gateway $recorder $demo; do kill -TERM $role; wait $role; done
      dpkg --remove tailcast
      cat /etc/tailcast/recorder.yaml | tail -1
      dpkg --purge tailcast
      cat /var/lib/tailcast-recorder/recording
      ls -d /etc/tailcast /usr/lib/tailcast /usr/bin/*tailcast || echo gone
      `,
    );
    expect(code, stderr).toBe(0);
    const took = Number(/^took: (\d+)$/m.exec(stdout)?.[1]);
    tellTime('.deb', Date.now() - took * 1000);
    expect(stdout).toContain('recorder is ready');
    expect(stdout).toMatch(/^first-shell$/m);
    expect(stdout).toMatch(/image@example\.com.*echo first-shell/);
    expect(stdout).toContain('tailcast-gateway:x:');
    expect(stdout.match(/^# mine$/gm)).toHaveLength(2);
    expect(stdout.match(/^kept$/gm)).toHaveLength(2);
    expect(stdout).toContain('the recordings in /var/lib/tailcast-recorder were not removed');
    expect(stdout.trimEnd().endsWith('gone')).toBe(true);
  }, 300_000);

  it('install and go as RPM too', () => {
    const { code, stdout, stderr } = runInScratchRoot(
      mkdtempSync(join(rig.folder, 'rpm-')),
      release,
      `
      rpm --initdb
      rpm --install --nodeps /mnt/tailcast-${version}-1.x86_64.rpm
      rpm --verify --nodeps tailcast
      tailcast --version
      rpm --query --configfiles tailcast
      rpm --erase tailcast
      ls -d /usr/lib/tailcast /usr/bin/*tailcast || echo gone
      `,
    );
    expect(code, stderr).toBe(0);
    expect(stdout).toContain(version);
    expect(stdout).toContain('/etc/tailcast/gateway.yaml');
    expect(stdout.trimEnd().endsWith('gone')).toBe(true);
  });

  it('start their services with little to attack', () => {
    const root = mkdtempSync(join(rig.folder, 'units-'));
    expectSuccess(run('dpkg-deb', ['--extract', file(`tailcast_${version}_amd64.deb`), root]));
    for (const role of ['gateway', 'recorder']) {
      const { stdout } = run('systemd-analyze', [
        'security',
        '--offline=true',
        `--root=${root}`,
        `tailcast-${role}.service`,
      ]);
      const exposure = Number(/Overall exposure level for .*: ([\d.]+)/.exec(stdout)?.[1]);
      expect(exposure, stdout).toBeLessThan(2);
    }
  });
});

describe('the chart', () => {
  const values = ['--set', 'recorder.enabled=true'];

  it('passes helm’s checks, and says in a sentence which value is wrong', () => {
    const archive = file(`tailcast-chart-${version}.tgz`);
    expectSuccess(run(helm, ['lint', '--strict', archive]));
    const shown = parse(expectSuccess(run(helm, ['show', 'chart', archive]))) as Record<string, unknown>;
    expect([shown['version'], shown['appVersion']]).toEqual([version, version]);
    const wrong = run(helm, ['template', 'tc', archive, '--set', 'gateway.mode=none']);
    expect(wrong.code).not.toBe(0);
    expect(wrong.stderr).toMatch(/gateway\.mode|\/gateway\/mode/);
  });

  it('has an index like the one that helm makes', () => {
    const folder = mkdtempSync(join(rig.folder, 'index-'));
    const archive = `tailcast-chart-${version}.tgz`;
    expectSuccess(run('cp', [file(archive), folder]));
    const base = readManifest().publishing.releases;
    expectSuccess(run(helm, ['repo', 'index', folder, '--url', `${base}/v${version}`]));
    const entries = (path: string): unknown => {
      const index = parse(readFileSync(path, 'utf8')) as { entries: { tailcast: Record<string, unknown>[] } };
      // helm sets `created` to the time of the index, but a release uses the time of its commit. The comparison omits
      // the field.
      return index.entries.tailcast.map((entry) => ({ ...entry, created: undefined }));
    };
    expect(entries(file('index.yaml'))).toEqual(entries(join(folder, 'index.yaml')));
  });

  it('installs from the archive into a real cluster and says what to type next', async () => {
    const kubernetes = await realCluster();
    const admin = kubernetes.kubeconfig('admin', { token: kubernetes.tokens.admin });
    const args = [
      'install',
      'tc',
      file(`tailcast-chart-${version}.tgz`),
      '--namespace=tailcast',
      '--create-namespace',
    ];
    const notes = expectSuccess(run(helm, [...args, ...values, '--kubeconfig', admin]));
    expect(notes).toContain('kubectl tailcast kubeconfig tc-gateway-0');
    const sets = expectSuccess(
      run(kubectl, ['--kubeconfig', admin, '-n', 'tailcast', 'get', 'statefulsets', '-o', 'name']),
    );
    expect(sets.trim().split('\n')).toHaveLength(2);
    expectSuccess(run(helm, ['uninstall', 'tc', '--namespace=tailcast', '--kubeconfig', admin]));
  });
});

describe('the plugin of kubectl', () => {
  it('is what krew’s manifest says, and runs as kubectl tailcast, completion included', () => {
    const manifest = z
      .object({
        spec: z.object({
          version: z.string(),
          platforms: z.array(z.object({ uri: z.string(), sha256: z.string(), bin: z.string() })),
        }),
      })
      .parse(parse(readFileSync(file('krew-tailcast.yaml'), 'utf8')));
    const [platform] = manifest.spec.platforms;
    const archive = file((platform?.uri ?? '').split('/').at(-1) ?? '');
    expect(expectSuccess(run('sha256sum', [archive]))).toContain(platform?.sha256);
    // As krew does: puts the files into their own folder, and a symlink on the PATH.
    const home = mkdtempSync(join(rig.folder, 'krew-'));
    const [store, bin] = [join(home, 'store'), join(home, 'bin')];
    for (const folder of [store, bin]) mkdirSync(folder);
    expectSuccess(run('tar', ['-xzf', archive, '-C', store]));
    symlinkSync(join(store, platform?.bin ?? ''), join(bin, 'kubectl-tailcast'));
    const ask = (...args: readonly string[]): Outcome => {
      const env = cleanly({ PATH: `${bin}:/usr/bin:/bin`, HOME: home });
      const { status, stdout, stderr } = spawnSync(kubectl, args, { encoding: 'utf8', env });
      return { code: status ?? 1, stdout, stderr };
    };
    expect(expectSuccess(ask('tailcast', '--version'))).toContain(version);
    expect(expectSuccess(ask('tailcast', 'ls', '--help'))).toMatch(/^Usage: kubectl tailcast ls/);
    const lost = ask('tailcast', 'ls', '--context', 'nowhere');
    expect(lost.code).toBe(2);
    expect(lost.stderr).toMatch(/^tailcast: .*no such file/m);
  });
});
