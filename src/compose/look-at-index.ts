/** Reads a search index as a recorder does, for the doctor. */
import { startIndexClient } from '../tsrecorder/search/index-client.ts';

/**
 * Reads the first session of it, in a process of its own. Changes nothing.
 *
 * @returns whether there is one
 * @throws Error with a sentence when this Node cannot, or the index is damaged
 */
export async function lookAtIndex(directory: string): Promise<boolean> {
  const index = await startIndexClient({ directory, mayWrite: false });
  try {
    return (await index.ask('versions', { after: '', limit: 1 })).length > 0;
  } finally {
    await index.close();
  }
}
