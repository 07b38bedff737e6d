/** Answers queries in processes that can be killed, a few at a time. */
import { TailcastError, errorText } from '../../errors.ts';
import { QueryError } from '../../search/query.ts';
import { startIndexClient, type IndexClient } from './index-client.ts';
import type { Answer, Ask } from './messages.ts';

export type QueryOperation = 'find' | 'within' | 'facets';

export interface QueryProcesses {
  /** @throws TailcastError `USAGE`, `SEARCH_BUSY` and `SEARCH_UNAVAILABLE` */
  ask<Name extends QueryOperation>(operation: Name, ask: Ask<Name>): Promise<Answer<Name>>;
  close(): Promise<void>;
}

export interface QueryProcessesOptions {
  readonly directory: string;
  /** Queries at a time, and those that may wait for their turn. */
  readonly maxRunning: number;
  readonly maxWaiting: number;
  /** How long one may take; then its process is killed. */
  readonly timeoutMs: number;
}

export const QUERY_LIMITS = { maxRunning: 2, maxWaiting: 8, timeoutMs: 2000 };
/** A process has to start first. */
const START_MS = 10_000;

/** Starts no process before there is a query. */
export function createQueryProcesses(options: QueryProcessesOptions): QueryProcesses {
  const free: IndexClient[] = [];
  const waiting: (() => void)[] = [];
  let running = 0;

  async function turn(): Promise<void> {
    if (running < options.maxRunning) {
      running += 1;
      return;
    }
    if (waiting.length >= options.maxWaiting) throw new TailcastError('SEARCH_BUSY');
    await new Promise<void>((resolve) => waiting.push(resolve));
  }

  function done(): void {
    const next = waiting.shift();
    if (next === undefined) running -= 1;
    else next();
  }

  async function take(): Promise<IndexClient> {
    for (let client = free.pop(); client !== undefined; client = free.pop())
      if (!client.isGone) return client;
    return within(START_MS, startIndexClient({ directory: options.directory, mayWrite: false }));
  }

  return {
    async ask(operation, ask) {
      await turn();
      let client: IndexClient | undefined;
      try {
        client = await take();
        const answer = await within(options.timeoutMs, client.ask(operation, ask));
        free.push(client);
        return answer;
      } catch (error) {
        if (error instanceof QueryError) {
          if (client !== undefined) free.push(client);
          throw new TailcastError('USAGE', error.message, { cause: error });
        }
        client?.kill();
        throw new TailcastError('SEARCH_UNAVAILABLE', errorText(error), { cause: error });
      } finally {
        done();
      }
    },
    async close() {
      await Promise.all(free.splice(0).map((client) => client.close()));
    },
  };
}

/** @throws Error when it takes longer. */
async function within<T>(milliseconds: number, promise: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(
      () => reject(new Error(`it took more than ${milliseconds / 1000} seconds`)),
      milliseconds,
    );
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
