/** The embedded engine: files of SQLite. */
import type { ReadingEngine, WritingEngine } from '../engine.ts';
import { probeSqlite } from './database.ts';
import { IndexReader } from './reader.ts';
import { IndexWriter } from './writer.ts';

export interface FileEngine {
  readonly writer: WritingEngine | undefined;
  readonly reader: ReadingEngine | undefined;
  /** Nothing is asked any more. */
  readonly close: () => void;
}

/** @throws Error with a sentence when this Node or the files cannot be used */
export function openFileEngine(directory: string, mayWrite: boolean): FileEngine {
  probeSqlite();
  if (mayWrite) {
    const writer = new IndexWriter(directory);
    return { writer, reader: undefined, close: () => writer.close() };
  }
  const reader = new IndexReader(directory);
  return { writer: undefined, reader, close: () => reader.close() };
}
