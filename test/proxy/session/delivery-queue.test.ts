import { Writable } from 'node:stream';
import { expect, it } from 'vitest';
import { DeliveryQueue, type Wait } from '../../../src/proxy/session/delivery-queue.ts';
import { NO_MARK } from '../../../src/recording/tap.ts';

/**
 * Returns the time in milliseconds that a queue needs to deliver small pieces, each of which waits for the recorder.
 */
async function deliveryMs(count: number): Promise<number> {
  let received = 0;
  const sink = new Writable({
    write(chunk: Uint8Array, _encoding, done) {
      received += chunk.length;
      done();
    },
  });
  const queue = new DeliveryQueue(sink);
  const waits: Wait[] = [];
  for (let n = 0; n < count; n += 1) {
    queue.add([new Uint8Array(4)]);
    waits.push(queue.wait(NO_MARK, true));
  }
  const startMs = performance.now();
  for (const wait of waits) {
    queue.acknowledge(wait);
    queue.release(wait.end);
  }
  while (!queue.goOn()) await new Promise(setImmediate);
  const takenMs = performance.now() - startMs;
  expect(received).toBe(4 * count);
  return takenMs;
}

it('delivers many small pieces in linear time', async () => {
  await deliveryMs(10_000);
  const fewMs = await deliveryMs(10_000);
  expect(await deliveryMs(100_000)).toBeLessThan(40 * fewMs + 200);
});
