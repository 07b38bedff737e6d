/** The search engine with OpenSearch (ADR 39). */
import type { ReadingEngine, WritingEngine } from '../engine.ts';
import { createSearchServer } from './client.ts';
import { ServerIndexReader } from './reader.ts';
import { readServerAccess, type ServerIndex } from './server-index.ts';
import { openServerWriter } from './writer.ts';

/**
 * Opens the engine. If `mayWrite` is true, creates a missing index. @throws Error with a sentence if the server or the
 * files are unusable
 */
export async function openServerEngine(
  index: ServerIndex,
  mayWrite: boolean,
): Promise<{ readonly writer: WritingEngine | undefined; readonly reader: ReadingEngine | undefined }> {
  const server = createSearchServer(await readServerAccess(index));
  return mayWrite
    ? { writer: await openServerWriter(server, index), reader: undefined }
    : { writer: undefined, reader: new ServerIndexReader(server, index) };
}
