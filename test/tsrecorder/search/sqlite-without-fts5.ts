/** A preloaded module that makes SQLite fail as a build without FTS5 does. */
import { DatabaseSync } from 'node:sqlite';

const { exec } = DatabaseSync.prototype;
DatabaseSync.prototype.exec = function withoutFts5(this: DatabaseSync, sql: string): void {
  if (/\busing\s+fts5\b/i.test(sql)) throw new Error('no such module: fts5');
  exec.call(this, sql);
};
