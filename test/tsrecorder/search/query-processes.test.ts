import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { createQueryProcesses } from '../../../src/tsrecorder/search/query-processes.ts';
import { startIndexClient } from '../../../src/tsrecorder/search/index-client.ts';

it('query processes are not started after close', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'query-processes-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const writer = await startIndexClient({ directory, mayWrite: true });
  await writer.close();
  const queries = createQueryProcesses({
    place: { directory },
    maxRunning: 1,
    maxWaiting: 1,
    timeoutMs: 60_000,
  });
  onTestFinished(() => queries.close());
  await queries.close();
  await expect(queries.ask('find', { query: 'hello', limit: 1 } as never)).rejects.toMatchObject({
    code: 'SEARCH_UNAVAILABLE',
    detail: 'the recorder is stopping',
  });
});
