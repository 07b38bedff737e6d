import { mkdtemp, readFile, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { runProgram } from '../../src/cli/program.ts';
import { startLocalApiDouble, type LocalApiDouble } from '../support/local-api-double.ts';

let daemon: LocalApiDouble;
let directory: string;
let file: string;

beforeEach(async () => {
  daemon = await startLocalApiDouble();
  daemon.status = {
    BackendState: 'Running',
    Peer: {
      a: {
        ID: 'n2',
        DNSName: 'prod-0.lab.ts.net.',
        TailscaleIPs: ['100.64.0.2'],
        AllowedIPs: ['100.100.0.7/32'],
      },
      b: { ID: 'n3', DNSName: 'stage.lab.ts.net.', TailscaleIPs: ['100.64.0.3'], AllowedIPs: [] },
    },
  };
  daemon.netmap = {
    DNS: {
      ExtraRecords: [
        { Name: 'prod.lab.ts.net.', Type: 'A', Value: '100.100.0.7' },
        { Name: 'lonely.lab.ts.net', Value: '100.100.0.8' },
        { Name: 'texts.lab.ts.net', Type: 'TXT', Value: '100.100.0.7' },
      ],
    },
  };
  directory = await mkdtemp(join(tmpdir(), 'tailcast-kubeconfig-'));
  file = join(directory, 'config');
});

afterEach(async () => {
  await daemon.close();
});

async function run(...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  const [stdout, stderr] = [new PassThrough(), new PassThrough()];
  const environment = new Map([['KUBECONFIG', file]]);
  const all = ['kubeconfig', ...args, '--socket', daemon.socketPath];
  const code = await runProgram(all, { stdout, stderr, environment, signal: new AbortController().signal });
  return { code, stdout: String(stdout.read() ?? ''), stderr: String(stderr.read() ?? '') };
}

interface Config {
  readonly clusters: { name: string; cluster: { server: string } }[];
  readonly users: { name: string; user: object }[];
  readonly contexts: { name: string }[];
  readonly 'current-context': string;
}
const written = async (): Promise<Config> => parse(await readFile(file, 'utf8')) as Config;

describe('tailcast kubeconfig', () => {
  it('writes several clusters at once, the first being the current one', async () => {
    const outcome = await run('prod-0', 'stage');
    expect(outcome).toMatchObject({ code: 0, stderr: '' });
    expect(outcome.stdout).toBe(
      `contexts prod-0.lab.ts.net, stage.lab.ts.net are now in ${file}, prod-0.lab.ts.net is the current one\n`,
    );
    const config = await written();
    expect(config.clusters.map(({ cluster }) => cluster.server)).toEqual([
      'https://prod-0.lab.ts.net',
      'https://stage.lab.ts.net',
    ]);
    expect(config.contexts.map(({ name }) => name)).toEqual(['prod-0.lab.ts.net', 'stage.lab.ts.net']);
    expect(config.users).toEqual([{ name: 'tailscale-auth', user: { token: 'unused' } }]);
    expect(config['current-context']).toBe('prod-0.lab.ts.net');
    expect((await stat(file)).mode & 0o777).toBe(0o600);
  });

  it('does nothing the second time, and leaves what is not its own', async () => {
    const mine =
      'apiVersion: v1\nkind: Config\n# mine\nclusters:\n- name: other\n  cluster: {server: ' +
      'https://other}\ncurrent-context: other\n';
    await writeFile(file, mine);
    await run('prod-0');
    const text = await readFile(file, 'utf8');
    expect(text).toContain('# mine');
    expect((await written()).clusters.map(({ name }) => name)).toEqual(['other', 'prod-0.lab.ts.net']);
    expect((await run('prod-0')).stdout).toBe(`${file} already has prod-0.lab.ts.net\n`);
    expect(await readFile(file, 'utf8')).toBe(text);
  });

  it.each([
    ['prod-0', 'https://prod-0.lab.ts.net'],
    ['100.64.0.2', 'https://prod-0.lab.ts.net'],
    ['prod', 'https://prod.lab.ts.net'],
    ['100.100.0.7', 'https://prod.lab.ts.net'],
    ['prod-0.lab.ts.net', 'https://prod-0.lab.ts.net'],
    ['https://prod-0:8080', 'https://prod-0:8080'],
    ['192.0.2.1', 'https://192.0.2.1'],
  ])('understands %s', async (host, server) => {
    const { stdout } = await run(host, '--print');
    expect((parse(stdout) as Config).clusters[0]?.cluster.server).toBe(server);
    await expect(stat(file)).rejects.toThrow('ENOENT');
  });

  it.each([
    ['lonely', 'lonely.lab.ts.net is in MagicDNS, but is not currently reachable on any known peer'],
    ['nobody', 'no node or Service of the tailnet is called nobody'],
    ['texts', 'no node or Service of the tailnet is called texts'],
  ])('refuses %s and says why', async (host, message) => {
    const outcome = await run('prod-0', host);
    expect(outcome.code).not.toBe(0);
    expect(outcome.stderr).toContain(message);
    await expect(stat(file)).rejects.toThrow('ENOENT');
  });

  it.each([
    ['https://gw.example', 'gw.example'],
    ['https://gw.example:443', 'gw.example'],
    ['https://gw.example:8443', 'gw.example:8443'],
    ['https://[fd7a::1]', 'fd7a::1'],
    ['https://[fd7a::1]:8443', '[fd7a::1]:8443'],
  ])('names the context of %s %s', async (host, name) => {
    const config = parse((await run(host, '--print')).stdout) as Config;
    expect(config['current-context']).toBe(name);
    expect(config.clusters.map((cluster) => cluster.name)).toEqual([name]);
  });

  it.each([
    ['http://gw.example', /http:\/\/gw\.example is not encrypted/],
    ['https://me:secret@gw.example', /user name or password/],
    ['ftp://gw.example', /ftp:\/\/gw\.example is not a host name/],
  ])('refuses %s', async (host, message) => {
    const outcome = await run(host);
    expect(outcome.code).toBe(2);
    expect(outcome.stderr).toMatch(message);
    expect(outcome.stderr).not.toContain('secret');
    await expect(stat(file)).rejects.toThrow('ENOENT');
  });

  describe('with entries of somebody else', () => {
    const FOREIGN: readonly (readonly [string, string, RegExp])[] = [
      [
        'a cluster, a context and a user',
        'clusters: [{name: prod, cluster: {server: https://prod.corp:6443}}]\ncontexts: [{name: prod, context: ' +
          '{cluster: prod, user: admin}}]\nusers: [{name: admin, user: {token: s3cret}}]\n',
        /cluster "prod" \(https:\/\/prod\.corp:6443\), context "prod" \(user admin\)/,
      ],
      [
        'a cluster alone',
        'clusters: [{name: prod, cluster: {server: https://prod.corp:6443}}]\n',
        /cluster "prod" \(https:\/\/prod\.corp:6443\)/,
      ],
      [
        'a context alone',
        'contexts: [{name: prod, context: {cluster: other, user: admin}}]\n',
        /context "prod" \(user admin\)/,
      ],
      ['a user', 'users: [{name: tailscale-auth, user: {token: s3cret}}]\n', /user "tailscale-auth"/],
    ];

    it.each(FOREIGN)('refuses to replace %s, and changes nothing', async (_what, text, message) => {
      await writeFile(file, text);
      const outcome = await run('https://prod');
      expect(outcome).toMatchObject({ code: 2, stdout: '' });
      expect(outcome.stderr).toMatch(message);
      expect(outcome.stderr).toMatch(/--name.*--force/);
      expect(outcome.stderr).not.toContain('s3cret');
      expect(await readFile(file, 'utf8')).toBe(text);
    });

    it.each(FOREIGN)('replaces %s with --force', async (_what, text) => {
      await writeFile(file, text);
      expect(await run('https://prod', '--force')).toMatchObject({ code: 0 });
      const config = await written();
      expect(config.clusters).toContainEqual({ name: 'prod', cluster: { server: 'https://prod' } });
      expect(config.users).toContainEqual({ name: 'tailscale-auth', user: { token: 'unused' } });
    });

    it('adds the gateway under another name', async () => {
      await writeFile(file, FOREIGN[0]![1]);
      expect(await run('https://prod', '--name', 'prod-tailnet')).toMatchObject({ code: 0 });
      expect((await written()).clusters.map(({ name }) => name)).toEqual(['prod', 'prod-tailnet']);
    });
  });

  it('updates its own entry, and keeps the namespace that was chosen since', async () => {
    await run('https://old', '--name', 'prod');
    const text = await readFile(file, 'utf8');
    await writeFile(file, text.replace('user: tailscale-auth', 'user: tailscale-auth\n      namespace: web'));
    expect(await run('https://new', '--name', 'prod')).toMatchObject({ code: 0 });
    const config = await written();
    expect(config.clusters).toEqual([{ name: 'prod', cluster: { server: 'https://new' } }]);
    expect(config.contexts).toEqual([
      { name: 'prod', context: { cluster: 'prod', user: 'tailscale-auth', namespace: 'web' } },
    ]);
  });

  it('refuses two servers under one name', async () => {
    const outcome = await run('https://gw/a', 'https://gw/b');
    expect(outcome.code).toBe(2);
    expect(outcome.stderr).toMatch(/https:\/\/gw\/a and https:\/\/gw\/b.*gw/);
  });

  it('refuses one name for two hosts', async () => {
    const outcome = await run('prod-0', 'stage', '--name', 'x');
    expect(outcome.code).not.toBe(0);
    expect(outcome.stderr).toContain('--name is for one host');
  });
});
