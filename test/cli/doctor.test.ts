import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runProgram } from '../../src/cli/program.ts';
import { startDemoCluster, type DemoCluster } from '../../demo/cluster.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { startLocalApiDouble, userNode, type LocalApiDouble } from '../support/local-api-double.ts';
import { startRecorderDouble, type RecorderDouble } from '../support/recorder-double.ts';
import { writeKubeconfig } from '../support/kubectl.ts';

interface Report {
  readonly role: string;
  readonly ok: boolean;
  readonly checks: readonly { readonly id: string; readonly status: string; readonly summary: string }[];
}

let scratch: string;
let cluster: DemoCluster;
let localApi: LocalApiDouble;
let recorder: RecorderDouble;
let kubeconfig: string;

beforeAll(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'doctor-cli-'));
  cluster = await startDemoCluster({ log: createSilentLogger() });
  const { url, caPem, adminToken: token } = cluster;
  kubeconfig = await writeKubeconfig({ directory: scratch, url, caPem, token });
  localApi = await startLocalApiDouble();
  recorder = await startRecorderDouble();
  const self = {
    ID: 'nGW',
    DNSName: 'gw.lab.ts.net.',
    TailscaleIPs: ['100.64.0.9'],
    Tags: ['tag:gw'],
    Online: true,
  };
  const alice = { ID: 'nA', DNSName: 'alice.lab.ts.net.', TailscaleIPs: ['100.64.0.4'], Online: true };
  localApi.status = {
    BackendState: 'Running',
    Version: '1.102.5',
    CurrentTailnet: { MagicDNSSuffix: 'lab.ts.net' },
    Self: self,
    Peer: { alice },
  };
  const rule = { impersonate: { groups: ['sre'] }, recorderAddrs: [recorder.address], enforceRecorder: true };
  localApi.whois.set('100.64.0.4', { ...userNode(), CapMap: { 'tailscale.com/cap/kubernetes': [rule] } });
});

afterAll(async () => {
  await Promise.all([cluster.close(), localApi.close(), recorder.close()]);
});

async function run(...args: readonly string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const stdout = new PassThrough();
  const stderr = new PassThrough();
  const code = await runProgram(args, {
    stdout,
    stderr,
    environment: new Map([['XDG_STATE_HOME', scratch]]),
    signal: new AbortController().signal,
  });
  return { code, stdout: read(stdout), stderr: read(stderr) };
}

function read(stream: PassThrough): string {
  const chunks: Buffer[] = [];
  for (let chunk = stream.read() as Buffer | null; chunk !== null; chunk = stream.read() as Buffer | null) {
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}

const words = (line: string): ReturnType<typeof run> => run(...line.split(' '));

const gateway = (...args: readonly string[]): Promise<{ code: number; stdout: string; stderr: string }> =>
  run('doctor', 'gateway', '--socket', localApi.socketPath, '--kubeconfig', kubeconfig, ...args);

describe('tailcast doctor gateway', () => {
  it('looks at everything in order, from tailscaled to the recorders', async () => {
    const { code, stdout } = await gateway('--json', '--recorder-dial', 'direct', '--tls', 'self-signed');
    const report = JSON.parse(stdout) as Report;
    expect(report.role).toBe('gateway');
    expect(report.checks.map(({ id, status }) => `${id} ${status}`)).toEqual([
      'tailscaled ok',
      'connected ok',
      'node ok',
      'magic-dns ok',
      'certificate ok',
      'api-server ok',
      'credential ok',
      'clock ok',
      'may-impersonate ok',
      // fails because every user of the demo cluster has all rights, but a gateway must have only a few
      'may-nothing-else failed',
      'grants ok',
      'recorders ok',
      'state ok',
      expect.stringMatching(/^state-space (ok|warning)$/),
      'late skipped',
    ]);
    expect(report.ok).toBe(false);
    expect(code).toBe(1);
  });

  it('ends with 0 when nothing failed', async () => {
    const { code, stdout } = await gateway('--mode', 'noauth', '--tls', 'self-signed');
    expect(stdout).toMatch(/^ok {4}tailscaled {14}version 1\.102\.5/);
    expect(stdout).toMatch(/ 0 failed, \d+ skipped\n$/);
    expect(code).toBe(0);
  });

  it('prints what to do below what failed', async () => {
    const { stdout } = await gateway('--socket', '/nowhere');
    expect(stdout).toMatch(/^FAIL {2}tailscaled .*\n {6}→ start tailscaled/);
  });

  it('looks at one caller', async () => {
    const { stdout } = await gateway('--mode', 'noauth', '--caller', 'alice');
    expect(stdout).toContain('alice@example.com on alice.lab.ts.net → sre, recorded, or refused');
  });

  it('checks only the proxy in front with --through', async () => {
    const { code, stdout } = await run('doctor', 'gateway', '--through', '127.0.0.1:1');
    expect(stdout).toMatch(/^FAIL {2}silent connections .*127\.0\.0\.1:1 did not respond/);
    expect(stdout.match(/^(?:ok|FAIL|WARN)/gm)).toHaveLength(1);
    expect(code).toBe(1);
  });

  it('ends with 2 when the settings are wrong', async () => {
    expect(await run('doctor', 'gateway', '--through', 'http://gateway')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('http://gateway is not a host name or an https:// URL'),
    });
    expect(await gateway('--mode', 'sometimes')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--mode: one of auth, noauth is expected'),
    });
    expect(await gateway('--tls', 'files')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('tlsCert'),
    });
    expect(await gateway('--proxy-protocol', 'require', '--listen', '127.0.0.1:8443')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('127.0.0.77'),
    });
    expect((await gateway('--no-such-flag')).code).toBe(2);
  });

  it('works with a fixed identity, without tailscaled', async () => {
    const identity = join(scratch, 'identity.json');
    await writeFile(
      identity,
      JSON.stringify({ nodeId: 'n', nodeName: 'laptop', login: 'alice@example.com' }),
    );
    const { stdout } = await words(
      `doctor gateway --json --identity static --static-identity ${identity} --kubeconfig ${kubeconfig}`,
    );
    const { checks } = JSON.parse(stdout) as Report;
    expect(checks.map(({ id }) => id)).not.toContain('tailscaled');
    expect(checks.find(({ id }) => id === 'grants')?.status).toBe('warning');
  });

  it('has a help that names the exit codes', async () => {
    const { code, stdout } = await run('doctor', 'gateway', '--help');
    expect(code).toBe(0);
    expect(stdout).toContain('Exit code: 0 no check failed, 1 a check failed, 2 the settings are wrong.');
  });
});

describe('tailcast doctor recorder', () => {
  it('looks at the tailnet, the store and the recorder itself', async () => {
    const { stdout } = await words(
      `doctor recorder --json --socket ${localApi.socketPath} --store ${scratch}/store --listen ` +
        `${recorder.address} --uploaders tag:nobody`,
    );
    const { checks } = JSON.parse(stdout) as Report;
    expect(checks.map(({ id }) => id)).toEqual([
      'tailscaled',
      'connected',
      'node',
      'magic-dns',
      'uploaders',
      'store',
      'store-space',
      'search',
      'answers',
    ]);
    expect(checks.find(({ id }) => id === 'search')).toMatchObject({
      status: 'ok',
      summary: expect.stringContaining('has no session yet') as string,
    });
    expect(checks.find(({ id }) => id === 'uploaders')?.status).toBe('failed');
    expect(checks.find(({ id }) => id === 'answers')).toMatchObject({
      status: 'ok',
      summary: `running on ${recorder.address}`,
    });
  });

  it('does not mind that the recorder is not running', async () => {
    const { code, stdout } = await words(
      `doctor recorder --identity loopback --store ${scratch}/store --listen 127.0.0.1:1`,
    );
    expect(stdout).toMatch(/skip {2}recorder .*not running on 127\.0\.0\.1:1/);
    expect(code).toBe(0);
  });
});

describe('tailcast doctor operator', () => {
  it('looks at what it can reach, and names what the rest needs', async () => {
    await writeFile(join(scratch, 'api_key'), 'key');
    const { code, stdout } = await words(
      `doctor operator --json --kubeconfig ${kubeconfig} --namespace tailcast --control headscale --control-url ` +
        `http://127.0.0.1:1 --credentials ${scratch}`,
    );
    const report = JSON.parse(stdout) as Report;
    expect(report.role).toBe('operator');
    const found = Object.fromEntries(report.checks.map(({ id, status }) => [id, status]));
    // The checks fail because a demo cluster has no operator resources, and because nothing listens on port 1.
    expect(found).toMatchObject({
      'api-server': 'ok',
      resources: 'failed',
      control: 'failed',
      'auth-keys': 'skipped',
      services: 'skipped',
      'left-nodes': 'skipped',
    });
    expect(code).toBe(1);
  });

  it('ends with 2 when the settings are wrong', async () => {
    expect(
      await words(`doctor operator --kubeconfig ${kubeconfig} --namespace tailcast --control headscale`),
    ).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--control-url'),
    });
  });
});
