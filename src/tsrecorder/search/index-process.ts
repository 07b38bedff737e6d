/** Entry point of an index process: the writer, or a query process that may be killed. */
import { createSequence } from '../../async/sequence.ts';
import { setFlagsFromString } from 'node:v8';
import type { IndexHandlers } from './index-operations.ts';
import type { IndexRequest, IndexResponse } from './messages.ts';

setFlagsFromString('--heap-growing-percent=20');

let operations: IndexHandlers | undefined;

/**
 * Runs operations one after another, because SQLite is synchronous and writes to an OpenSearch server must stay in
 * order.
 */
const inTurn = createSequence();

process.on('message', (request: IndexRequest) => {
  void inTurn(() => answer(request));
});
// The recorder exited or disconnected. Pending operations are completed first.
process.on('disconnect', () => {
  process.exitCode = 0;
  void inTurn(async () => {
    await operations?.close(null);
    operations = undefined;
  });
});
// Ignore Ctrl-C, because the recorder handles it and stops its processes.
process.on('SIGINT', () => undefined);

async function answer({ number, operation, ask }: IndexRequest): Promise<void> {
  try {
    // NOTE: load the module here, so that the recorder gets a load error as the response.
    operations ??= (await import('./index-operations.ts')).createIndexHandlers();
    send({ number, value: await call(operations, operation, ask) });
  } catch (error) {
    const isQuery = error instanceof Error && error.name === 'QueryError';
    send({ number, error: error instanceof Error ? error.message : String(error), isQuery });
  }
}

/** Calls a handler. Requests come from the recorder and have the types of `messages.ts`. */
function call(known: IndexHandlers, operation: IndexRequest['operation'], ask: unknown): unknown {
  const act: (ask: never) => unknown = known[operation];
  return Reflect.apply(act, known, [ask]);
}

function send(response: IndexResponse): void {
  process.send?.(response, undefined, undefined, () => undefined);
}
