/** A client keeps the connection of a rejected live view open, so that other viewers find no free slot. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createRig, type Rig } from '../tsrecorder/recorder-rig.ts';

let rig: Rig;
beforeAll(async () => {
  rig = await createRig({ limits: { maxViewers: 2 } });
});
afterAll(() => rig[Symbol.asyncDispose]());

/** Requests a live view. Sends bytes until the recorder closes the connection. @returns the status */
async function statusOfClosed(host: string): Promise<string> {
  const { address } = rig.recorder;
  const socket = connect({ ...address, allowHalfOpen: true });
  socket.write(
    `GET /api/v1/recordings/x/live HTTP/1.1\r\nHost: ${host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
      'Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n',
  );
  const [data] = (await once(socket, 'data')) as [Buffer];
  const sending = setInterval(() => socket.write('x'), 50);
  // After the recorder has closed the connection, the client's next bytes cause a reset.
  socket.on('error', () => socket.destroy());
  await new Promise((resolve) => socket.once('close', resolve));
  clearInterval(sending);
  return /^HTTP\/1\.1 (\d+)/.exec(data.toString())?.[1] ?? '';
}

it('the recorder closes the connection of a rejected live view', { timeout: 10_000 }, async () => {
  expect(await statusOfClosed('evil.example')).toBe('403');
  // There are two slots, and each viewer may use only one of them. The second request gets 404 only if the first
  // request has released its slot.
  expect(await statusOfClosed('127.0.0.1')).toBe('404');
  expect(await statusOfClosed('127.0.0.1')).toBe('404');
});
