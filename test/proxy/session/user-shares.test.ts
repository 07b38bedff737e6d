/** A user whose clients do not read fills only the user's share of memory and disk. Other users are served. */
import { tmpdir } from 'node:os';
import { describe, expect, it } from 'vitest';
import type { Duplex } from 'node:stream';
import { createElasticBuffers } from '../../../src/proxy/session/elastic-buffers.ts';
import { openRecorded } from '../../support/recorded-rig.ts';
import { serverEnd, serverMessage, STATUS_SUCCESS, utf8 } from '../../support/stream-peers.ts';
import { until } from '../../support/until.ts';
import { ALICE, askUpgrade, EXEC, switching, WEBSOCKET_V5 } from '../../support/upgrade-rig.ts';

const MIB = 1024 * 1024;
const GREEDY = { ...ALICE, login: 'greedy@example.com' };
const FLOODS = 40;
/** More bytes than the kernel can buffer for two connections. */
const FLOOD_BYTES = 5 * MIB;
const MEMORY = 8 * MIB;
const DISK = 16 * MIB;
const DISK_SHARE = DISK / 2;
/** Maximum output of a session that the tap parses in one turn, after the client has stopped reading. */
const TURN_BYTES = 256 * 1024;

/** WebSocket messages with different content. */
const MESSAGES = Array.from({ length: FLOOD_BYTES / (16 * 1024) }, (_, index) =>
  serverMessage(1, utf8(`message ${index} `.padEnd(64, '.').repeat(256))),
);

/**
 * Messages of a session. Each session starts with a different message, so that the test detects output of another
 * session.
 */
function flood(index: number): readonly Uint8Array[] {
  return [...MESSAGES.slice(index), ...MESSAGES.slice(0, index), serverEnd(STATUS_SUCCESS)];
}

/** A gateway whose API server floods the sessions of the greedy user with output. */
async function openShared() {
  const buffers = createElasticBuffers({
    memoryBytes: 4 * MIB,
    diskBytes: 8 * MIB,
    totalMemoryBytes: MEMORY,
    totalDiskBytes: DISK,
    directory: tmpdir(),
  });
  const calm = Promise.withResolvers<Duplex>();
  const open = await openRecorded(
    (request, socket) => {
      socket.on('error', () => {});
      socket.resume();
      socket.write(switching(request, 'v5.channel.k8s.io', 'Sec-WebSocket-Accept: x'));
      const index = /command=flood-(\d+)/.exec(request.url ?? '')?.[1];
      if (index === undefined) calm.resolve(socket);
      else for (const message of flood(Number(index))) socket.write(message);
    },
    { deps: { buffers }, callerOf: (target) => (target.includes('flood') ? GREEDY : ALICE) },
  );
  return { ...open, buffers, calm: calm.promise };
}

type Client = Awaited<ReturnType<typeof askUpgrade>>;

/** Exchanges output with the client of another user. @returns the output */
async function exchange(client: Client, server: Duplex): Promise<string> {
  const outputs = Array.from({ length: 100 }, (_, index) => `line ${index}\r\n`.repeat(1 + index * 20));
  for (const output of outputs) {
    const message = serverMessage(1, utf8(output));
    server.write(message);
    expect((await client.reader.take(message.length)).equals(message)).toBe(true);
  }
  const end = serverEnd(STATUS_SUCCESS);
  server.end(end);
  expect((await client.reader.take(end.length)).equals(end)).toBe(true);
  return outputs.join('');
}

describe('a user with many sessions whose clients do not read', () => {
  it('uses memory and disk up to the share of the user, loses no byte, and delays no other user', async () => {
    const { rig, recorder, buffers, calm } = await openShared();
    const { memory, disk } = buffers;
    const ask = (command: string): Promise<Client> =>
      askUpgrade(rig.port, { target: `${EXEC}&command=${command}`, headers: WEBSOCKET_V5 });
    const floods = await Promise.all(
      Array.from({ length: FLOODS }, async (_, index) => {
        const client = await ask(`flood-${index}`);
        client.socket.pause();
        return client;
      }),
    );
    await until(() => disk.bytes >= DISK_SHARE && memory.spaceOf(GREEDY.login) === 0);

    const client = await ask('calm');
    const output = await exchange(client, await calm);
    await until(() => recorder.uploads.at(-1)?.ended === true);
    const events = recorder.uploads
      .at(-1)!
      .lines()
      .map((line) => JSON.parse(line) as unknown);
    const recorded = events.map((event) => (Array.isArray(event) && event[1] === 'o' ? event[2] : ''));
    expect(recorded.join('')).toBe(output);

    expect(disk.bytes).toBe(DISK_SHARE);
    expect(disk.usedBy(GREEDY.login)).toBe(DISK_SHARE);
    expect(memory.usedBy(GREEDY.login)).toBeLessThan(MEMORY + FLOODS * TURN_BYTES);
    const heldUp = rig.named('outputHeldUp');
    expect(new Set(heldUp.map(({ user }) => user))).toEqual(new Set([GREEDY.login]));
    expect(heldUp.map(({ limit }) => limit)).toContain('userDisk');

    await Promise.all(
      floods.map(async ({ socket, reader }, index) => {
        const expected = Buffer.concat(flood(index));
        socket.resume();
        expect((await reader.take(expected.length)).equals(expected)).toBe(true);
        socket.end();
      }),
    );
    await until(() => memory.bytes === 0 && disk.bytes === 0);
  });
});
