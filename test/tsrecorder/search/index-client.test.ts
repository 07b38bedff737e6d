import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { startIndexClient, type IndexClient } from '../../../src/tsrecorder/search/index-client.ts';

async function open(): Promise<IndexClient> {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-index-'));
  const client = await startIndexClient({ directory, mayWrite: true });
  onTestFinished(() => client.close());
  return client;
}

describe('the process of an index', () => {
  it('is killed immediately, and pending queries fail', async () => {
    const client = await open();
    expect(await client.ask('ids', { after: '', limit: 1 })).toEqual([]);
    client.kill();
    const asked = client.ask('ids', { after: '', limit: 1 });
    await expect(asked).rejects.toThrow('the process of the index has ended');
    expect(client.isStopped).toBe(true);
  });
});
