/**
 * Builds the missing peers into a cache outside the repository.
 *
 *   node test/real/rig/build.ts [peer…]
 *
 * The cache key of a peer is a hash of all its inputs: go.mod, go.sum, its own sources and the flags. A program is
 * built under a temporary name and then renamed, so an interrupted build leaves no incomplete file. A lock file
 * prevents two builds of one peer at the same time.
 */
import { spawn, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
} from 'node:fs';
import { homedir, setPriority } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { setTimeout } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { acquireLock } from './lock-file.ts';
import { PEERS, type Peer, type PeerName } from './peers.ts';

const peersFolder = resolve(dirname(fileURLToPath(import.meta.url)), '../peers');
const PROGRESS_MS = 15_000;
/** Number of attempts, because the module registry can fail temporarily. */
const DOWNLOADS = 4;
const DOWNLOAD_PAUSE_MS = 5000;
/** Builds run with low priority. */
const BUILD_NICENESS = 10;
const KEEP_UNUSED_MS = 14 * 24 * 3600 * 1000;

export type Programs = Readonly<Record<string, string>>;
type Report = (line: string) => void;

/** Thrown if Go is missing. The message explains what to install; skipped suites print it as their reason. */
export class GoMissingError extends Error {}

const inFlight = new Map<PeerName, Promise<Programs>>();

/**
 * Returns the programs and files of a peer, and builds or downloads missing ones, which needs the network. A suite with
 * its own network namespace cannot reach the network, so `suites.ts` names its peers, and `run.ts` builds them first.
 *
 * @returns a map from the name of each program or folder of files to its absolute path
 * @throws GoMissingError if a build is needed without Go; Error with the compiler's output otherwise
 */
export function ensurePeer(name: PeerName, report: Report = toStderr): Promise<Programs> {
  const known = inFlight.get(name);
  if (known !== undefined) return known;
  const build = buildPeer(name, report);
  inFlight.set(name, build);
  build.catch(() => inFlight.delete(name));
  return build;
}

/** Returns the cache folder of builds: `REAL_PEERS_DIR`, or a folder in the user's cache. */
export function cacheFolder(): string {
  return resolve(process.env['REAL_PEERS_DIR'] ?? join(homedir(), '.cache', 'tailcast-peers'));
}

async function buildPeer(name: PeerName, report: Report): Promise<Programs> {
  const peer = PEERS[name];
  const folder = join(cacheFolder(), `${name}-${keyOf(peer)}`);
  const names = [...Object.keys(peer.programs), ...Object.keys(peer.files ?? {})];
  const paths = Object.fromEntries(names.map((made) => [made, join(folder, made)]));
  if (Object.values(paths).every((path) => existsSync(path))) {
    utimesSync(folder, new Date(), new Date());
    return paths;
  }
  requireGo();
  const release = await acquireLock(`${folder}.lock`, (pid) =>
    report(`${name}: waiting for process ${pid}, which builds it already`),
  );
  try {
    mkdirSync(folder, { recursive: true });
    for (const [made, path] of Object.entries(paths)) {
      if (existsSync(path)) continue;
      if (peer.files?.[made] === undefined) await buildProgram(name, peer, made, path, report);
      else await keepFiles(peer, peer.files[made], path, report);
    }
    removeUnused(name, folder);
  } finally {
    release();
  }
  return paths;
}

/** Copies a folder of a module to `path`. @throws Error with the message of Go if the module is unavailable */
async function keepFiles(
  peer: Peer,
  { module, folder }: { readonly module: string; readonly folder: string },
  path: string,
  report: Report,
): Promise<void> {
  const temporary = `${path}.${process.pid}.part`;
  try {
    cpSync(join(await downloadModule(module, peer, report), folder), temporary, { recursive: true });
    // Files of the module cache are read-only, but it must be possible to delete the copy.
    chmodSync(temporary, 0o755);
    renameSync(temporary, path);
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
}

/** @returns the folder of a module in the version of the peer's go.mod */
async function downloadModule(module: string, peer: Peer, report: Report): Promise<string> {
  for (let tries = 1; ; tries += 1) {
    const { stdout, stderr } = spawnSync('go', ['mod', 'download', '-json', module], {
      cwd: join(peersFolder, peer.folder),
      encoding: 'utf8',
      env: goEnvironment(),
    });
    // Go reports errors in the JSON output, not on stderr.
    const { Dir, Error: problem } = JSON.parse(stdout || '{}') as { Dir?: string; Error?: string };
    if (Dir !== undefined) return Dir;
    const message = `go mod download ${module}: ${problem ?? stderr}`;
    if (tries === DOWNLOADS) throw new Error(message);
    report(message);
    await setTimeout(DOWNLOAD_PAUSE_MS);
  }
}

async function buildProgram(
  name: PeerName,
  peer: Peer,
  program: string,
  path: string,
  report: Report,
): Promise<void> {
  const started = Date.now();
  report(`${name}: building ${program} (minutes the first time, seconds later)`);
  const temporary = `${path}.${process.pid}.part`;
  const timer = setInterval(
    () => report(`${name}: still building ${program}, ${seconds(started)} s`),
    PROGRESS_MS,
  );
  try {
    await go(
      [...buildArguments(peer, program), '-o', temporary, packageOf(peer, program)],
      join(peersFolder, peer.folder),
    );
    renameSync(temporary, path);
  } finally {
    clearInterval(timer);
    rmSync(temporary, { force: true });
  }
  const megabytes = Math.round(statSync(path).size / 1e6);
  report(`${name}: built ${program} in ${seconds(started)} s (${megabytes} MB)`);
}

function packageOf(peer: Peer, program: string): string {
  const goPackage = peer.programs[program];
  if (goPackage === undefined) throw new Error(`no program ${program}`);
  return goPackage;
}

function buildArguments(peer: Peer, program: string): string[] {
  const names = peer.tags?.[program];
  const tags = names === undefined ? [] : ['-tags', names];
  const linker = ['-s', '-w', ...(peer.linkerFlags ?? [])].join(' ');
  // A module that is missing from go.sum is an error (`-mod=readonly`).
  return ['build', '-mod=readonly', '-trimpath', '-buildvcs=false', ...tags, '-ldflags', linker];
}

function go(args: readonly string[], folder: string): Promise<void> {
  return new Promise((done, fail) => {
    const child = spawn('go', args, {
      cwd: folder,
      env: goEnvironment(),
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    if (child.pid !== undefined) lowerPriority(child.pid);
    const output: string[] = [];
    const keep = (chunk: Buffer): void => {
      output.push(chunk.toString());
      if (output.length > 200) output.shift();
    };
    child.stdout.on('data', keep);
    child.stderr.on('data', keep);
    const stop = (): void => {
      child.kill();
    };
    process.once('exit', stop);
    child.on('error', fail);
    child.on('close', (code) => {
      process.off('exit', stop);
      if (code === 0) done();
      else fail(new Error(`go ${args.slice(-1).join('')} failed with code ${code}:\n${output.join('')}`));
    });
  });
}

function goEnvironment(): NodeJS.ProcessEnv {
  return { ...process.env, CGO_ENABLED: '0', GOWORK: 'off' };
}

function lowerPriority(pid: number): void {
  try {
    setPriority(pid, BUILD_NICENESS);
  } catch {}
}

function requireGo(): void {
  if (spawnSync('go', ['version']).status !== 0) {
    throw new GoMissingError(
      'the real peers are not built yet and this machine has no Go: install Go 1.26 or newer and run again',
    );
  }
}

/** Returns the cache key: a hash of all inputs of the build. */
function keyOf(peer: Peer): string {
  const hash = createHash('sha256').update(JSON.stringify(peer));
  const folder = join(peersFolder, peer.folder);
  const files = ['go.mod', 'go.sum', ...ownSources(peer, folder)];
  for (const file of files) {
    hash
      .update(file)
      .update('\0')
      .update(readFileSync(join(folder, file)))
      .update('\0');
  }
  return hash.digest('hex').slice(0, 16);
}

/** Returns the Go files of the peer's module. */
function ownSources(peer: Peer, folder: string): string[] {
  const isOwn = Object.values(peer.programs).some((goPackage) => goPackage.startsWith('.'));
  if (!isOwn) return [];
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.go'))
    .toSorted();
}

/** Removes builds with other keys that were unused for two weeks. */
function removeUnused(name: PeerName, current: string): void {
  const pattern = new RegExp(`^${name.replaceAll('.', '\\.')}-[0-9a-f]{16}$`);
  for (const entry of readdirSync(cacheFolder()).filter((file) => pattern.test(file))) {
    const path = join(cacheFolder(), entry);
    const unusedMs = Date.now() - statSync(path).mtimeMs;
    if (entry !== basename(current) && unusedMs > KEEP_UNUSED_MS)
      rmSync(path, { recursive: true, force: true });
  }
}

function seconds(since: number): number {
  return Math.round((Date.now() - since) / 1000);
}

function toStderr(line: string): void {
  process.stderr.write(`peers: ${line}\n`);
}

export function isPeerName(text: string): text is PeerName {
  return Object.hasOwn(PEERS, text);
}

if (import.meta.main) {
  const names = process.argv.slice(2);
  const unknown = names.filter((name) => !isPeerName(name));
  if (unknown.length > 0) {
    process.stderr.write(`peers: unknown: ${unknown.join(' ')}; known: ${Object.keys(PEERS).join(' ')}\n`);
    process.exitCode = 2;
  } else {
    try {
      // Runs the builds one after another, because each build uses all processors.
      for (const name of names.length > 0 ? names : Object.keys(PEERS)) {
        if (isPeerName(name)) process.stdout.write(`${JSON.stringify({ [name]: await ensurePeer(name) })}\n`);
      }
    } catch (error) {
      process.stderr.write(`peers: ${error instanceof Error ? error.message : String(error)}\n`);
      process.exitCode = 1;
    }
  }
}
