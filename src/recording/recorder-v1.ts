/**
 * Upload over HTTP/1.1: one chunked `POST /record`. The body starts after the recorder has sent
 * `100 Continue`. A final 200 response confirms the upload. The protocol has no acknowledgements, so bytes
 * count as stored when they have left this machine (reference recorder protocol, section 1.6).
 */
import { request } from 'node:http';
import type { Duplex } from 'node:stream';
import { createDeadline } from '../async/deadline.ts';
import { withTimeout } from '../async/with-timeout.ts';
import { createOutcome, type RecorderConnection } from './recorder-connection.ts';

export interface V1Options {
  readonly address: string;
  /** Timeout of `100 Continue`. */
  readonly continueTimeoutMs: number;
  /** Timeout of the confirmation after the last byte. */
  readonly finishTimeoutMs: number;
}

/**
 * Opens an upload on `socket`, and owns the socket from then on.
 * @throws Error if the recorder refuses or does not respond, or `signal` aborts
 */
export async function openV1(
  socket: Duplex,
  options: V1Options,
  signal: AbortSignal,
): Promise<RecorderConnection> {
  const upload = request({
    method: 'POST',
    path: '/record',
    headers: { host: options.address, expect: '100-continue', 'transfer-encoding': 'chunked' },
    createConnection: () => socket,
  });
  const outcome = createOutcome();
  let finishing = false;
  let taken = 0;
  let given = 0;
  const fail = (error: Error): void => {
    outcome.lost(error);
    upload.destroy();
    socket.destroy();
  };
  upload.on('error', fail);
  upload.once('close', () => fail(new Error('the connection to the recorder was closed')));
  const opening = withTimeout(options.continueTimeoutMs, 'POST /record', signal, async () => {
    const ready = Promise.withResolvers<void>();
    upload.once('continue', ready.resolve);
    upload.once('error', ready.reject);
    upload.once('close', () => ready.reject(new Error('the recorder closed the connection')));
    upload.once('response', (response) => {
      response.resume();
      const status = response.statusCode ?? 0;
      ready.reject(new Error(`POST /record answered ${status} before the upload`));
      if (finishing && status === 200) outcome.finished();
      else fail(new Error(`POST /record answered ${status}`));
    });
    upload.flushHeaders();
    return ready.promise;
  });
  try {
    await opening;
  } catch (error) {
    outcome.silence();
    upload.destroy();
    socket.destroy();
    throw error;
  }
  return {
    address: options.address,
    protocol: 'v1',
    annotations: false,
    resumable: false,
    frames: false,
    attach: (events) => outcome.attach(events),
    send(bytes) {
      if (outcome.ended) return;
      given += bytes.length;
      upload.write(bytes, (error) => {
        if (error instanceof Error) return;
        taken += bytes.length;
        outcome.acknowledged(taken);
      });
    },
    get unwritten() {
      return given - taken;
    },
    finish() {
      finishing = true;
      upload.end();
      const late = createDeadline(options.finishTimeoutMs, () =>
        fail(new Error('the recorder did not confirm the upload')),
      );
      upload.once('close', () => late.clear());
    },
    destroy() {
      outcome.silence();
      upload.destroy();
      socket.destroy();
    },
  };
}
