/** The current and the next index on an OpenSearch server, each represented by an alias. */
import type { IndexPlaces } from '../index-places.ts';
import { createSearchServer, type SearchServer } from './client.ts';
import { aliasOf, indexOf, swapIndex } from './indices.ts';
import { readServerAccess, type ServerIndex } from './server-index.ts';

/** Returns the current and the next index on the server. */
export function createServerPlaces(index: Omit<ServerIndex, 'which'>): IndexPlaces {
  const using = async <T>(act: (server: SearchServer) => Promise<T>): Promise<T> => {
    const server = createSearchServer(await readServerAccess(index));
    try {
      return await act(server);
    } finally {
      server.close();
    }
  };
  const next: ServerIndex = { ...index, which: 'next' };
  return {
    current: { server: { ...index, which: 'current' } },
    next: { server: next },
    prepare: () =>
      using(async (server) => ((await indexOf(server, aliasOf(next))) === undefined ? 'ready' : 'building')),
    swap: () => using((server) => swapIndex(server, index.name)),
    // Only the administrator of OpenSearch can repair a damaged index.
    discard: async () => false,
  };
}
