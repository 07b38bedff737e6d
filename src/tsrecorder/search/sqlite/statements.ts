/** Prepared statements of a database. */
import type { DatabaseSync, SQLInputValue, SQLOutputValue, StatementSync } from 'node:sqlite';

/** Statements of one database, each prepared once. */
export class Statements {
  readonly #database: DatabaseSync;
  readonly #known = new Map<string, StatementSync>();

  constructor(database: DatabaseSync) {
    this.#database = database;
  }

  get(sql: string, ...values: readonly SQLInputValue[]): Record<string, SQLOutputValue> | undefined {
    return this.#prepare(sql, false).get(...values);
  }

  run(sql: string, ...values: readonly SQLInputValue[]): void {
    this.#prepare(sql, true).run(...values);
  }

  #prepare(sql: string, writes: boolean): StatementSync {
    const known = this.#known.get(sql);
    if (known !== undefined) return known;
    const statement = this.#database.prepare(sql);
    // FTS5 may return row ids above the range of safe integers.
    if (writes) statement.setReadBigInts(true);
    this.#known.set(sql, statement);
    return statement;
  }
}
