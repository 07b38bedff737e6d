import { connect } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { unlessAborted } from '../../../src/async/with-timeout.ts';
import { TailcastError } from '../../../src/errors.ts';
import { createUserLimits } from '../../../src/proxy/gate/user-limits.ts';
import { openRecorder, openRig } from '../../support/recorded-rig.ts';
import { serverMessage, STATUS_SUCCESS } from '../../support/stream-peers.ts';
import { askUpgrade, EXEC, switching, WEBSOCKET_V5, type UpgradeScript } from '../../support/upgrade-rig.ts';

const switchAndEnd: UpgradeScript = (request, socket) => {
  socket.on('error', () => {});
  socket.write(switching(request, 'v5.channel.k8s.io'));
  socket.end(serverMessage(3, STATUS_SUCCESS));
  socket.resume();
};

/** Requests an exec from a gateway that is connected to the API server but still looks for a recorder. */
async function askEarly() {
  const { address } = await openRecorder();
  const found = Promise.withResolvers<readonly string[]>();
  const { apiServer, rig } = await openRig(
    switchAndEnd,
    { mode: 'failClosed', recorders: [], recorderTags: ['tag:rec'], events: false },
    { deps: { findRecorders: () => found.promise } },
  );
  const asked = askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
  await expect.poll(() => apiServer.connections).toBe(1);
  return { apiServer, rig, asked, find: () => found.resolve([address]) };
}

describe('a recorded exec', () => {
  it('opens the connection to the API server while the recorder is opened, and sends nothing on it', async () => {
    const { apiServer, asked, find } = await askEarly();
    expect(apiServer.requests).toHaveLength(0);
    find();
    expect((await asked).status).toBe(101);
    expect(apiServer.requests).toHaveLength(1);
    expect(apiServer.connections).toBe(1);
  });

  it('opens another connection if the API server closed the early one', async () => {
    const { apiServer, rig, asked, find } = await askEarly();
    apiServer.cut();
    await expect.poll(() => rig.upstreams.size).toBe(0);
    find();
    expect((await asked).status).toBe(101);
    expect(apiServer.connections).toBe(2);
  });

  it('counts for its user until its event is stored, although its client has left', async () => {
    const { address } = await openRecorder();
    const found = Promise.withResolvers<readonly string[]>();
    const event = Promise.withResolvers<void>();
    const second = Promise.withResolvers<string>();
    let events = 0;
    const recordApiRequest = (): Promise<void> => {
      events += 1;
      if (events === 2) second.resolve('admitted');
      return event.promise;
    };
    const { rig } = await openRig(
      switchAndEnd,
      { mode: 'failClosed', recorders: [], recorderTags: ['tag:rec'], events: true },
      {
        users: createUserLimits({ requests: 1, connections: 9, bytes: 1e6, headBytes: 1e6 }),
        deps: { recordApiRequest, findRecorders: (_, signal) => unlessAborted(found.promise, signal) },
      },
    );
    onTestFinished(() => {
      event.resolve();
      found.resolve([address]);
    });
    const client = connect(rig.port, '127.0.0.1');
    client.write([`GET ${EXEC} HTTP/1.1`, 'Host: gateway', ...WEBSOCKET_V5, '', ''].join('\r\n'));
    await expect.poll(() => events).toBe(1);
    client.resetAndDestroy();
    await expect.poll(() => rig.finished.length).toBe(1);
    const ask = async (): Promise<number> => (await askUpgrade(rig.port, { headers: WEBSOCKET_V5 })).status;
    expect(await Promise.race([ask(), second.promise])).toBe(429);
    event.resolve();
    found.resolve([address]);
    await expect.poll(ask).toBe(101);
  });

  it.each(['stored', 'refused'])(
    'opens the recorder while the event of the request is stored: %s',
    async (how) => {
      const recorderDouble = await openRecorder();
      const event = Promise.withResolvers<void>();
      const { apiServer, rig: gateway } = await openRig(
        switchAndEnd,
        { mode: 'failClosed', recorders: [recorderDouble.address], recorderTags: [], events: true },
        { deps: { recordApiRequest: () => event.promise } },
      );
      const asked = askUpgrade(gateway.port, { headers: WEBSOCKET_V5 });
      await expect.poll(() => recorderDouble.uploads.length).toBe(1);
      expect(apiServer.requests).toHaveLength(0);
      if (how === 'stored') event.resolve();
      else event.reject(new TailcastError('RECORDING_REQUIRED'));
      expect((await asked).status).toBe(how === 'stored' ? 101 : 403);
      expect(apiServer.requests).toHaveLength(how === 'stored' ? 1 : 0);
      if (how === 'refused') await recorderDouble.until(() => recorderDouble.uploads[0]!.aborted);
    },
  );
});
