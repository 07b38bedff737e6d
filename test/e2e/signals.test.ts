/** However a role is started, signals reach it, and it exits when a user stops the process that started it. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findOldNode } from '../support/old-node.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const PINNED = join(ROOT, 'node_modules/.bin/node');
const WRAPPER = join(ROOT, 'scripts/tailcast.mjs');
const MAIN = join(ROOT, 'dist/main.js');

const old = findOldNode();

/** Ways to start a role. A command is undefined if this machine lacks the Node.js version that it needs. */
const WAYS: readonly (readonly [name: string, command: readonly string[] | undefined])[] = [
  ['dist/main.js', [PINNED, MAIN]],
  ['scripts/tailcast.mjs', [PINNED, WRAPPER]],
  ['scripts/tailcast.mjs on a Node that is too old', old === undefined ? undefined : [old, WRAPPER]],
  [
    'scripts/run.mjs, as npm start',
    [PINNED, join(ROOT, 'scripts/run.mjs'), 'install', '--', 'node', 'dist/main.js'],
  ],
];

interface Started {
  readonly child: ChildProcess;
  readonly port: number;
}

let directory: string;
let count = 0;
const children: ChildProcess[] = [];
beforeAll(async () => {
  if (!existsSync(MAIN)) throw new Error('dist/main.js is missing: run `npm run build` first');
  directory = await mkdtemp(join(tmpdir(), 'tailcast-signals-'));
});
afterAll(async () => {
  for (const child of children) child.kill('SIGKILL');
});

async function start(command: readonly string[], extra: readonly string[] = []): Promise<Started> {
  const [program = '', ...args] = command;
  count += 1;
  const store = join(directory, String(count));
  const settings = ['--store', store, '--spool', `${store}-spool`, '--identity', 'loopback'];
  const listen = ['--listen', '127.0.0.1:0', '--ops-listen', 'off', '--ui', 'false'];
  const child = spawn(program, [...args, 'recorder', ...settings, ...listen, ...extra], {
    cwd: ROOT,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  children.push(child);
  const said: string[] = [];
  for await (const line of createInterface({ input: child.stderr })) {
    said.push(line);
    const url = /"url":"http:\/\/127\.0\.0\.1:(\d+)[^"]*".*"recorder is ready"/.exec(line)?.[1];
    if (url !== undefined) {
      child.stderr.resume();
      return { child, port: Number(url) };
    }
  }
  throw new Error(`it did not start: ${said.join('\n')}`);
}

/** Returns true if the address has a listener. */
async function listens(port: number): Promise<boolean> {
  const socket = connect({ port, host: '127.0.0.1' });
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}

describe.each(WAYS)('%s', (_name, command) => {
  it.skipIf(command === undefined).each(['SIGTERM', 'SIGINT', 'SIGHUP'] as const)(
    'ends the role in good order at %s',
    async (signal) => {
      const { child, port } = await start(command ?? []);
      expect(await listens(port)).toBe(true);
      const ended = once(child, 'exit');
      child.kill(signal);
      expect(await ended).toEqual([0, null]);
      expect(await listens(port)).toBe(false);
    },
  );

  it.skipIf(command === undefined)('leaves no role behind when it is killed', async () => {
    const { child, port } = await start(command ?? []);
    const ended = once(child, 'exit');
    child.kill('SIGKILL');
    await ended;
    await expect.poll(() => listens(port)).toBe(false);
  });

  it.skipIf(command === undefined)('ends with the exit code of the role', async () => {
    const [program = '', ...args] = command ?? [];
    const child = spawn(program, [...args, 'no-such-command'], { cwd: ROOT, stdio: 'ignore' });
    expect(await once(child, 'exit')).toEqual([2, null]);
  });
});
