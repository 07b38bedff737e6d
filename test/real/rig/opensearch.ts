/** A single-node OpenSearch server. Maven builds the server from its jars into the cache. */
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { ensureCached, runOrExplain } from '../support/cached-client.ts';
import { type Program, type Rig, freePort } from './rig.ts';

const peer = fileURLToPath(new URL('../peers/opensearch', import.meta.url));
const START_MS = 120_000;

export interface OpenSearchServer {
  readonly url: string;
  /** Folder of the server's files. */
  readonly folder: string;
  readonly program: Program;
}

/**
 * Builds OpenSearch unless it is in the cache.
 *
 * @returns the folder with the classes
 * @throws Error with the message of Maven
 */
export function ensureOpenSearch(): Promise<string> {
  const pom = join(peer, 'pom.xml');
  return ensureCached({
    name: 'opensearch',
    inputs: [pom, join(peer, 'src', 'main', 'java', 'Server.java')],
    make: (made) =>
      runOrExplain(
        'mvn',
        ['-q', '-B', `-f${pom}`, `-Doutput=${made}`, 'compile'],
        'OpenSearch could not be built',
      ),
  });
}

/** Starts an empty server on the loopback interface. The server stops with the rig. */
export async function startOpenSearch(rig: Rig): Promise<OpenSearchServer> {
  const built = await ensureOpenSearch();
  const folder = join(rig.folder, 'opensearch');
  const port = await freePort();
  const program = rig.launch({
    name: 'opensearch',
    path: 'java',
    args: [
      '-Xms256m',
      '-Xmx512m',
      '-XX:+UseSerialGC',
      '-cp',
      [join(built, 'classes'), join(built, 'lib', '*')].join(':'),
      'Server',
      folder,
      String(port),
    ],
    stopSignal: 'SIGKILL',
  });
  const url = `http://127.0.0.1:${port}`;
  const isUp = async (): Promise<true | undefined> => {
    const { ok } = await fetch(`${url}/_cluster/health?wait_for_status=yellow&timeout=1s`, {
      signal: AbortSignal.timeout(3000),
    });
    return ok ? true : undefined;
  };
  await rig.until('opensearch', isUp, { watch: [program], timeoutMs: START_MS });
  return { url, folder, program };
}
