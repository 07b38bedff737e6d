/** A process of the index: the one that writes it, or one that answers queries and may be killed. */
import { createSequence } from '../../async/sequence.ts';
import { setFlagsFromString } from 'node:v8';
import type { IndexHandlers } from './index-operations.ts';
import type { IndexRequest, IndexResponse } from './messages.ts';

setFlagsFromString('--heap-growing-percent=20');

let operations: IndexHandlers | undefined;

/** One after another: SQLite answers at once or not at all, and what is written at a server has an order. */
const inTurn = createSequence();

process.on('message', (request: IndexRequest) => {
  void inTurn(() => answer(request));
});
// the recorder is gone, or wants no more: what it has asked is done before
process.on('disconnect', () => {
  process.exitCode = 0;
  void inTurn(async () => {
    await operations?.close(null);
    operations = undefined;
  });
});
// Ctrl-C is for the recorder, which closes what it has opened
process.on('SIGINT', () => undefined);

async function answer({ number, operation, ask }: IndexRequest): Promise<void> {
  try {
    // NOTE: loaded here, so that what cannot be loaded is what is answered
    operations ??= (await import('./index-operations.ts')).createIndexHandlers();
    send({ number, value: await call(operations, operation, ask) });
  } catch (error) {
    const isQuery = error instanceof Error && error.name === 'QueryError';
    send({ number, error: error instanceof Error ? error.message : String(error), isQuery });
  }
}

/** What is asked comes from the recorder, with the types of `messages.ts`. */
function call(known: IndexHandlers, operation: IndexRequest['operation'], ask: unknown): unknown {
  const act: (ask: never) => unknown = known[operation];
  return Reflect.apply(act, known, [ask]);
}

function send(response: IndexResponse): void {
  process.send?.(response, undefined, undefined, () => undefined);
}
