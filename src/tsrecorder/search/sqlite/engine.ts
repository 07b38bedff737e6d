/** The embedded engine, with SQLite files. */
import type { ReadingEngine, WritingEngine } from '../engine.ts';
import { probeSqlite } from './database.ts';
import { IndexReader } from './reader.ts';
import { IndexWriter } from './writer.ts';

export interface FileEngine {
  readonly writer: WritingEngine | undefined;
  readonly reader: ReadingEngine | undefined;
  /** Closes the files. Must be the last call. */
  readonly close: () => void;
}

/** Opens the engine. @throws Error with a sentence if this build of Node.js or the files are unusable */
export function openFileEngine(directory: string, mayWrite: boolean): FileEngine {
  probeSqlite();
  if (mayWrite) {
    const writer = new IndexWriter(directory);
    return { writer, reader: undefined, close: () => writer.close() };
  }
  const reader = new IndexReader(directory);
  return { writer: undefined, reader, close: () => reader.close() };
}
