/** Finds all kubectl binaries of this machine, and runs them with captured output. */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { accessSync, constants, readdirSync, realpathSync } from 'node:fs';
import { delimiter, dirname, join } from 'node:path';
import { ensurePeer } from './build.ts';

export interface Kubectl {
  readonly path: string;
  /** For example `1.33`. */
  readonly minor: string;
  readonly version: string;
}

export type Transport = 'spdy' | 'websocket';

export interface KubectlResult {
  readonly code: number;
  readonly stdout: Buffer;
  readonly stderr: Buffer;
}

/**
 * A connection through a userspace tailscaled may need 63 seconds. If tailscaled chooses a local port of an earlier
 * connection, the peer ignores the SYN until it has forgotten that connection, for up to 60 seconds. TCP repeats the
 * SYN only after 1, 3, 7, 15, 31 and 63 seconds.
 */
const KUBECTL_TIMEOUT_MS = 90_000;

export interface KubectlRun {
  readonly kubeconfig: string;
  readonly transport?: Transport;
  readonly stdin?: Buffer | string;
  /** Default: {@link KUBECTL_TIMEOUT_MS}. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  readonly cwd?: string;
  /** HTTP proxy for all requests except those to this machine. */
  readonly proxyUrl?: string;
}

/**
 * Finds kubectl binaries: those named in `REAL_KUBECTLS` (separated like PATH), `kubectl` on the PATH with its
 * `kubectl.1.NN` siblings, and the one that is built with the peers. Returns one kubectl for each minor version, oldest
 * first.
 */
export async function findKubectls(): Promise<readonly Kubectl[]> {
  const { kubectl: built = '' } = await ensurePeer('kubernetes-1.36');
  const named = (process.env['REAL_KUBECTLS'] ?? '').split(delimiter).filter(Boolean);
  const found = new Map<string, Kubectl>();
  for (const path of [built, ...named, ...onPath()]) {
    const kubectl = inspect(path);
    if (kubectl !== undefined && !found.has(kubectl.minor)) found.set(kubectl.minor, kubectl);
  }
  return [...found.values()].toSorted((a, b) => minorNumber(a) - minorNumber(b));
}

/**
 * Returns true if this kubectl supports the transport for the command. WebSocket for port forwarding is one release
 * newer than WebSocket for exec and attach.
 */
export function speaks(
  kubectl: Kubectl,
  transport: Transport,
  command: 'exec' | 'port-forward' = 'exec',
): boolean {
  return transport === 'spdy' || minorNumber(kubectl) >= (command === 'exec' ? 29 : 30);
}

export function minorNumber(kubectl: Kubectl): number {
  return Number(kubectl.minor.split('.')[1]);
}

/** Runs kubectl until it exits. */
export function runKubectl(
  kubectl: Kubectl,
  args: readonly string[],
  run: KubectlRun,
): Promise<KubectlResult> {
  const child = startKubectl(kubectl, args, run);
  return new Promise((done, fail) => {
    const stdout: Buffer[] = [];
    const stderr: Buffer[] = [];
    const timeoutMs = run.timeoutMs ?? KUBECTL_TIMEOUT_MS;
    const timer = setTimeout(() => {
      child.kill('SIGKILL');
      const seen = Buffer.concat([...stdout, ...stderr])
        .toString()
        .slice(-2000);
      fail(new Error(`kubectl ${args.join(' ')}: still running after ${timeoutMs} ms\n${seen}`));
    }, timeoutMs);
    child.stdout?.on('data', (chunk: Buffer) => stdout.push(chunk));
    child.stderr?.on('data', (chunk: Buffer) => stderr.push(chunk));
    child.on('error', fail);
    child.on('close', (code, signal) => {
      clearTimeout(timer);
      const number = code ?? (signal === null ? -1 : 128);
      done({ code: number, stdout: Buffer.concat(stdout), stderr: Buffer.concat(stderr) });
    });
    // kubectl may end without reading all its input.
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(run.stdin ?? '');
  });
}

/** Starts kubectl without waiting: for port forwarding, watches and commands that are stopped from outside. */
export function startKubectl(kubectl: Kubectl, args: readonly string[], run: KubectlRun): ChildProcess {
  return spawn(kubectl.path, args, {
    stdio: ['pipe', 'pipe', 'pipe'],
    env: environmentFor(run),
    ...(run.cwd === undefined ? {} : { cwd: run.cwd }),
    ...(run.signal === undefined ? {} : { signal: run.signal }),
  });
}

/** Returns the variables for kubeconfig and transport, in addition to the common ones. */
export function environmentFor({ kubeconfig, transport, proxyUrl }: KubectlRun): Record<string, string> {
  const webSockets = transport === undefined ? {} : switches(transport === 'websocket');
  return {
    PATH: process.env['PATH'] ?? '',
    HOME: dirname(kubeconfig),
    KUBECONFIG: kubeconfig,
    TERM: 'xterm',
    ...(proxyUrl === undefined ? {} : { HTTPS_PROXY: proxyUrl }),
    ...webSockets,
  };
}

function switches(on: boolean): Record<string, string> {
  return {
    KUBECTL_REMOTE_COMMAND_WEBSOCKETS: String(on),
    KUBECTL_PORT_FORWARD_WEBSOCKETS: String(on),
  };
}

function onPath(): string[] {
  const folders = (process.env['PATH'] ?? '').split(delimiter).filter(Boolean);
  const first = folders.map((folder) => join(folder, 'kubectl')).find(isExecutable);
  if (first === undefined) return [];
  const real = realpathSync(first);
  const siblings = readdirSync(dirname(real)).filter((name) => /^kubectl[.-]?v?1\.\d+/.test(name));
  // Programs with a version in their name come first, because `kubectl` may be a program that starts one of them.
  return [...siblings.map((name) => join(dirname(real), name)), real];
}

function isExecutable(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

function inspect(path: string): Kubectl | undefined {
  if (!isExecutable(path)) return undefined;
  const answer = spawnSync(path, ['version', '--client', '--output=json'], {
    encoding: 'utf8',
    timeout: 20_000,
  });
  try {
    const parsed = JSON.parse(answer.stdout) as { clientVersion: { gitVersion: string } };
    const version = parsed.clientVersion.gitVersion;
    const minor = /^v(1\.\d+)/.exec(version)?.[1];
    return minor === undefined ? undefined : { path, minor, version };
  } catch {
    return undefined;
  }
}
