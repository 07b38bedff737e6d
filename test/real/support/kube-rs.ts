/** A Rust program with kube-rs, built with Cargo into the cache of the other peers. */
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ensureCached, runOrExplain } from './cached-client.ts';

const folder = fileURLToPath(new URL('../peers/clients/kube-rs', import.meta.url));
const PROGRAM = 'kube-rs-client';
/** Builds run at low priority, like those of Go peers. */
const NICENESS = '10';

/**
 * Without Cargo the suite skips this client and prints a notice.
 *
 * @returns the path of the program; undefined without Cargo
 * @throws Error with Cargo's output if the build fails
 */
export async function ensureKubeRsClient(): Promise<string | undefined> {
  if (spawnSync('cargo', ['--version']).status !== 0) {
    process.stderr.write('clients: no Cargo here: kube-rs is not driven\n');
    return undefined;
  }
  const manifest = join(folder, 'Cargo.toml');
  const built = await ensureCached({
    name: 'kube-rs',
    inputs: [manifest, join(folder, 'Cargo.lock'), join(folder, 'src', 'main.rs')],
    async make(made) {
      const target = join(made, 'target');
      mkdirSync(target, { recursive: true });
      const cargo = ['cargo', 'build', '--locked', '--quiet', `--manifest-path=${manifest}`];
      await runOrExplain(
        'nice',
        ['-n', NICENESS, ...cargo, `--target-dir=${target}`],
        'kube-rs could not be built',
      );
      copyFileSync(join(target, 'debug', PROGRAM), join(made, PROGRAM));
      rmSync(target, { recursive: true });
    },
  });
  return join(built, PROGRAM);
}
