/** The engine at a server: OpenSearch (ADR 39). */
import type { ReadingEngine, WritingEngine } from '../engine.ts';
import { createSearchServer } from './client.ts';
import { ServerIndexReader } from './reader.ts';
import { readServerAccess, type ServerIndex } from './server-index.ts';
import { openServerWriter } from './writer.ts';

/** Who writes makes the index where there is none. @throws Error with a sentence when the server or the files cannot be used */
export async function openServerEngine(
  index: ServerIndex,
  mayWrite: boolean,
): Promise<{ readonly writer: WritingEngine | undefined; readonly reader: ReadingEngine | undefined }> {
  const server = createSearchServer(await readServerAccess(index));
  return mayWrite
    ? { writer: await openServerWriter(server, index), reader: undefined }
    : { writer: undefined, reader: new ServerIndexReader(server, index) };
}
