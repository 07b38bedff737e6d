import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, readdirSync, realpathSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { delimiter, dirname, join } from 'node:path';
import { tmpdir } from 'node:os';

/** A kubectl on this machine. `minor` is 27 for 1.27. */
export interface Kubectl {
  readonly path: string;
  readonly version: string;
  readonly minor: number;
}

/** Returns all `kubectl.1.NN` in the directory of `kubectl`, oldest first; empty if there are none. */
export function findKubectls(): readonly Kubectl[] {
  const found = (process.env['PATH'] ?? '')
    .split(delimiter)
    .map((folder) => join(folder, 'kubectl'))
    .find((path) => existsSync(path));
  if (found === undefined) return [];
  const folder = dirname(realpathSync(found));
  return readdirSync(folder)
    .flatMap((name) => {
      const minor = Number(/^kubectl\.1\.(\d+)$/.exec(name)?.[1] ?? Number.NaN);
      return Number.isNaN(minor) ? [] : [{ path: join(folder, name), version: `1.${String(minor)}`, minor }];
    })
    .toSorted((left, right) => left.minor - right.minor);
}

/** Prints once why tests that need kubectl are skipped. */
export function explainMissingKubectl(): void {
  process.stderr.write(
    'skipped: no kubectl.1.NN beside kubectl in PATH, so kubectl-driven tests cannot run\n',
  );
}

/** Protocol of kubectl's streaming requests. */
export type Transport = 'spdy' | 'websocket';

/** Returns the transports that this kubectl supports for exec, attach and cp. */
export function execTransports({ minor }: Kubectl): readonly Transport[] {
  return minor >= 29 ? ['spdy', 'websocket'] : ['spdy'];
}

/** Returns the transports that this kubectl supports for port-forward. */
export function forwardTransports({ minor }: Kubectl): readonly Transport[] {
  return minor >= 30 ? ['spdy', 'websocket'] : ['spdy'];
}

export interface KubeconfigOptions {
  readonly directory: string;
  readonly url: string;
  readonly caPem: string;
  /** Without a token, the kubeconfig has no credentials. */
  readonly token?: string;
}

/** Writes a kubeconfig into `directory` and returns its path. */
export async function writeKubeconfig({ directory, url, caPem, token }: KubeconfigOptions): Promise<string> {
  const path = join(directory, `kubeconfig-${Math.random().toString(36).slice(2)}`);
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    clusters: [
      {
        name: 'test',
        cluster: { server: url, 'certificate-authority-data': Buffer.from(caPem).toString('base64') },
      },
    ],
    users: [{ name: 'test', user: token === undefined ? {} : { token } }],
    contexts: [{ name: 'test', context: { cluster: 'test', user: 'test' } }],
    'current-context': 'test',
  };
  await writeFile(path, JSON.stringify(config), { mode: 0o600 });
  return path;
}

export interface KubectlOptions {
  readonly kubectl: Kubectl;
  readonly kubeconfig: string;
  readonly transport?: Transport;
  /** Directory for kubectl's discovery cache. Default: the directory of the kubeconfig. */
  readonly home?: string;
}

export interface KubectlResult {
  readonly code: number;
  readonly stdout: Buffer;
  readonly stderr: string;
}

/** Returns the environment for a kubectl without the user's own configuration. */
export function kubectlEnvironment(options: KubectlOptions): Record<string, string> {
  const websocket = String((options.transport ?? 'websocket') === 'websocket');
  return {
    PATH: process.env['PATH'] ?? '',
    HOME: options.home ?? dirname(options.kubeconfig),
    KUBECONFIG: options.kubeconfig,
    KUBECTL_REMOTE_COMMAND_WEBSOCKETS: websocket,
    KUBECTL_PORT_FORWARD_WEBSOCKETS: websocket,
    TERM: 'xterm',
    TMPDIR: tmpdir(),
  };
}

/** Runs kubectl until it exits. `input` is its standard input; default: empty. */
export async function runKubectl(
  options: KubectlOptions,
  args: readonly string[],
  input?: string | Uint8Array,
): Promise<KubectlResult> {
  const running = startKubectl(options, args, input === undefined ? 'ignore' : 'pipe');
  if (input !== undefined) running.write(input, true);
  const code = await running.exited;
  return { code, stdout: running.stdout(), stderr: running.stderr() };
}

/** A running kubectl, which the test can kill. */
export interface RunningKubectl {
  readonly pid: number;
  write(bytes: string | Uint8Array, end?: boolean): void;
  stdout(): Buffer;
  stderr(): string;
  /** Resolves with the first match in the output so far, or rejects if kubectl exits first. */
  waitFor(pattern: RegExp): Promise<RegExpExecArray>;
  readonly exited: Promise<number>;
  kill(signal?: NodeJS.Signals): void;
}

/** Starts kubectl on pipes. */
export function startKubectl(
  options: KubectlOptions,
  args: readonly string[],
  stdin: 'ignore' | 'pipe' = 'ignore',
): RunningKubectl {
  const child: ChildProcess = spawn(options.kubectl.path, args, {
    env: kubectlEnvironment(options),
    stdio: [stdin, 'pipe', 'pipe'],
  });
  const out: Buffer[] = [];
  const err: Buffer[] = [];
  const screen = createScreen();
  const exited = new Promise<number>((resolve) => {
    child.once('close', (code, signal) => {
      screen.end();
      resolve(code ?? (signal === null ? 1 : 128));
    });
  });
  child.stdin?.on('error', () => undefined);
  child.stdout?.on('data', (chunk: Buffer) => {
    out.push(chunk);
    screen.print(chunk.toString('utf8'));
  });
  child.stderr?.on('data', (chunk: Buffer) => {
    err.push(chunk);
    screen.print(chunk.toString('utf8'));
  });
  return {
    pid: child.pid ?? -1,
    write(bytes, end = false) {
      if (end) child.stdin?.end(bytes);
      else child.stdin?.write(bytes);
    },
    stdout: () => Buffer.concat(out),
    stderr: () => Buffer.concat(err).toString('utf8'),
    waitFor: screen.waitFor,
    exited,
    kill: (signal = 'SIGTERM') => child.kill(signal),
  };
}

/** A kubectl at a terminal. */
export interface KubectlTerminal {
  readonly pid: number;
  type(text: string): void;
  resize(columns: number, rows: number): void;
  /** All output on the terminal so far. */
  screen(): string;
  /** Discards the output so far, so that the next `waitFor` matches only later output. */
  clear(): void;
  waitFor(pattern: RegExp): Promise<RegExpExecArray>;
  readonly exited: Promise<number>;
  kill(): void;
}

/** Returns true if a package for pseudo-terminals is installed. */
export const hasTerminals = await import('@lydell/node-pty').then(
  () => true,
  () => false,
);

/** Starts kubectl in a pseudo-terminal. Returns undefined if no package for pseudo-terminals is installed. */
export async function openKubectlTerminal(
  options: KubectlOptions,
  args: readonly string[],
  size = { columns: 100, rows: 30 },
): Promise<KubectlTerminal | undefined> {
  const module = await import('@lydell/node-pty').catch(() => undefined);
  if (module === undefined) return undefined;
  const pty = module.spawn(options.kubectl.path, [...args], {
    name: 'xterm',
    cols: size.columns,
    rows: size.rows,
    env: kubectlEnvironment(options),
  });
  const screen = createScreen();
  pty.onData((text) => screen.print(text));
  const exited = new Promise<number>((resolve) => {
    pty.onExit(({ exitCode, signal }) => {
      screen.end();
      resolve(signal === undefined || signal === 0 ? exitCode : 128 + signal);
    });
  });
  return {
    pid: pty.pid,
    type: (text) => pty.write(text),
    resize: (columns, rows) => pty.resize(columns, rows),
    screen: screen.text,
    clear: screen.clear,
    waitFor: screen.waitFor,
    exited,
    kill: () => pty.kill('SIGKILL'),
  };
}

interface Screen {
  print(text: string): void;
  text(): string;
  clear(): void;
  waitFor(pattern: RegExp): Promise<RegExpExecArray>;
  end(): void;
}

/**
 * Maximum time until the expected output. It is shorter than the time limit of a test, so that the error names the
 * missing output, but long enough for a busy machine.
 */
const PRINTS_WITHIN_MS = 120_000;

function createScreen(): Screen {
  const waiting = new Set<() => void>();
  let text = '';
  let ended = false;
  const check = (): void => {
    for (const look of waiting) look();
  };
  return {
    print(more) {
      text += more;
      check();
    },
    text: () => text,
    clear() {
      text = '';
    },
    waitFor: (pattern) =>
      new Promise((resolve, reject) => {
        let late = false;
        const limit = setTimeout(() => {
          late = true;
          look();
        }, PRINTS_WITHIN_MS);
        const look = (): void => {
          const match = pattern.exec(text);
          if (match === null && !ended && !late) return;
          clearTimeout(limit);
          waiting.delete(look);
          const why = ended ? 'ended before' : 'has not printed';
          if (match === null) reject(new Error(`kubectl ${why} ${String(pattern)}; it printed: ${text}`));
          else resolve(match);
        };
        waiting.add(look);
        look();
      }),
    end() {
      ended = true;
      check();
    },
  };
}
