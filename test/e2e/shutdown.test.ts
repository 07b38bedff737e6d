/** Roles exit on SIGTERM while they are busy. Each role is a real process. */
import { once } from 'node:events';
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { mergeKubeconfig } from '../../src/kube/kubeconfig-write.ts';
import { CHECKOUT, startRole } from '../support/role-process.ts';

const RECORDINGS = 10_000;
const READERS = 4;

let scratch: string;
beforeEach(async () => {
  scratch = await mkdtemp(join(tmpdir(), 'tailcast-shutdown-'));
});

async function fillStore(directory: string): Promise<void> {
  const folder = join(directory, 'nGATE');
  await mkdir(folder, { recursive: true });
  const first = Date.parse('2026-02-03T04:05:06Z');
  for (let at = 0; at < RECORDINGS; at += 1) {
    const header = {
      version: 2,
      width: 80,
      height: 24,
      timestamp: at,
      command: 'sh',
      srcNodeUser: 'a@example.com',
    };
    const name = `${new Date(first + at * 1000).toISOString()}.cast`;
    await writeFile(join(folder, name), `${JSON.stringify(header)}\n[0.1,"o","hello\\r\\n"]\n`);
  }
}

/** Sends list and search requests until the recorder has exited. Resolves after the first responses. */
async function readAlways(url: string): Promise<void> {
  const read = async (): Promise<void> => {
    await (await fetch(`${url}/api/v1/recordings?limit=50&user=a@example.com`)).text();
    await (await fetch(`${url}/api/v1/search?q=hello`)).text();
  };
  const readers = Array.from({ length: READERS }, async () => {
    await read();
    void (async () => {
      for (;;) await read();
    })().catch(() => undefined);
  });
  await Promise.all(readers);
}

/** Stops a process with SIGTERM, and with SIGKILL after 30 s. @returns exit code and signal */
async function stop(child: ChildProcess): Promise<unknown> {
  const ended = child.exitCode === null ? once(child, 'exit') : Promise.resolve([child.exitCode, null]);
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), 30_000);
  const result = await ended;
  clearTimeout(timer);
  return result;
}

it('a recorder with search and 10,000 recordings exits while clients list and search', async () => {
  const store = join(scratch, 'store');
  await fillStore(store);
  const flags = [
    '--identity',
    'loopback',
    '--listen',
    '127.0.0.1:0',
    '--search',
    'true',
    '--drain-seconds',
    '1',
  ];
  const recorder = await startRole(['recorder', '--store', store, ...flags]);
  await readAlways(`http://127.0.0.1:${recorder.port}`);
  expect(await recorder.stop()).toBe(0);
});

it('the demo exits while its player lists recordings', async () => {
  const child = spawn(
    process.execPath,
    [
      join(CHECKOUT, 'src', 'main.ts'),
      'demo',
      '--directory',
      scratch,
      '--listen',
      '127.0.0.1:0',
      '--recorder-listen',
      '127.0.0.1:0',
    ],
    { stdio: ['ignore', 'pipe', 'ignore'], env: { ...process.env, NODE_NO_WARNINGS: '1' } },
  );
  for await (const line of createInterface({ input: child.stdout })) {
    const [, url] = /^player: (.*)\/$/.exec(line) ?? [];
    if (url === undefined) continue;
    await readAlways(url);
    break;
  }
  expect(await stop(child)).toEqual([0, null]);
});

describe('a role whose peers accept connections and never respond', () => {
  let hole: Server;
  let socket: Server;
  let touched: Promise<unknown>;
  beforeEach(async () => {
    hole = createServer(() => undefined).listen(0, '127.0.0.1');
    socket = createServer(() => undefined).listen(join(scratch, 'tailscaled.sock'));
    await Promise.all([once(hole, 'listening'), once(socket, 'listening')]);
    touched = Promise.race([once(hole, 'connection'), once(socket, 'connection')]);
  });
  afterEach(() => {
    hole.close();
    socket.close();
  });

  it.each<readonly [string, readonly string[]]>([
    [
      'recorder',
      ['--store', 's3://bucket', '--s3-region', 'x', '--identity', 'loopback', '--listen', '127.0.0.1:0'],
    ],
    ['gateway', ['--listen', '127.0.0.1:0', '--identity', 'tailscale']],
    ['operator', ['--namespace', 'tailscale']],
  ])('exits at start-up: %s', async (role, flags) => {
    const { port } = hole.address() as AddressInfo;
    const url = `https://127.0.0.1:${port}`;
    const kubeconfig = join(scratch, 'kubeconfig');
    const entry = { name: 'a', server: url, caPem: undefined, userName: 'a', token: 'x' };
    await writeFile(kubeconfig, mergeKubeconfig(undefined, entry, kubeconfig), { mode: 0o600 });
    for (const name of ['client_id', 'client_secret']) await writeFile(join(scratch, name), 'x');
    const more: Readonly<Record<string, readonly string[]>> = {
      recorder: ['--s3-endpoint', `http://127.0.0.1:${port}`, '--spool', join(scratch, 'spool')],
      gateway: [
        '--kubeconfig',
        kubeconfig,
        '--socket',
        join(scratch, 'tailscaled.sock'),
        '--state-directory',
        join(scratch, 'state'),
      ],
      operator: [
        '--kubeconfig',
        kubeconfig,
        '--login-server',
        `http://127.0.0.1:${port}`,
        '--credentials',
        scratch,
      ],
    };
    const child = spawn(
      process.execPath,
      [join(CHECKOUT, 'src', 'main.ts'), role, ...flags, ...(more[role] ?? []), '--ops-listen', 'off'],
      {
        stdio: ['ignore', 'ignore', 'inherit'],
        env: { ...process.env, NODE_NO_WARNINGS: '1', AWS_ACCESS_KEY_ID: 'a', AWS_SECRET_ACCESS_KEY: 'b' },
      },
    );
    await touched;
    const [, signal] = (await stop(child)) as readonly unknown[];
    expect(signal).toBe(null);
  });
});
