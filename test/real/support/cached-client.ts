/** Clients in languages other than Go. Each client is built once, in its own folder of the cache for peer programs. */
import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { cacheFolder } from '../rig/build.ts';
import { acquireLock } from '../rig/lock-file.ts';

export interface CachedClient {
  readonly name: string;
  /** Files that define the content of the folder, which is rebuilt when one of them changes. */
  readonly inputs: readonly string[];
  /** Creates the folder and its files. */
  make(folder: string): Promise<void>;
}

/** @returns the complete folder */
export async function ensureCached({ name, inputs, make }: CachedClient): Promise<string> {
  const hash = createHash('sha256');
  for (const path of inputs) hash.update(readFileSync(path));
  const folder = join(cacheFolder(), `${name}-${hash.digest('hex').slice(0, 16)}`);
  // The file `complete` is created last.
  const mark = join(folder, 'complete');
  if (existsSync(mark)) return folder;
  mkdirSync(cacheFolder(), { recursive: true });
  const release = await acquireLock(`${folder}.lock`, (pid) =>
    process.stderr.write(`peers: ${name}: waiting for process ${pid}, which builds it already\n`),
  );
  try {
    if (existsSync(mark)) return folder;
    process.stderr.write(`peers: ${name}: installing\n`);
    rmSync(folder, { recursive: true, force: true });
    await make(folder);
    writeFileSync(mark, '');
    return folder;
  } finally {
    release();
  }
}

const run = promisify(execFile);

/** @throws Error with `hint` and the last output of the program if it fails */
export async function runOrExplain(program: string, args: readonly string[], hint: string): Promise<void> {
  try {
    await run(program, args, { maxBuffer: 64 * 1024 * 1024 });
  } catch (error) {
    const { stdout = '', stderr = '', message } = error as Error & { stdout?: string; stderr?: string };
    const said = `${stdout}${stderr}`;
    throw new Error(`${hint}: ${said === '' ? message : said.slice(-2000)}`, { cause: error });
  }
}
