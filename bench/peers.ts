/** The processes a benchmark compares: each is started once, prints the port it listens on, and is measured from outside. */
import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { CertificateFiles } from './certificates.ts';

const here = dirname(fileURLToPath(import.meta.url));

export interface Peer {
  readonly name: string;
  readonly port: number;
  /** Undefined for the direct connection: there is no proxy process. */
  readonly pid: number | undefined;
}

/** Children of this run; all are ended by `stopAll`. */
const children: ChildProcess[] = [];

export function stopAll(): void {
  for (const child of children) child.kill('SIGTERM');
}

/** The compiled programs: types are stripped once, not by each process as it starts (which costs memory as well). */
const programs = join(here, '..', 'node_modules', '.cache', 'tailcast', 'bench');

/** Compiles the benchmark and the sources it uses. Throws with the compiler's messages. */
export function compile(): void {
  const tsc = join(here, '..', 'node_modules', '.bin', 'tsc');
  const built = spawnSync(tsc, ['-p', join(here, 'tsconfig.json'), '--outDir', programs], {
    encoding: 'utf8',
  });
  if (built.status !== 0) throw new Error(`${built.stdout}${built.stderr}`);
}

function program(name: string): string {
  return join(programs, 'bench', `${name}.js`);
}

export function startUpstream(files: CertificateFiles): Promise<Peer> {
  return start('direct', process.execPath, [program('upstream'), files.cert, files.key]).then((peer) => ({
    ...peer,
    pid: undefined,
  }));
}

export function startGateway(files: CertificateFiles, upstreamPort: number): Promise<Peer> {
  return start('tailcast', process.execPath, [
    program('gateway'),
    files.cert,
    files.key,
    files.ca,
    String(upstreamPort),
  ]);
}

/** Starts Go's reverse proxy, or says why there is none. */
export async function startGoProxy(files: CertificateFiles, upstreamPort: number): Promise<Peer | string> {
  const binary = buildGoProxy();
  if (typeof binary !== 'string') return binary.reason;
  const flags = [
    '-cert',
    files.cert,
    '-key',
    files.key,
    '-ca',
    files.ca,
    '-upstream',
    `https://localhost:${upstreamPort}`,
  ];
  return start('go', binary, flags);
}

/** Builds into the user's cache directory, once per version of the source. */
function buildGoProxy(): string | { readonly reason: string } {
  const version = spawnSync('go', ['version'], { encoding: 'utf8' });
  if (version.status !== 0) return { reason: 'there is no `go` on this machine' };
  const source = readFileSync(join(here, 'go', 'main.go'));
  const digest = createHash('sha256').update(source).update(version.stdout).digest('hex').slice(0, 16);
  const cache = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'tailcast', 'bench');
  const binary = join(cache, `reverse-proxy-${digest}`);
  if (existsSync(binary)) return binary;
  mkdirSync(cache, { recursive: true });
  console.log('building the Go peer …');
  const built = spawnSync('go', ['build', '-o', binary, '.'], { cwd: join(here, 'go'), encoding: 'utf8' });
  return built.status === 0 ? binary : { reason: `go build failed: ${built.stderr.trim()}` };
}

function start(name: string, command: string, args: readonly string[]): Promise<Peer> {
  const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  children.push(child);
  return new Promise((resolve, reject) => {
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
      const port = /^(\d+)\n/.exec(output)?.[1];
      if (port !== undefined && child.pid !== undefined)
        resolve({ name, port: Number(port), pid: child.pid });
    });
    child.on('error', reject);
    child.on('exit', (code) => reject(new Error(`${name} ended with ${code} before it listened`)));
  });
}

export interface LoadResult {
  readonly requests: number;
  readonly seconds: number;
  readonly bytes: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly loadCpuSeconds: number;
}

/** Runs the load generator in a process of its own. Rejects when an answer was wrong. */
export function runLoad(
  peer: Peer,
  files: CertificateFiles,
  load: { readonly path: string; readonly connections: number; readonly durationMs: number },
): Promise<LoadResult> {
  const args = [
    program('load'),
    String(peer.port),
    files.ca,
    load.path,
    String(load.connections),
    String(load.durationMs),
  ];
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  children.push(child);
  return new Promise((resolve, reject) => {
    let output = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text));
    child.on('error', reject);
    child.on('close', (code) => {
      children.splice(children.indexOf(child), 1);
      if (code === 0) resolve(JSON.parse(output) as LoadResult);
      else reject(new Error(`the load on ${peer.name} failed`));
    });
  });
}

/** CPU seconds (user and system) a process has used, and its peak memory. Linux only; undefined elsewhere. */
export function usageOf(pid: number | undefined): { cpuSeconds: number; peakRssMb: number } | undefined {
  if (pid === undefined || !existsSync(`/proc/${pid}/stat`)) return undefined;
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const ticks = Number(fields[11]) + Number(fields[12]);
  const peak = /VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return { cpuSeconds: ticks / 100, peakRssMb: Number(peak ?? 0) / 1024 };
}
