/** Creates reproducible files and archives: equal input results in equal bytes on every machine. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  closeSync,
  lstatSync,
  lutimesSync,
  openSync,
  readFileSync,
  readdirSync,
  readSync,
  statSync,
} from 'node:fs';
import { basename, join, relative } from 'node:path';
import { readEnvironment } from '../../src/config/environment.ts';

const CHUNK = 1 << 20;
const MAX_OUTPUT = 256 * 1024 ** 2;

export interface RunOptions {
  readonly cwd?: string;
  readonly env?: Readonly<Record<string, string>>;
}

/**
 * Runs a program until it exits, and returns its output.
 *
 * @throws Error with the program's output if it fails or is not installed
 */
export function run(program: string, args: readonly string[], { cwd, env = {} }: RunOptions = {}): string {
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    cwd,
    encoding: 'utf8',
    maxBuffer: MAX_OUTPUT,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...Object.fromEntries(readEnvironment()), ...env },
  });
  if (error !== undefined) throw new Error(`${program} cannot be run: ${error.message}`, { cause: error });
  if (status !== 0) {
    const output = `${stdout}${stderr}`.trim().slice(-3000);
    throw new Error(
      `${basename(program)} ${args.slice(0, 3).join(' ')} failed (${String(status)}):\n${output}`,
    );
  }
  return stdout;
}

/** Returns the sorted paths of the files and links below a folder, relative to this folder. */
export function filesBelow(folder: string): readonly string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => !entry.isDirectory())
    .map((entry) => relative(folder, join(entry.parentPath, entry.name)))
    .toSorted();
}

/** Returns the size of all files below a folder, in bytes. */
export function sizeBelow(folder: string): number {
  return filesBelow(folder).reduce((sum, file) => sum + lstatSync(join(folder, file)).size, 0);
}

/**
 * Sets the times and modes of a folder and everything below it. All times become equal. A file that anyone may execute
 * becomes executable for all users. Only the owner may write.
 */
export function normalise(folder: string, epoch: number): void {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) normalise(path, epoch);
    else {
      if (!entry.isSymbolicLink()) chmodSync(path, (statSync(path).mode & 0o111) === 0 ? 0o644 : 0o755);
      lutimesSync(path, epoch, epoch);
    }
  }
  chmodSync(folder, 0o755);
  lutimesSync(folder, epoch, epoch);
}

/**
 * Packs the content of a folder in the order of the names, with the time `epoch`. Default: the owner root, and all
 * entries of the folder.
 */
export function tar(
  folder: string,
  file: string,
  epoch: number,
  entries: readonly string[] = ['.'],
  { uid, gid } = { uid: 0, gid: 0 },
): void {
  run('tar', [
    '--create',
    `--file=${file}`,
    `--directory=${folder}`,
    '--format=gnu',
    '--sort=name',
    `--owner=${uid}`,
    `--group=${gid}`,
    '--numeric-owner',
    `--mtime=@${epoch}`,
    ...entries,
  ]);
}

/**
 * Packs a folder as `tar` does, and compresses the archive. Returns the path of the compressed file, which ends with
 * `.gz`.
 */
export function tarGz(folder: string, file: string, epoch: number, entries?: readonly string[]): string {
  tar(folder, file, epoch, entries);
  run('gzip', ['-6', '--no-name', '--force', file]);
  return `${file}.gz`;
}

/** SHA-256 of a file, in hexadecimal digits. */
export function sha256(path: string): string {
  const hash = createHash('sha256');
  const buffer = Buffer.alloc(CHUNK);
  const file = openSync(path, 'r');
  try {
    for (let read = readSync(file, buffer); read > 0; read = readSync(file, buffer))
      hash.update(buffer.subarray(0, read));
  } finally {
    closeSync(file);
  }
  return hash.digest('hex');
}

/**
 * Returns the differences of two trees, one line each. Compares paths, bytes and whether a file is executable, but not
 * the targets of links.
 */
export function differences(left: string, right: string): readonly string[] {
  const describe = (folder: string): ReadonlyMap<string, string> =>
    new Map(
      filesBelow(folder).map((file) => {
        const path = join(folder, file);
        const stat = lstatSync(path);
        if (stat.isSymbolicLink()) return [file, 'link'];
        const digest = createHash('sha256').update(readFileSync(path)).digest('hex');
        return [file, `${(stat.mode & 0o111) === 0 ? '' : 'executable '}${digest}`];
      }),
    );
  const [one, other] = [describe(left), describe(right)];
  return [...new Set([...one.keys(), ...other.keys()])].toSorted().flatMap((file) => {
    const [here, there] = [one.get(file), other.get(file)];
    if (here === there) return [];
    if (here === undefined) return [`${file}: only in the second`];
    return [there === undefined ? `${file}: only in the first` : `${file}: differs`];
  });
}
