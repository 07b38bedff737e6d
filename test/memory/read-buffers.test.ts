import { createHash, randomBytes } from 'node:crypto';
import { describe, expect, it, onTestFinished } from 'vitest';
import { give, releaseOf, SHARED_READ_BUFFER, take } from '../../src/memory/read-buffers.ts';
import { createClient, openRig, type Rig } from '../proxy/rig.ts';

const payload = randomBytes(6_000_000);
const digest = createHash('sha256').update(payload).digest('hex');

/**
 * Opens a gateway whose API server responds to every request with the payload: for `/chunks` in chunks of odd sizes,
 * otherwise with `Content-Length`.
 */
async function openPayloadRig(): Promise<Rig> {
  const rig = await openRig({
    upstream: (connection) => {
      let seen = 0;
      connection.socket.on('data', () => {
        const heads = connection.received().split('\r\n\r\n');
        for (; seen < heads.length - 1; seen++) {
          if (!heads[seen]!.startsWith('GET /chunks')) {
            connection.socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${payload.length}\r\n\r\n`);
            connection.socket.write(payload);
            continue;
          }
          connection.socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n');
          for (let at = 0, size = 1; at < payload.length; at += size, size = (size * 7 + 13) % 50_000) {
            const piece = payload.subarray(at, at + Math.max(1, size));
            size = piece.length;
            connection.socket.write(`${piece.length.toString(16)}\r\n`);
            connection.socket.write(piece);
            connection.socket.write('\r\n');
          }
          connection.socket.write('0\r\n\r\n');
        }
      });
    },
  });
  onTestFinished(() => rig.close());
  return rig;
}

describe('read buffers', () => {
  it('are used again only when every use has ended', () => {
    const first = take(16 * 1024);
    const release = releaseOf(first)!;
    give(first);
    const second = take(16 * 1024);
    expect(second.buffer).not.toBe(first.buffer);
    release();
    const third = take(10_000);
    expect(third.buffer).toBe(first.buffer);
    give(second);
    give(third);
  });

  it('hold what was read, and leave the shared buffer free', () => {
    SHARED_READ_BUFFER.fill(1);
    const large = take(5000);
    const small = take(10);
    SHARED_READ_BUFFER.fill(2);
    expect([large.length, large.every((byte) => byte === 1)]).toEqual([5000, true]);
    expect([small.length, small.every((byte) => byte === 1)]).toEqual([10, true]);
    expect(releaseOf(small)).toBeUndefined();
    give(small);
    give(large);
  });

  it.each(['h1', 'h2'] as const)(
    'deliver every byte to fast, slow and leaving readers at once over %s',
    async (name) => {
      const rig = await openPayloadRig();
      const client = createClient(name, rig);
      onTestFinished(() => client.close());
      const read = async (index: number): Promise<string> => {
        const answer = await client.open({ path: index % 2 === 0 ? `/chunks/${index}` : `/length/${index}` });
        const hash = createHash('sha256');
        let pauses = 0;
        for await (const chunk of answer.body) {
          hash.update(chunk);
          // pauses in every third download, because a slow reader fills every queue on the path
          if (index % 3 === 0 && pauses++ % 20 === 0) await new Promise((resolve) => setTimeout(resolve, 3));
        }
        return hash.digest('hex');
      };
      const leave = async (index: number): Promise<string> => {
        const answer = await client.open({ path: `/length/${index}` });
        await new Promise((resolve) => answer.body.once('data', resolve));
        answer.abort();
        return digest;
      };
      const digests = await Promise.all(
        Array.from({ length: 12 }, (_, index) => (index % 4 === 3 ? leave(index) : read(index))),
      );
      expect(digests).toEqual(Array.from({ length: 12 }, () => digest));
    },
  );
});
