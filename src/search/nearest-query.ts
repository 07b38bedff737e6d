/** For a query without results, creates similar queries. Pure. */
import { parseQuery, printQuery, QueryError, type Query } from './query.ts';

/** Returns the parts of a query. Each part can be removed separately. */
export function partsOf({ clauses }: Query): readonly string[] {
  return clauses.map((clause) => printQuery({ clauses: [clause] }));
}

/** Removes a part from a query. */
export function withoutPart({ clauses }: Query, index: number): string {
  return printQuery({ clauses: clauses.filter((_, at) => at !== index) });
}

/** Returns the query with its last word changed to a prefix; undefined if this is impossible. */
export function begunWith({ clauses }: Query, nowMs: number): string | undefined {
  const [last] = clauses.at(-1) ?? [];
  if (last?.kind !== 'text' || last.isPrefix || last.isNot) return undefined;
  const text = printQuery({ clauses: clauses.with(-1, [{ ...last, isPrefix: true }]) });
  try {
    parseQuery(text, nowMs);
    return text;
  } catch (error) {
    if (!(error instanceof QueryError)) throw error;
    return undefined;
  }
}
