import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { shareReads, type SharedReads } from '../../../src/tsrecorder/serving/shared-reads.ts';
import { listenOn } from '../../support/listen.ts';

interface Pair extends SharedReads {
  readonly client: Socket;
  readonly accepted: Socket;
  /** Copies of all received pieces; `memory` contains the buffers in which the pieces arrived. */
  readonly read: Buffer[];
  readonly memory: Set<ArrayBufferLike>;
}

async function listen(): Promise<Server & AsyncDisposable> {
  const server = createServer({ pauseOnConnect: true });
  await listenOn(server);
  return Object.assign(server, {
    [Symbol.asyncDispose]: () => new Promise<void>((resolve) => server.close(() => resolve())),
  });
}

/** Opens a connection, and passes its socket to `shareReads` after the client has sent `first`. */
async function pair(server: Server, first = ''): Promise<Pair> {
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1');
  client.on('error', () => undefined);
  const [accepted] = (await once(server, 'connection')) as [Socket];
  if (first !== '') {
    client.write(first);
    accepted.read(0);
    await once(accepted, 'readable');
  }
  const read: Buffer[] = [];
  const memory = new Set<ArrayBufferLike>();
  const shared = shareReads(accepted, (piece) => {
    read.push(Buffer.from(piece));
    memory.add(piece.buffer);
  });
  return { ...shared, client, accepted, read, memory };
}

/** Resolves when the socket closes. Unlike `once` of `node:events`, `gone` does not reject after an error. */
const gone = (socket: Duplex): Promise<void> =>
  new Promise((resolve) => socket.once('close', () => resolve()));

const text = ({ read }: Pair): string => Buffer.concat(read).toString();

describe('a connection that is read into shared memory', () => {
  it('delivers the first bytes, and then everything in order', async () => {
    await using server = await listen();
    const one = await pair(server, 'early');
    expect(Buffer.from(one.early).toString()).toBe('early');
    const sent = Buffer.from(Array.from({ length: 100_000 }, (_, index) => `${index}\n`).join(''));
    one.client.write(sent);
    await expect.poll(() => Buffer.concat(one.read).length).toBe(sent.length);
    expect(Buffer.concat(one.read).equals(sent)).toBe(true);
    one.client.destroy();
  });

  it('shares the memory with others, and gets only its own data', async () => {
    await using server = await listen();
    const one = await pair(server);
    const other = await pair(server);
    for (let turn = 0; turn < 20; turn += 1) {
      one.client.write(`1:${turn} `);
      other.client.write(`2:${turn} `);
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    const turns = Array.from({ length: 20 }, (_, turn) => turn);
    await expect.poll(() => text(one)).toBe(turns.map((turn) => `1:${turn} `).join(''));
    await expect.poll(() => text(other)).toBe(turns.map((turn) => `2:${turn} `).join(''));
    expect(new Set([...one.memory, ...other.memory]).size).toBe(1);
    one.client.destroy();
    other.client.destroy();
  });

  it('can be written, and ends when its peer ends', async () => {
    await using server = await listen();
    const one = await pair(server);
    const answer = once(one.client, 'data');
    one.socket.write('answer');
    expect(String((await answer)[0])).toBe('answer');
    const ended = once(one.socket, 'end');
    one.client.end('last');
    await ended;
    expect(text(one)).toBe('last');
    one.socket.destroy();
  });

  it('reads nothing while it is paused', async () => {
    await using server = await listen();
    const one = await pair(server);
    one.client.write('a');
    await expect.poll(() => text(one)).toBe('a');
    one.socket.pause();
    one.client.write('b');
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(text(one)).toBe('a');
    one.socket.resume();
    await expect.poll(() => text(one)).toBe('ab');
    one.client.destroy();
  });

  it.each([
    ['the new socket is', ({ socket }: Pair) => socket.destroy()],
    ['the first one is', ({ accepted }: Pair) => accepted.destroy()],
    ['its peer resets it', ({ client }: Pair) => client.resetAndDestroy()],
  ])('is closed, and no longer counted, when %s', async (_, close) => {
    await using server = await listen();
    const one = await pair(server);
    const closed = Promise.all([gone(one.socket), gone(one.accepted)]);
    close(one);
    await closed;
    await expect.poll(() => one.client.destroyed || one.client.readableEnded).toBe(true);
    const count = await new Promise<number>((resolve) =>
      server.getConnections((_error, found) => resolve(found)),
    );
    expect(count).toBe(0);
    one.client.destroy();
  });

  it('is read normally if it is not a socket', async () => {
    const stream = new Duplex({ read() {}, write: (_chunk, _encoding, done) => done() });
    const read: string[] = [];
    expect(shareReads(stream, (piece) => read.push(String(piece)))).toEqual({
      socket: stream,
      early: new Uint8Array(0),
    });
    stream.push('as ever');
    await expect.poll(() => read).toEqual(['as ever']);
  });

  it('stays closed', async () => {
    await using server = await listen();
    const one = await pair(server);
    one.socket.destroy();
    await gone(one.accepted);
    expect(shareReads(one.accepted, () => undefined).socket).toBe(one.accepted);
    one.client.destroy();
  });
});
