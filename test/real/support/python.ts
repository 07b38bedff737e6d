/** The Python client in a virtual environment in the cache of the other peers. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ensureCached, runOrExplain } from './cached-client.ts';

const folder = fileURLToPath(new URL('../peers/clients/python', import.meta.url));
const HINT = 'the Python client needs python3 with venv (Debian: apt-get install python3-venv)';

export interface PythonClient {
  readonly interpreter: string;
  readonly script: string;
}

/** @throws Error if Python or `venv` is missing (names the package to install), or if the download fails */
export async function ensurePythonClient(): Promise<PythonClient> {
  const requirements = join(folder, 'requirements.txt');
  const interpreterIn = (environment: string): string => join(environment, 'bin', 'python');
  const environment = await ensureCached({
    name: 'python',
    inputs: [requirements],
    async make(made) {
      await runOrExplain('python3', ['-m', 'venv', made], HINT);
      await runOrExplain(
        interpreterIn(made),
        ['-m', 'pip', 'install', '--quiet', '--requirement', requirements],
        HINT,
      );
    },
  });
  return { interpreter: interpreterIn(environment), script: join(folder, 'client.py') };
}
