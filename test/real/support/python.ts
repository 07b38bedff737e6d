/** The Python client in an environment of its own, kept in the cache beside the other peers. */
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cacheFolder } from '../rig/build.ts';
import { acquireLock } from '../rig/lock-file.ts';

const folder = fileURLToPath(new URL('../peers/clients/python', import.meta.url));

export interface PythonClient {
  readonly interpreter: string;
  readonly script: string;
}

/** @throws Error that says what to install, when there is no Python with `venv` or its packages cannot be fetched */
export async function ensurePythonClient(): Promise<PythonClient> {
  const requirements = join(folder, 'requirements.txt');
  const key = createHash('sha256').update(readFileSync(requirements)).digest('hex').slice(0, 16);
  const environment = join(cacheFolder(), `python-${key}`);
  const done = { interpreter: join(environment, 'bin', 'python'), script: join(folder, 'client.py') };
  const mark = join(environment, 'complete');
  if (existsSync(mark)) return done;
  mkdirSync(cacheFolder(), { recursive: true });
  const release = await acquireLock(`${environment}.lock`, (pid) =>
    process.stderr.write(`peers: python: waiting for process ${pid}, which builds it already\n`),
  );
  try {
    if (existsSync(mark)) return done;
    process.stderr.write('peers: python: installing the Kubernetes client (pip)\n');
    rmSync(environment, { recursive: true, force: true });
    run('python3', ['-m', 'venv', environment]);
    run(done.interpreter, ['-m', 'pip', 'install', '--quiet', '--requirement', requirements]);
    // Only a whole environment has the mark.
    writeFileSync(mark, '');
    return done;
  } finally {
    release();
  }
}

function run(program: string, args: readonly string[]): void {
  const { status, error, stderr } = spawnSync(program, args, { encoding: 'utf8' });
  if (status === 0) return;
  const hint = 'the Python client needs python3 with venv (Debian: apt-get install python3-venv)';
  throw new Error(`${hint}: ${error?.message ?? stderr.slice(-2000)}`);
}
