/**
 * A rig: a temporary folder and the programs that use it. At its end, the rig stops the programs and deletes the
 * folder.
 *
 * Programs are leaders of their own process groups and carry a marker in their environment. A reaper process kills all
 * of these programs if the process of the rig is killed.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import {
  appendFileSync,
  closeSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  readdirSync,
  rmSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { startTimeOf } from './lock-file.ts';
import { MARKER, sweep } from './reaper.ts';

const POLL_MS = 25;
const LOG_TAIL_LINES = 25;

export interface ProgramOptions {
  readonly name: string;
  readonly path: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Signal that `stop` sends first. Use SIGKILL for programs with disposable state. */
  readonly stopSignal?: 'SIGTERM' | 'SIGKILL';
}

export interface Program {
  readonly name: string;
  /** Id of the process and of its process group. A restart changes the id. */
  readonly pid: number;
  /** False after the process has exited. */
  readonly running: boolean;
  /** Resolves with the first line on standard output that is a JSON object. */
  readonly firstLine: Promise<Record<string, unknown>>;
  stop(): Promise<void>;
  /** Starts the program again with the same arguments, after `stop`. */
  start(): void;
  /** Sends SIGSTOP and returns when all threads of the process have stopped. The sockets of the process stay open. */
  pause(): void;
  resume(): void;
  signal(name: NodeJS.Signals): void;
  log(): string;
}

export interface Rig {
  readonly id: string;
  readonly folder: string;
  launch(options: ProgramOptions): Program;
  /**
   * Polls until `check` returns a value. If a watched program exits, the wait fails immediately with the end of its
   * log.
   */
  until<T>(what: string, check: () => Promise<T | undefined>, options?: UntilOptions): Promise<T>;
  /** Adds a callback that runs before the rig stops its programs. The last callback runs first. */
  onStop(action: () => Promise<void> | void): void;
  stop(): Promise<void>;
}

export interface UntilOptions {
  readonly watch?: readonly Program[];
  readonly timeoutMs?: number;
}

/**
 * Creates an empty rig. When the rig is stopped or this process exits, the rig's programs are stopped and its files are
 * removed.
 */
export function createRig(): Rig {
  const id = randomBytes(8).toString('hex');
  // The name is short, because unix socket paths have at most 107 bytes.
  const folder = mkdtempSync(join(tmpdir(), 'tcrig-'));
  mkdirSync(join(folder, 'log'));
  const pidFile = join(folder, 'pids');
  const reaper = startReaper(id, folder, pidFile);
  const programs: Program[] = [];
  const actions: (() => Promise<void> | void)[] = [];
  let stopping: Promise<void> | undefined;

  async function stopAll(): Promise<void> {
    for (const action of actions.toReversed()) await action();
    await Promise.all(programs.map((program) => program.stop()));
    await sweep(id);
    rmSync(folder, { recursive: true, force: true });
    const ended = new Promise((done) => reaper.once('exit', done));
    reaper.stdin?.end();
    await ended;
  }

  return {
    id,
    folder,
    launch(options) {
      if (stopping !== undefined) throw new Error(`the rig is stopping: ${options.name} cannot start`);
      const program = createProgram(id, folder, options, (pid) =>
        appendFileSync(pidFile, `${pid} ${startTimeOf(pid) ?? 0}\n`),
      );
      programs.push(program);
      return program;
    },
    until,
    onStop(action) {
      actions.push(action);
    },
    stop: () => (stopping ??= stopAll()),
  };
}

async function until<T>(
  what: string,
  check: () => Promise<T | undefined>,
  { watch = [], timeoutMs = 60_000 }: UntilOptions = {},
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  let last: unknown;
  for (;;) {
    try {
      const value = await within(check(), deadline - Date.now());
      if (value !== undefined) return value;
    } catch (error) {
      last = error;
    }
    const ended = watch.find((program) => !program.running);
    if (ended !== undefined)
      throw new Error(`${what}: ${ended.name} ended\n${tailOf(ended)}`, { cause: last });
    if (Date.now() > deadline) {
      const why = last instanceof Error ? last.message : 'no answer';
      throw new Error(`${what}: not within ${timeoutMs} ms: ${why}\n${watch.map(tailOf).join('\n')}`, {
        cause: last,
      });
    }
    await delay(POLL_MS);
  }
}

/** Resolves with undefined after the timeout, so that a slow check does not exceed the deadline. */
async function within<T>(answer: Promise<T | undefined>, ms: number): Promise<T | undefined> {
  const cancel = new AbortController();
  try {
    return await Promise.race([answer, delay(Math.max(1, ms), undefined, { signal: cancel.signal })]);
  } finally {
    cancel.abort();
  }
}

function tailOf(program: Program): string {
  const lines = program.log().trimEnd().split('\n').slice(-LOG_TAIL_LINES);
  return lines.map((line) => `  ${program.name}: ${line}`).join('\n');
}

function startReaper(id: string, folder: string, pidFile: string): ChildProcess {
  const child = spawn(
    process.execPath,
    [fileURLToPath(new URL('reaper.ts', import.meta.url)), id, folder, pidFile],
    { detached: true, stdio: ['pipe', 'ignore', 'ignore'] },
  );
  child.unref();
  const pipe = child.stdin;
  if (pipe !== null && 'unref' in pipe && typeof pipe.unref === 'function') pipe.unref();
  return child;
}

function createProgram(
  id: string,
  folder: string,
  options: ProgramOptions,
  remember: (pid: number) => void,
): Program {
  const logPath = join(folder, 'log', `${options.name}.log`);
  let run = startRun();

  function startRun(): Run {
    const log = openSync(logPath, 'a');
    const child = spawn(options.path, options.args, {
      cwd: folder,
      detached: true,
      stdio: ['ignore', 'pipe', log],
      env: { ...inherited(), ...options.env, [MARKER]: id },
    });
    closeSync(log);
    if (child.pid !== undefined) remember(child.pid);
    const started: Run = { child, ended: undefined, firstLine: firstObject(child, logPath) };
    started.firstLine.catch(() => undefined);
    child.once('exit', (code, signal) => {
      started.ended = `${signal ?? code}`;
      appendFileSyncIfThere(logPath, `[rig] ${options.name} ended: ${signal ?? `code ${code}`}\n`);
    });
    child.once('error', (error) => {
      started.ended = error.message;
      appendFileSyncIfThere(logPath, `[rig] ${options.name}: ${error.message}\n`);
    });
    child.unref();
    return started;
  }

  function signal(name: NodeJS.Signals): void {
    if (run.child.pid === undefined) return;
    try {
      process.kill(-run.child.pid, name);
    } catch {
      // The group has already exited.
    }
  }

  return {
    name: options.name,
    get pid() {
      return run.child.pid ?? 0;
    },
    get running() {
      return run.ended === undefined;
    },
    get firstLine() {
      return run.firstLine;
    },
    async stop() {
      const stopped = run;
      if (stopped.ended !== undefined) return;
      const gone = new Promise((done) => stopped.child.once('exit', done));
      signal('SIGCONT');
      signal(options.stopSignal ?? 'SIGKILL');
      await Promise.race([gone, delay(5_000)]);
      signal('SIGKILL');
      await gone;
    },
    start() {
      if (run.ended === undefined) throw new Error(`${options.name} runs already`);
      run = startRun();
    },
    pause() {
      signal('SIGSTOP');
      const { pid } = run.child;
      if (pid !== undefined && run.ended === undefined) waitUntilStopped(pid);
    },
    resume: () => signal('SIGCONT'),
    signal,
    log: () => readFileSync(logPath, 'utf8'),
  };
}

const STOP_MS = 5_000;

/** Blocks until all threads have stopped. `kill` returns before that, so the program could still send a response. */
function waitUntilStopped(pid: number): void {
  const deadline = Date.now() + STOP_MS;
  while (!isStopped(pid)) {
    if (Date.now() > deadline) throw new Error(`process ${pid} does not stop`);
  }
}

function isStopped(pid: number): boolean {
  const threads = readdirSync(`/proc/${pid}/task`);
  // The state follows the name, which is in parentheses and may contain any character.
  return threads.every((thread) => /\) [Tt] /.test(threadState(pid, thread)));
}

/** Returns the kernel's status line of a thread. A thread that has just exited counts as stopped. */
function threadState(pid: number, thread: string): string {
  try {
    return readFileSync(`/proc/${pid}/task/${thread}/stat`, 'latin1');
  } catch {
    return ') T ';
  }
}

interface Run {
  readonly child: ChildProcess;
  readonly firstLine: Promise<Record<string, unknown>>;
  ended: string | undefined;
}

/**
 * Returns the variables that programs of a rig inherit: those that every program needs, and the settings of the
 * gateways' recording protocol.
 */
function inherited(): Record<string, string> {
  const names = ['PATH', 'HOME', 'TMPDIR', 'LANG', 'TZ', 'NODE_COMPILE_CACHE'];
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = process.env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

/** Copies standard output to the log, and finds the line with which a program reports that it is ready. */
function firstObject(child: ChildProcess, logPath: string): Promise<Record<string, unknown>> {
  return new Promise((found, fail) => {
    let pending: string | undefined = '';
    child.stdout?.on('data', (chunk: Buffer) => {
      appendFileSyncIfThere(logPath, chunk);
      if (pending === undefined) return;
      pending += chunk.toString();
      const line = pending.split('\n').find((text) => text.startsWith('{') && text.endsWith('}'));
      if (line === undefined) return;
      pending = undefined;
      found(JSON.parse(line) as Record<string, unknown>);
    });
    child.once('exit', (code, signal) =>
      fail(new Error(`ended with ${signal ?? `code ${code}`} before its first line`)),
    );
    if (child.stdout !== null && 'unref' in child.stdout && typeof child.stdout.unref === 'function') {
      child.stdout.unref();
    }
  });
}

function appendFileSyncIfThere(path: string, data: string | Buffer): void {
  try {
    appendFileSync(path, data);
  } catch {
    // The rig has stopped, and its folder no longer exists.
  }
}

/** The ports are below the kernel's ephemeral range, so outgoing connections do not use them. */
const FIRST_PORT = 12_000;
const PORTS = 20_000;
let nextPort = randomInt(PORTS);

/**
 * Finds a port without a listener. Until a program listens on it, another process may find the same port. To make such
 * a conflict unlikely, each process starts at a random port and never returns a port twice.
 */
export async function freePort(): Promise<number> {
  for (let attempt = 0; attempt < 100; attempt += 1) {
    const port = FIRST_PORT + (nextPort % PORTS);
    nextPort += 1;
    if (await isFree(port)) return port;
  }
  throw new Error('no free port found');
}

function isFree(port: number): Promise<boolean> {
  return new Promise((done) => {
    const server = createServer();
    server.once('error', () => done(false));
    server.listen({ port, host: '127.0.0.1', exclusive: true }, () => server.close(() => done(true)));
  });
}
