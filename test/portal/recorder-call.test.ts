import { Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../src/errors.ts';
import { createRecorderCalls } from '../../src/portal/recorder-call.ts';

describe('what is said of recorders that could not be asked', () => {
  it.each([
    [
      new TailcastError('UPSTREAM_UNAVAILABLE', 'no answer to the upgrade in 5 ms'),
      'no answer to the upgrade in 5 ms',
    ],
    [new TailcastError('RECORDER_UNREACHABLE'), new TailcastError('RECORDER_UNREACHABLE').message],
    [new Error('connect ECONNREFUSED'), 'connect ECONNREFUSED'],
  ])('of %s is each one and its reason', async (error, reason) => {
    const calls = createRecorderCalls({
      dial: async () => new Socket(),
      nodeOf: (address) => address,
      nowMs: () => 0,
    });
    const addresses = ['100.64.0.7:80', '100.64.0.8:80'];
    const asked = calls.first(addresses, new AbortController().signal, () => Promise.reject(error));
    await expect(asked).rejects.toMatchObject({
      code: 'RECORDER_UNAVAILABLE',
      detail: addresses.map((address) => `${address}: ${reason}`).join('; '),
    });
  });
});
