/** Starts an index process and sends it requests. */
import { fork, type ChildProcess } from 'node:child_process';
import { setPriority } from 'node:os';
import { extname, join } from 'node:path';
import { QueryError } from '../../search/query.ts';
import type { Answer, Ask, IndexOperation, IndexRequest, IndexResponse } from './messages.ts';

export type IndexClient = ReturnType<typeof createClient>;

interface Waiting {
  resolve(value: unknown): void;
  reject(error: Error): void;
}

const NICE = 10;

/**
 * Starts a process and opens the index in it.
 * @param signal if it aborts before the index is open, the process is killed
 * @throws Error with a message for the user if this build of Node.js, or the index, is unusable
 */
export async function startIndexClient(open: Ask<'open'>, signal?: AbortSignal): Promise<IndexClient> {
  signal?.throwIfAborted();
  const here = import.meta.filename;
  const child = fork(join(import.meta.dirname, `index-process${extname(here)}`), {
    serialization: 'advanced',
    execArgv: ['--disable-warning=ExperimentalWarning'],
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  const client = createClient(child);
  try {
    if (child.pid !== undefined) setPriority(child.pid, NICE);
  } catch {
    // The OS does not allow a lower priority.
  }
  const kill = (): void => client.kill();
  signal?.addEventListener('abort', kill, { once: true });
  try {
    await client.ask('open', open);
  } catch (error) {
    client.kill();
    throw error;
  } finally {
    signal?.removeEventListener('abort', kill);
  }
  return client;
}

function createClient(child: ChildProcess) {
  const waiting = new Map<number, Waiting>();
  let last = 0;
  let isStopped = false;
  const stopped = Promise.withResolvers<void>();
  const end = (): void => {
    isStopped = true;
    for (const asked of waiting.values()) asked.reject(new Error('the process of the index has ended'));
    waiting.clear();
    stopped.resolve();
  };
  child.on('message', (response: IndexResponse) => {
    const asked = waiting.get(response.number);
    waiting.delete(response.number);
    if (!('error' in response)) asked?.resolve(response.value);
    else asked?.reject(response.isQuery ? new QueryError(response.error, 0) : new Error(response.error));
  });
  child.once('exit', end);
  child.once('error', end);
  return {
    /** Process id. */
    pid: child.pid ?? 0,
    get isStopped(): boolean {
      return isStopped;
    },
    /** Sends a request. @throws Error if the operation fails or the process exited; QueryError for an invalid query */
    ask<Name extends IndexOperation>(operation: Name, ask: Ask<Name>): Promise<Answer<Name>> {
      return new Promise<Answer<Name>>((resolve, reject) => {
        if (isStopped || !child.connected) {
          reject(new Error('the process of the index has ended'));
          return;
        }
        last += 1;
        waiting.set(last, { resolve, reject });
        const request: IndexRequest = { number: last, operation, ask };
        child.send(request, (error) => {
          if (error !== null) end();
        });
      });
    },
    /** Kills the process. Node.js offers no other way to interrupt an SQLite query. */
    kill(): void {
      child.kill('SIGKILL');
    },
    /** Stops the process after its pending requests. */
    async close(): Promise<void> {
      if (isStopped) return;
      if (child.connected) child.disconnect();
      const timer = setTimeout(() => child.kill('SIGKILL'), 5000);
      await stopped.promise;
      clearTimeout(timer);
    },
  };
}
