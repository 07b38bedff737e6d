import { spawn, type ChildProcessByStdio } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';

const main = new URL('../../src/main.ts', import.meta.url).pathname;
const scratch: string[] = [];
const children: ChildProcessByStdio<null, Readable, Readable>[] = [];

afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL');
  for (const directory of scratch.splice(0)) rmSync(directory, { recursive: true, force: true });
});

describe('tailcast demo', () => {
  it('prints four lines to paste, has a recording to show, and leaves nothing behind', async () => {
    const home = scratchDirectory();
    const directory = join(home, 'state', 'tailcast', 'demo');
    const demo = run(['demo'], home);
    await demo.waitFor(/^access: .*$/m);
    const lines = demo.stdout().trimEnd().split('\n');
    const kubeconfig = join(directory, 'kubeconfig');
    expect(lines.slice(0, 2)).toEqual([
      `kubeconfig: ${kubeconfig}`,
      `try: kubectl --kubeconfig ${kubeconfig} exec -it shell -- sh`,
    ]);
    expect(lines[2]).toMatch(/^player: http:\/\/127\.0\.0\.1:\d+\/$/);
    expect(lines[3]).toMatch(/^access: kubectl /);
    expect(lines).toHaveLength(4);

    const player = lines[2]?.split(' ')[1] ?? '';
    const page = await fetch(player);
    expect(page.headers.get('content-security-policy')).toContain("default-src 'none'");

    const ls = run(['ls'], home);
    expect(await ls.exited).toBe(0);
    expect(ls.stdout()).toMatch(/demo@example\.com +default\/shell .* completed +0 +sh\n/);
    const play = run(['play', 'latest', '--speed', '100'], home);
    expect(await play.exited, play.stderr()).toBe(0);
    expect(play.stdout()).toContain('every byte of this shell was recorded');

    const group = groupOf(demo.pid);
    expect(group.length).toBeGreaterThan(1);
    demo.kill('SIGINT');
    expect(await demo.exited).toBe(0);
    expect(demo.stderr()).not.toMatch(/Error|at .*\.ts:|"level"/);
    for (const pid of group) expect(isAlive(pid), `process ${pid} is still there`).toBe(false);

    const offline = run(['ls', '--json'], home);
    expect(await offline.exited, offline.stderr()).toBe(0);
    expect(JSON.parse(offline.stdout().split('\n')[0] ?? '')).toMatchObject({
      state: 'completed',
      result: '0',
    });
  });

  it('says in a sentence that a kubeconfig is not there', async () => {
    const home = scratchDirectory();
    const demo = run(['demo', '--kubeconfig', join(home, 'none')], home);
    expect(await demo.exited).toBe(2);
    expect(demo.stderr()).toContain(join(home, 'none'));
    expect(demo.stderr()).not.toMatch(/^ +at /m);
  });
});

describe('tailcast', () => {
  it.each([
    { args: ['gateway', '--lisen', 'x'], code: 2, says: /there is no option --lisen/ },
    {
      args: ['gateway', '--listen', 'x', '--drain-seconds', '-1'],
      code: 2,
      says: /--listen: host:port[\s\S]*--drain-seconds: a whole/,
    },
    {
      args: ['gateway', '--socket', '/none/tailscaled.sock', '--kubeconfig', 'KUBECONFIG'],
      code: 1,
      says: /\/none\/tailscaled\.sock/,
    },
    {
      args: ['gateway', '--tls', 'files', '--identity', 'static', '--kubeconfig', 'KUBECONFIG'],
      code: 2,
      says: /staticIdentity/,
    },
    { args: ['recorder', '--identity', 'loopback', '--ops-listen', 'off'], code: 2, says: /--store/ },
    {
      args: ['recorder', '--identity', 'loopback', '--listen', '0.0.0.0:0', '--store', 'STORE'],
      code: 2,
      says: /127\.0\.0\.1/,
    },
    {
      args: ['gateway', '--proxy-protocol', 'require', '--kubeconfig', 'KUBECONFIG'],
      code: 2,
      says: /loopback address of its own/,
    },
    { args: ['ls'], code: 2, says: /no recorder is named/ },
    { args: ['play', 'nothing', '--store', 'STORE'], code: 1, says: /no such recording: nothing/ },
    {
      args: ['ls', '--recorder', 'http://127.0.0.1:1'],
      code: 1,
      says: /recorder is not available.*127\.0\.0\.1:1/,
    },
    { args: ['kubeconfig', 'prod', '--socket', '/none.sock'], code: 2, says: /prod could not be looked up/ },
  ])('answers $args with one clear problem', async ({ args, code, says }) => {
    const home = scratchDirectory();
    const words = args.map((word) =>
      word === 'STORE' ? home : word === 'KUBECONFIG' ? kubeconfig(home) : word,
    );
    const command = run(words, home);
    expect(await command.exited, command.stderr()).toBe(code);
    expect(command.stderr()).toMatch(says);
    expect(command.stderr()).not.toMatch(/^ +at /m);
    expect(command.stdout()).toBe('');
  });

  it.each(['gateway', 'recorder', 'demo', 'ls', 'play', 'kubeconfig'])('explains %s', async (name) => {
    const help = run([name, '--help'], scratchDirectory());
    expect(await help.exited).toBe(0);
    expect(help.stdout()).toContain(`Usage: tailcast ${name}`);
  });

  it('prints a kubeconfig without changing anything', async () => {
    const home = scratchDirectory();
    const command = run(['kubeconfig', 'https://gw.example.ts.net', '--print'], home);
    expect(await command.exited, command.stderr()).toBe(0);
    expect(command.stdout()).toContain('server: https://gw.example.ts.net');
    expect(command.stdout()).toContain('current-context: gw.example.ts.net');
  });
});

function run(args: readonly string[], home: string) {
  const child = spawn(process.execPath, [main, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { PATH: process.env['PATH'], HOME: home, XDG_STATE_HOME: join(home, 'state') },
    detached: true,
  });
  children.push(child);
  let stdout = '';
  let stderr = '';
  const look = new Set<() => void>();
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString();
    for (const check of look) check();
  });
  child.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  const exited = new Promise<number | null>((resolve) => child.once('close', (code) => resolve(code)));
  return {
    pid: child.pid ?? 0,
    stdout: () => stdout,
    stderr: () => stderr,
    exited,
    kill: (signal: NodeJS.Signals) => child.kill(signal),
    waitFor: (pattern: RegExp) =>
      new Promise<void>((resolve, reject) => {
        const check = (): void => void (pattern.test(stdout) && resolve());
        look.add(check);
        check();
        void exited.then((code) => reject(new Error(`ended with ${String(code)}: ${stderr}`)));
      }),
  };
}

function scratchDirectory(): string {
  const directory = mkdtempSync(join(tmpdir(), 'tailcast-cli-'));
  scratch.push(directory);
  return directory;
}

function kubeconfig(home: string): string {
  const path = join(home, 'kubeconfig');
  const text = `apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}}]
users: [{name: a, user: {token: t}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
`;
  writeFileSync(path, text);
  return path;
}

/** Returns the process and its descendants. */
function groupOf(pid: number): readonly number[] {
  try {
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
    const below = children === '' ? [] : children.split(' ').map(Number);
    return [pid, ...below.flatMap(groupOf)];
  } catch {
    return [pid];
  }
}

function isAlive(pid: number): boolean {
  try {
    return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
