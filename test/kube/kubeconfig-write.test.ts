import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { readKubeconfigContext } from '../../src/kube/kubeconfig.ts';
import {
  chooseKubeconfigPath,
  mergeKubeconfig,
  writeKubeconfig,
  type KubeconfigEntry,
} from '../../src/kube/kubeconfig-write.ts';

const ENTRY: KubeconfigEntry = {
  name: 'gw.example.ts.net',
  server: 'https://gw.example.ts.net',
  userName: 'tailscale-auth',
  token: 'unused',
};

const OURS = {
  clusters: [{ cluster: { server: 'https://gw.example.ts.net' }, name: 'gw.example.ts.net' }],
  users: [{ user: { token: 'unused' }, name: 'tailscale-auth' }],
  contexts: [
    { context: { cluster: 'gw.example.ts.net', user: 'tailscale-auth' }, name: 'gw.example.ts.net' },
  ],
};

function merged(text: string | undefined, entry: KubeconfigEntry = ENTRY): unknown {
  return parse(mergeKubeconfig(text, entry, 'file'));
}

describe('mergeKubeconfig', () => {
  it.each([[undefined], [''], ['\n'], ['# nothing yet\n']])('makes a new file of %j', (text) => {
    expect(merged(text)).toEqual({
      apiVersion: 'v1',
      kind: 'Config',
      ...OURS,
      'current-context': ENTRY.name,
    });
  });

  it('fills null and empty lists and replaces a stale current context', () => {
    for (const list of ['null', '[]']) {
      const text =
        `apiVersion: v1\nkind: Config\nclusters: ${list}\nusers: ${list}\ncontexts: ` +
        `${list}\ncurrent-context: gone\n`;
      expect(merged(text)).toEqual({
        apiVersion: 'v1',
        kind: 'Config',
        ...OURS,
        'current-context': ENTRY.name,
      });
    }
  });

  it('returns the very text when everything is there already', () => {
    const text = `# mine\n${mergeKubeconfig(undefined, ENTRY, 'file')}# end\n`;
    expect(mergeKubeconfig(text, ENTRY, 'file')).toBe(text);
    const odd =
      '{kind: Config,   apiVersion: v1, ' +
      JSON.stringify({ ...OURS, 'current-context': ENTRY.name }).slice(1);
    expect(mergeKubeconfig(odd, ENTRY, 'file')).toBe(odd);
  });

  it('keeps what others wrote, comments included', () => {
    const text = `apiVersion: v1
kind: Config
preferences: {colors: true}
clusters:
# the other cluster
- name: prod
  cluster:
    server: https://prod:6443 # by name
    extensions:
    - {name: x, extension: {a: 1}}
contexts:
- {name: prod, context: {cluster: prod, user: admin}}
users:
- name: admin
  user: {client-key-data: c2VjcmV0}
current-context: prod
`;
    const result = mergeKubeconfig(text, ENTRY, 'file');
    expect(result).toContain('# the other cluster');
    expect(result).toContain('https://prod:6443 # by name');
    const before = parse(text) as Record<string, unknown[]>;
    const after = parse(result) as Record<string, unknown[]>;
    for (const list of ['clusters', 'users', 'contexts'] as const) {
      expect(after[list]).toEqual([...(before[list] ?? []), ...OURS[list]]);
    }
    expect(after['preferences']).toEqual({ colors: true });
    expect(after['current-context']).toBe(ENTRY.name);
    expect(mergeKubeconfig(result, ENTRY, 'file')).toBe(result);
  });

  it('shares one user between two gateways', () => {
    const second = { ...ENTRY, name: 'b.example.ts.net', server: 'https://b.example.ts.net' };
    const result = parse(
      mergeKubeconfig(mergeKubeconfig(undefined, ENTRY, 'file'), second, 'file'),
    ) as Record<string, unknown[]>;
    expect(result['clusters']).toHaveLength(2);
    expect(result['contexts']).toHaveLength(2);
    expect(result['users']).toEqual(OURS.users);
    expect(result['current-context']).toBe('b.example.ts.net');
  });

  it('updates an entry of its own in place', () => {
    const text = mergeKubeconfig(
      undefined,
      { ...ENTRY, server: 'http://old', token: 'old', namespace: 'n' },
      'file',
    );
    expect(merged(text)).toMatchObject({
      clusters: OURS.clusters,
      users: OURS.users,
      contexts: OURS.contexts,
    });
  });

  it('writes CA, server name and namespace when they are given', () => {
    const entry = { ...ENTRY, caPem: '-----BEGIN CERTIFICATE-----\n', tlsServerName: 'gw', namespace: 'web' };
    expect(merged(undefined, entry)).toMatchObject({
      clusters: [
        {
          cluster: {
            'certificate-authority-data': Buffer.from(entry.caPem).toString('base64'),
            'tls-server-name': 'gw',
          },
        },
      ],
      contexts: [{ context: { namespace: 'web' } }],
    });
  });

  it.each([
    ['not YAML', 'a: ['],
    ['another kind', 'apiVersion: v1\nkind: Pod\n'],
    ['another version', 'apiVersion: v2\nkind: Config\n'],
    ['a list', '- a\n'],
    ['a text', 'hello\n'],
    ['a list that is a map', 'clusters: {a: b}\n'],
    ['a key twice', 'kind: Config\nkind: Config\n'],
  ])('refuses %s', (_what, text) => {
    expect(() => mergeKubeconfig(text, ENTRY, 'file')).toThrow(/invalid kubeconfig file: /);
  });
});

describe('writing the file', () => {
  let directory: string;
  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'tailcast-write-'));
  });

  it('creates directory and file for this user only, and does nothing the second time', async () => {
    const path = join(directory, 'new', 'config');
    expect(await writeKubeconfig(path, [ENTRY])).toEqual({ changed: true });
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(readKubeconfigContext([path])).toMatchObject({
      name: ENTRY.name,
      user: { value: { token: 'unused' } },
    });
    const { ino } = statSync(path);
    expect(await writeKubeconfig(path, [ENTRY])).toEqual({ changed: false });
    expect(statSync(path).ino).toBe(ino);
    expect(existsSync(`${path}.lock`)).toBe(false);
  });

  it('tightens a file that others could read, and follows a link', async () => {
    const path = join(directory, 'real');
    writeFileSync(path, 'kind: Config\n', { mode: 0o644 });
    symlinkSync(path, join(directory, 'link'));
    await writeKubeconfig(join(directory, 'link'), [ENTRY]);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(readFileSync(path, 'utf8')).toContain(ENTRY.server);
  });

  it('respects the lock of kubectl', async () => {
    const path = join(directory, 'config');
    writeFileSync(`${path}.lock`, '');
    await expect(writeKubeconfig(path, [ENTRY])).rejects.toThrow(
      /kubeconfig \S+config is locked by another program/,
    );
    expect(existsSync(path)).toBe(false);
    expect(existsSync(`${path}.lock`)).toBe(true);
  });

  it('leaves an invalid file alone', async () => {
    const path = join(directory, 'config');
    writeFileSync(path, 'kind: Pod\n');
    const failure: unknown = await writeKubeconfig(path, [ENTRY]).catch((error: unknown) => error);
    expect(failure).toMatchObject({ code: 'CONFIG_INVALID' });
    // the message names the invalid content and does not claim that the file is not writable
    expect(String(failure)).not.toContain('cannot be written');
    expect(readFileSync(path, 'utf8')).toBe('kind: Pod\n');
    expect(existsSync(`${path}.lock`)).toBe(false);
  });

  it.skipIf(process.getuid?.() === 0)('says when a file or a directory cannot be written', async () => {
    const path = join(directory, 'config');
    writeFileSync(path, '', { mode: 0o400 });
    await expect(writeKubeconfig(path, [ENTRY])).rejects.toThrow(/cannot be written: permission denied/);
    const closed = join(directory, 'closed');
    mkdirSync(closed, { mode: 0o500 });
    await expect(writeKubeconfig(join(closed, 'config'), [ENTRY])).rejects.toThrow(
      /cannot be written: permission denied/,
    );
    chmodSync(closed, 0o700);
  });

  it('says when the path cannot be a file', async () => {
    writeFileSync(join(directory, 'file'), '');
    await expect(writeKubeconfig(join(directory, 'file', 'config'), [ENTRY])).rejects.toThrow(
      expect.objectContaining({ code: 'CONFIG_INVALID' }),
    );
  });

  it('chooses the first file that exists, else the last of the list', async () => {
    const [a, b, loop] = [join(directory, 'a'), join(directory, 'b'), join(directory, 'loop')];
    expect(await chooseKubeconfigPath([a, b])).toBe(b);
    writeFileSync(a, '');
    expect(await chooseKubeconfigPath([directory, a, b])).toBe(a);
    symlinkSync(loop, loop);
    expect(await chooseKubeconfigPath([loop, a])).toBe(loop);
    await expect(chooseKubeconfigPath([])).rejects.toThrow(/no kubeconfig to write to/);
  });
});
