/** Timeouts of a process that was paused. */
import { once } from 'node:events';
import { describe, expect, it } from 'vitest';
import { createDeadline } from '../../src/async/deadline.ts';
import { withTimeout } from '../../src/async/with-timeout.ts';
import { socketPair } from '../support/socket-pair.ts';

const LIMIT_MS = 200;

/** Blocks the process, as a suspended machine or a busy CPU does. */
function pauseProcess(ms: number): void {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms);
}

describe('a process that was paused beyond a time limit', () => {
  it('reads first what arrived in time, before a deadline expires', async () => {
    const { near: client, far: peer } = await socketPair();
    const outcome = Promise.withResolvers<string>();
    const deadline = createDeadline(LIMIT_MS, () => outcome.resolve('expired'));
    peer.once('data', (data: Buffer) => {
      deadline.clear();
      outcome.resolve(data.toString());
    });
    client.write('in time', () => pauseProcess(LIMIT_MS + 800));
    expect(await outcome.promise).toBe('in time');
    client.destroy();
    peer.destroy();
  });

  it('reads first what arrived in time, before a timeout', async () => {
    const { near: client, far: peer } = await socketPair();
    const answer = withTimeout(LIMIT_MS, 'reading', undefined, async () => {
      const [data] = (await once(peer, 'data')) as [Buffer];
      return data.toString();
    });
    client.write('in time', () => pauseProcess(LIMIT_MS + 800));
    expect(await answer).toBe('in time');
    client.destroy();
    peer.destroy();
  });

  it('still times out when nothing arrived', async () => {
    const outcome = Promise.withResolvers<string>();
    createDeadline(LIMIT_MS, () => outcome.resolve('expired'));
    const answer = withTimeout(LIMIT_MS, 'reading', undefined, () => new Promise(() => undefined));
    pauseProcess(LIMIT_MS + 800);
    await expect(answer).rejects.toThrow('reading took longer than 200 ms');
    expect(await outcome.promise).toBe('expired');
  });
});
