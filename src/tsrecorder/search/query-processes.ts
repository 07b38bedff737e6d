/**
 * Runs queries in processes that can be killed. Only a few queries run concurrently, and the owners of queries take
 * turns.
 */
import { createLimiter } from '../../async/limiter.ts';
import { settledWithin, withTimeout } from '../../async/with-timeout.ts';
import { TailcastError, errorText } from '../../errors.ts';
import { processCpuMs } from '../../process-identity.ts';
import { QueryError } from '../../search/query.ts';
import { startIndexClient, type IndexClient } from './index-client.ts';
import type { Answer, Ask, IndexPlace } from './messages.ts';

export type QueryOperation = 'find' | 'within' | 'list' | 'facets';

export type QueryProcesses = ReturnType<typeof createQueryProcesses>;

export interface QueryProcessesOptions {
  readonly place: IndexPlace;
  /** Maximum number of concurrent queries. */
  readonly maxRunning: number;
  /** Maximum number of concurrent queries of one owner. Default: `maxRunning`. */
  readonly maxRunningPerOwner?: number;
  readonly maxWaiting: number;
  /**
   * Maximum CPU time of a query, in milliseconds. If the OS does not report CPU times, this is the maximum duration.
   * Above the limit, the process is killed.
   */
  readonly maxCpuMs: number;
  /** Maximum duration of a query that has to wait for the CPU or the disk, in milliseconds. */
  readonly timeoutMs: number;
}

/** Default limits of query processes. */
export const QUERY_LIMITS = {
  maxRunning: 2,
  maxRunningPerOwner: 1,
  maxWaiting: 8,
  maxCpuMs: 2000,
  timeoutMs: 10_000,
};
/** Maximum time for the start of a process, in milliseconds. */
const START_MS = 10_000;

/** Creates the query processes, which start with the first queries. */
export function createQueryProcesses(options: QueryProcessesOptions) {
  const free: IndexClient[] = [];
  const busy = new Set<IndexClient>();
  const closing = new AbortController();
  const limiter = createLimiter({
    maxActive: options.maxRunning,
    maxActivePerOwner: options.maxRunningPerOwner ?? options.maxRunning,
    maxWaiting: options.maxWaiting,
    full: () => new TailcastError('SEARCH_BUSY'),
  });

  async function take(): Promise<IndexClient> {
    closing.signal.throwIfAborted();
    for (let client = free.pop(); client !== undefined; client = free.pop())
      if (!client.isStopped) return client;
    return withTimeout(START_MS, 'starting the process of the index', closing.signal, (signal) =>
      startIndexClient({ ...options.place, mayWrite: false }, signal),
    );
  }

  return {
    /**
     * Runs a query.
     * @param owner owner of the query; the queries of different owners take turns
     * @throws TailcastError `USAGE`, `SEARCH_BUSY` and `SEARCH_UNAVAILABLE`
     */
    ask: <Name extends QueryOperation>(
      operation: Name,
      ask: Ask<Name>,
      owner?: string,
    ): Promise<Answer<Name>> =>
      limiter.run(
        async () => {
          let client: IndexClient | undefined;
          try {
            client = await take();
            busy.add(client);
            const answer = await answerInTime(client, client.ask(operation, ask), options);
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
            if (client !== undefined) busy.delete(client);
          }
        },
        undefined,
        owner,
      ),
    /** Aborts running queries, and starts no further process. */
    async close(): Promise<void> {
      closing.abort(new Error('the recorder is stopping'));
      for (const client of busy) client.kill();
      await Promise.all(free.splice(0).map((client) => client.close()));
    },
  };
}

/**
 * Waits for the result of a query. Limits CPU time instead of duration: the processes have a low priority, so on a busy
 * machine even a cheap query can take long.
 */
async function answerInTime<T>(
  client: IndexClient,
  answer: Promise<T>,
  limits: QueryProcessesOptions,
): Promise<T> {
  const started = performance.now();
  answer.catch(() => undefined); // the promise may reject before it is awaited
  const before = await processCpuMs(client.pid);
  while (!(await settledWithin(limits.maxCpuMs, answer))) {
    const elapsed = performance.now() - started;
    const after = await processCpuMs(client.pid);
    const cpu = before === undefined || after === undefined ? elapsed : after - before;
    if (cpu >= limits.maxCpuMs)
      throw new Error(`the query took longer than ${limits.maxCpuMs} ms of CPU time`);
    if (elapsed >= limits.timeoutMs) throw new Error(`the query took longer than ${limits.timeoutMs} ms`);
  }
  return answer;
}
