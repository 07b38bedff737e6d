/** Checks of a search index for `tailcast doctor`. The checks read the index in the same way as a recorder. */
import { existsSync } from 'node:fs';
import { z } from 'zod';
import { startIndexClient } from '../tsrecorder/search/index-client.ts';
import { createSearchServer } from '../tsrecorder/search/opensearch/client.ts';
import { aliasOf, indexOf } from '../tsrecorder/search/opensearch/indices.ts';
import { readServerAccess, type ServerIndex } from '../tsrecorder/search/opensearch/server-index.ts';

/**
 * Reads the first session of an index in a separate process. Changes nothing.
 *
 * @returns true if there is a session
 * @throws Error with a message for users if Node.js has no SQLite, or if the index is damaged
 */
export async function checkIndexDirectory(directory: string): Promise<boolean> {
  if (!existsSync(directory)) return false;
  const index = await startIndexClient({ directory, mayWrite: false });
  try {
    return (await index.ask('versions', { after: '', limit: 1 })).length > 0;
  } finally {
    await index.close();
  }
}

const SERVER = z.object({
  version: z.object({ distribution: z.string().default('another'), number: z.string() }),
});
/** Minimum major version of OpenSearch. */
const MAJOR = 2;

/**
 * Reads the first session of an index on a server. Changes nothing.
 *
 * @throws Error with a message for users if the server is unreachable, is not OpenSearch, or denies the recorder read
 *   access
 */
export async function checkIndexServer(index: Omit<ServerIndex, 'which' | 'owner'>): Promise<boolean> {
  const server = createSearchServer(await readServerAccess(index));
  try {
    const { version } = SERVER.parse(await server.ask({ method: 'GET', path: '/', timeoutMs: 5000 }));
    if (version.distribution !== 'opensearch' || Number.parseInt(version.number, 10) < MAJOR)
      throw new Error(
        `${version.distribution} ${version.number} answers there: OpenSearch ${MAJOR} or newer is expected`,
      );
    const alias = aliasOf({ ...index, which: 'current' });
    if ((await indexOf(server, alias)) === undefined) return false;
    const path = `/${encodeURIComponent(alias)}/_search?size=0&allow_partial_search_results=false`;
    await server.ask({ method: 'GET', path, timeoutMs: 5000 });
    return true;
  } finally {
    server.close();
  }
}
