/** The embedded engine: files of SQLite. */
import type { ReadingEngine, WritingEngine } from '../engine.ts';
import { probeSqlite } from './database.ts';
import { IndexReader } from './reader.ts';
import { IndexWriter } from './writer.ts';

/** @throws Error with a sentence when this Node or the files cannot be used */
export function openFileEngine(
  directory: string,
  mayWrite: boolean,
): { readonly writer: WritingEngine | undefined; readonly reader: ReadingEngine | undefined } {
  probeSqlite();
  return mayWrite
    ? { writer: new IndexWriter(directory), reader: undefined }
    : { writer: undefined, reader: new IndexReader(directory) };
}
