/**
 * Errors at the start of a role. The role prints one sentence with the cause and the fix, and creates no incomplete
 * folders.
 */
import { execFile, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { beforeEach, describe, expect, it } from 'vitest';
import { adviceOn, TailcastError } from '../../src/errors.ts';
import { listenOn } from '../support/listen.ts';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const KUBECONFIG = {
  apiVersion: 'v1',
  kind: 'Config',
  clusters: [{ name: 'a', cluster: { server: 'https://127.0.0.1:9' } }],
  users: [{ name: 'a', user: { token: 'x' } }],
  contexts: [{ name: 'a', context: { cluster: 'a', user: 'a' } }],
  'current-context': 'a',
};

let scratch: string;
beforeEach(() => {
  scratch = mkdtempSync(join(tmpdir(), 'tcbad-'));
});

/** Returns the messages that a role prints before it exits, without lines of the log. */
async function saidBy(
  args: readonly string[],
  { wrapper = [], exits = 1 }: { readonly wrapper?: readonly string[]; readonly exits?: number } = {},
): Promise<string> {
  const [program = '', ...rest] = [...wrapper, process.execPath, MAIN, ...args];
  const { code, stderr } = await new Promise<{ code: unknown; stderr: string }>((done) => {
    // stops a process that would run forever
    const options = { timeout: 60_000, killSignal: 'SIGKILL' } as const;
    execFile(program, rest, options, (error, _stdout, text) => done({ code: error?.code, stderr: text }));
  });
  expect(code, stderr).toBe(exits);
  const lines = stderr.trim().split('\n');
  expect(lines.filter((line) => /^\s+at /.test(line))).toEqual([]);
  expect(stderr).not.toMatch(/\bE[A-Z]{4,}\b/);
  return lines.filter((line) => !line.startsWith('{')).join('\n');
}

const recorder = (...more: readonly string[]): readonly string[] => [
  'recorder',
  '--identity=loopback',
  '--listen=127.0.0.1:0',
  `--store=${join(scratch, 'store')}`,
  '--ops-listen=off',
  ...more,
];
function gateway(...more: readonly string[]): readonly string[] {
  const [kubeconfig, identity] = [join(scratch, 'kubeconfig'), join(scratch, 'identity.json')];
  writeFileSync(kubeconfig, JSON.stringify(KUBECONFIG));
  writeFileSync(identity, JSON.stringify({ nodeId: 'n', nodeName: 'n.test', login: 'a@example.com' }));
  return [
    'gateway',
    `--kubeconfig=${kubeconfig}`,
    '--identity=static',
    `--static-identity=${identity}`,
    `--state-directory=${join(scratch, 'state')}`,
    '--listen=127.0.0.1:0',
    '--ops-listen=off',
    ...more,
  ];
}

describe.each([
  ['gateway', gateway],
  ['recorder', recorder],
] as const)('the %s', (role, start) => {
  it('names a value that is wrong, and makes nothing', async () => {
    expect(await saidBy(start('--listen=nowhere'), { exits: 2 })).toMatch(
      /^tailcast: .*--listen: host:port is expected, e\.g\. .*, not "nowhere"\n {2}.*\[CONFIG_INVALID\]$/,
    );
    expect(existsSync(join(scratch, role === 'gateway' ? 'state' : 'store'))).toBe(false);
  });

  it('names a port that is taken, and says how to find by whom', async () => {
    const taken = createServer();
    const port = await listenOn(taken);
    for (const flag of ['--listen', '--ops-listen'])
      expect(await saidBy(start(`${flag}=127.0.0.1:${port}`))).toMatch(
        new RegExp(
          `127\\.0\\.0\\.1:${port}: the address is in use\n {2}Another process listens there: stop it \\(ss ` +
            '-ltnp.*\\[START_FAILED\\]',
        ),
      );
    taken.close();
  });

  it('names a folder that a newer version wrote, and changes nothing in it', async () => {
    const [folder, kind] =
      role === 'gateway'
        ? [join(scratch, 'state'), 'gateway state']
        : [join(scratch, 'store.spool'), 'spool'];
    mkdirSync(folder);
    const mark = JSON.stringify({ kind, format: 99, version: '99.0.0' });
    writeFileSync(join(folder, 'format.json'), mark);
    expect(await saidBy(start(), { exits: 2 })).toMatch(
      new RegExp(
        `${folder} was written by tailcast 99\\.0\\.0 .*: start tailcast 99\\.0\\.0 or newer, or name another folder`,
      ),
    );
    expect(readdirSync(folder)).toEqual(['format.json']);
    expect(readFileSync(join(folder, 'format.json'), 'utf8')).toBe(mark);
  });

  it.skipIf(!canMount())('names the folder on a disk that is full', async () => {
    const disk = join(scratch, 'disk');
    mkdirSync(disk);
    const full = 'mount -t tmpfs -o size=4k tmpfs "$0" && head -c 4096 /dev/zero > "$0/full" && exec "$@"';
    const wrapper = ['unshare', '--mount', 'sh', '-c', full, disk];
    const folder = role === 'gateway' ? `--state-directory=${disk}/state` : `--store=${disk}/store`;
    const said = await saidBy(start(folder, ...(role === 'gateway' ? ['--tls=self-signed'] : [])), {
      wrapper,
    });
    expect(said).toMatch(/the disk is full\n {2}Free space on the disk, or choose a folder on a larger one/);
    expect(said).toContain(disk);
  });
});

describe('a missing socket of tailscaled', () => {
  const socket = (): string => join(scratch, 'nowhere');
  const sentence = /there is no socket at .*nowhere: start tailscaled, or name the socket it listens on/;

  it('keeps a gateway from starting', async () => {
    expect(
      await saidBy([
        ...gateway('--tls=self-signed').filter((flag) => !/identity/.test(flag)),
        `--socket=${socket()}`,
      ]),
    ).toMatch(sentence);
  });

  it('is told by a recorder, which waits for it', async () => {
    const { execPath } = process;
    const args = recorder('--identity=tailscale', `--socket=${socket()}`);
    const child = execFile(execPath, [MAIN, ...args]);
    let log = '';
    child.stderr?.on('data', (chunk: string) => {
      log += chunk;
      if (/"msg":"sessions are refused until this is fixed"/.test(log)) child.kill();
    });
    await once(child, 'exit');
    expect(log).toMatch(sentence);
  });
});

describe('advice', () => {
  it.each([
    [{ code: 'EACCES', syscall: 'listen' }, /CAP_NET_BIND_SERVICE/],
    [{ code: 'EACCES', syscall: 'open' }, /give the file to the user/],
    [{ code: 'EADDRNOTAVAIL', syscall: 'listen' }, /choose an address of this machine/],
    [{ code: 'EROFS', syscall: 'mkdir' }, /writable file system/],
    [{ code: 'EDQUOT' }, /quota/],
  ])('is given for %j, however deep it is', (failure, expected) => {
    const cause = Object.assign(new Error('it failed'), failure);
    expect(adviceOn(new TailcastError('CONFIG_INVALID', 'no', { cause }))).toMatch(expected);
  });

  it('is not made up', () => {
    expect(adviceOn(new Error('no'))).toBeUndefined();
    expect(adviceOn(Object.assign(new Error('no'), { code: 'ELOOP' }))).toBeUndefined();
  });
});

function canMount(): boolean {
  if (process.platform !== 'linux') return false;
  return spawnSync('unshare', ['--mount', 'mount', '-t', 'tmpfs', 'tmpfs', tmpdir()]).status === 0;
}

describe.each(['/proc/nothere', '/dev/null/nothere'])('a directory setting with the value %s', (path) => {
  it.each([
    ['stateDirectory', 'state-directory', gateway],
    ['lateDirectory', 'late-directory', gateway],
    ['store', 'store', recorder],
    ['spool', 'spool', recorder],
    ['directory', 'directory', () => ['demo', '--listen=127.0.0.1:0', '--recorder-listen=127.0.0.1:0']],
  ] as const)('is refused: %s', async (key, flag, start) => {
    const said = await saidBy([...start(), `--${flag}=${path}`], { exits: 2 });
    expect(said).toMatch(new RegExp(`not valid: ${key}: ${path} cannot be used: .+`));
    expect(said).toContain(`Set --${flag} to a directory that this process can write to`);
    expect(said).not.toMatch(/ENO/);
  });
});
