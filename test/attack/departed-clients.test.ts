/**
 * Clients that disconnect before their upgrade is complete. The command may already be running then, so the recording
 * must exist.
 */
import type { Socket } from 'node:net';
import { connect } from 'node:net';
import { expect, it } from 'vitest';
import { serverEnd, serverMessage, STATUS_SUCCESS, utf8 } from '../support/stream-peers.ts';
import { linesOf, openRecorded } from '../support/recorded-rig.ts';
import { until } from '../support/until.ts';
import { EXEC, switching, WEBSOCKET_V5 } from '../support/upgrade-rig.ts';

/** Sends an upgrade, and returns the connection without waiting for the response. */
function send(port: number, headers: readonly string[]): Socket {
  const socket = connect({ port, host: '127.0.0.1', noDelay: true });
  socket.on('error', () => {});
  socket.write([`GET ${EXEC} HTTP/1.1`, 'Host: gateway.example.ts.net', ...headers, '', ''].join('\r\n'));
  return socket;
}

it('are recorded if the API server got their command, although they reset the connection before the 101', async () => {
  const { recorder, rig } = await openRecorded((request, socket) => {
    socket.on('error', () => {});
    client.resetAndDestroy();
    // The API server responds only after the gateway has noticed the reset.
    void until(() => rig.clients.size === 0).then(() => {
      socket.write(switching(request, 'v5.channel.k8s.io'));
      socket.write(serverMessage(1, utf8('it ran\n')));
      socket.write(serverEnd(STATUS_SUCCESS));
      socket.end();
      socket.resume();
    });
  });
  const client = send(rig.port, WEBSOCKET_V5);
  await rig.until('sessionEnded');
  const lines = linesOf(recorder);
  expect(lines[0]).toMatchObject({ command: 'sh -c a b', srcNodeUser: 'alice@example.com' });
  expect(lines.at(-1)).toMatchObject({ kind: 'end' });
  expect(recorder.uploads[0]!.ended).toBe(true);
});

it('leave no open connection behind, while the recorder stores the header', async () => {
  let opened: Socket | undefined;
  const { recorder, rig } = await openRecorded(
    (request, socket) => {
      socket.on('error', () => {});
      opened = socket as Socket;
      socket.write(switching(request, 'v5.channel.k8s.io'));
      socket.resume();
    },
    { behaviour: { acks: 'alive' }, recorderLimits: { maxPendingBytes: 0 } },
  );
  const client = send(rig.port, WEBSOCKET_V5);
  await expect.poll(() => opened !== undefined && (recorder.uploads[0]?.size ?? 0) > 0).toBe(true);
  client.resetAndDestroy();
  await expect.poll(() => rig.clients.size).toBe(0);
  recorder.uploads[0]!.ack(recorder.uploads[0]!.size);
  await expect.poll(() => rig.upstreams.size).toBe(0);
  await recorder.until(() => recorder.uploads[0]!.aborted || recorder.uploads[0]!.ended);
});
