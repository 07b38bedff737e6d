/** Loaded before everything else, this Node has a SQLite that was compiled without FTS5: what SQLite says then, and nothing else. */
import { DatabaseSync } from 'node:sqlite';

const { exec } = DatabaseSync.prototype;
DatabaseSync.prototype.exec = function withoutFts5(this: DatabaseSync, sql: string): void {
  if (/\busing\s+fts5\b/i.test(sql)) throw new Error('no such module: fts5');
  exec.call(this, sql);
};
