/**
 * Several commands start at the same moment in one checkout. The checkout contains fake programs; the fake `tsc` exits
 * when the test sends a command.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, it } from 'vitest';

const SCRIPTS = join(import.meta.dirname, '..', '..', 'scripts');
const WAITS = /another command of this checkout is building \(process ([\d, ]+)\): waiting for its end/;

let checkout: string;
let compilers: Server;
let running: Build[];

beforeEach(async () => {
  checkout = await mkdtemp(join(tmpdir(), 'tailcast-build-'));
  compilers = createServer().listen(0, '127.0.0.1');
  running = [];
  await once(compilers, 'listening');
  const { port } = compilers.address() as AddressInfo;
  for (const name of ['run.mjs', 'build-lock.mjs'])
    await cp(join(SCRIPTS, name), join(checkout, 'scripts', name));
  const bin = join(checkout, 'node_modules', '.bin');
  await mkdir(bin, { recursive: true });
  const program = (name: string, code: string): Promise<void> =>
    writeFile(join(bin, name), `#!${process.execPath}\n${code}`, { mode: 0o755 });
  await program('npm', '');
  // writes a fake `node` executable that can only build the demo
  await program(
    'node',
    `const fs = require('node:fs');
    fs.mkdirSync('dist/demo', { recursive: true });
    fs.writeFileSync('dist/demo/run.js', '');`,
  );
  await program('vite', `require('node:fs').mkdirSync('dist/player', { recursive: true });`);
  await program('look', `process.stdout.write(require('node:fs').readFileSync('dist/main.js'));`);
  await program(
    'tsc',
    `const fs = require('node:fs');
    fs.mkdirSync('dist', { recursive: true });
    fs.writeFileSync('dist/main.js', 'half');
    const socket = require('node:net').connect(${port}, '127.0.0.1');
    socket.resume().on('end', () => {
      fs.writeFileSync('dist/main.js', 'whole');
      socket.end();
    });`,
  );
});

afterEach(async () => {
  for (const { child } of running) child.kill('SIGKILL');
  compilers.close();
  await rm(checkout, { recursive: true, force: true });
});

interface Build {
  readonly child: ChildProcess;
  readonly said: string[];
  readonly seen: Promise<string>;
  readonly code: Promise<unknown>;
  /** Resolves when the command reports that it waits. */
  readonly waits: Promise<RegExpExecArray>;
}

/** Starts a command that prints the content of `dist`. */
function build(): Build {
  const child = spawn(process.execPath, ['scripts/run.mjs', 'build', '--', 'look'], {
    cwd: checkout,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const said: string[] = [];
  const waits = Promise.withResolvers<RegExpExecArray>();
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    said.push(chunk);
    const found = WAITS.exec(said.join(''));
    if (found !== null) waits.resolve(found);
  });
  const started = {
    child,
    said,
    seen: text(child.stdout),
    code: once(child, 'exit').then(([code]: unknown[]) => code),
    waits: waits.promise,
  };
  running.push(started);
  return started;
}

async function compiler(): Promise<Socket> {
  const [socket] = (await once(compilers, 'connection')) as [Socket];
  return socket;
}

/** Rejects if another compiler starts before `event`. */
async function alone<T>(event: Promise<T>): Promise<T> {
  const over = new AbortController();
  try {
    return await Promise.race([
      event,
      once(compilers, 'connection', { signal: over.signal }).then(() => {
        throw new Error('two compilers at once');
      }),
    ]);
  } finally {
    over.abort();
  }
}

it('builds once for two commands that are begun at once', async () => {
  const first = compiler();
  const builds = [build(), build()] as const;
  const compiling = await first;
  const [, owners = ''] = await alone(Promise.race(builds.map(({ waits }) => waits)));
  expect(builds.map(({ child }) => owners.split(', ').includes(String(child.pid)))).toContain(true);
  compiling.end();
  expect(await alone(Promise.all(builds.map(({ code }) => code)))).toEqual([0, 0]);
  expect(await Promise.all(builds.map(({ seen }) => seen))).toEqual(['whole', 'whole']);
  const all = builds.flatMap(({ said }) => said).join('');
  expect(all.match(/building the server/g)).toHaveLength(1);
  expect(await readdir(checkout)).toEqual(['dist', 'node_modules', 'scripts']);
});

it('takes over from a command that was killed, once what it had started has ended as well', async () => {
  const orphan = compiler();
  const killed = build();
  const compiling = await orphan;
  killed.child.kill('SIGKILL');
  await killed.code;
  const next = build();
  const [, owners] = await alone(next.waits);
  expect(owners).not.toContain(String(killed.child.pid));
  const second = compiler();
  compiling.end();
  (await second).end();
  expect(await next.code).toBe(0);
  expect(await next.seen).toBe('whole');
  expect(await readdir(checkout)).toEqual(['dist', 'node_modules', 'scripts']);
});

it('is not held by a process that has ended, nor by another that was given its number', async () => {
  await mkdir(join(checkout, '.build-lock'));
  for (const held of ['4194304-1', `${process.pid}-1`])
    await writeFile(join(checkout, '.build-lock', held), '');
  const compiling = compiler();
  const { code, seen } = build();
  (await compiling).end();
  expect(await code).toBe(0);
  expect(await seen).toBe('whole');
});

it('builds anew what was left half made, though its sources are as they were', async () => {
  const first = compiler();
  const done = build();
  (await first).end();
  expect(await done.code).toBe(0);
  await mkdir(join(checkout, 'src'));
  await writeFile(join(checkout, 'src', 'new.ts'), '');
  const begun = compiler();
  const killed = build();
  const orphan = await begun;
  killed.child.kill('SIGKILL');
  await killed.code;
  await rm(join(checkout, 'src'), { recursive: true });
  const again = compiler();
  orphan.destroy();
  const last = build();
  (await again).end();
  expect(await last.code).toBe(0);
  expect(await last.seen).toBe('whole');
});
