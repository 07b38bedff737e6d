import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { PassThrough, type Duplex } from 'node:stream';
import { Registry } from 'prom-client';
import { afterEach, describe, expect, it } from 'vitest';
import { createForwarderMetrics } from '../../src/forwarder/metrics.ts';
import { openForwarder, type ForwardOutcome, type Forwarder } from '../../src/forwarder/server.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { listenOn } from '../support/listen.ts';

const open: (() => Promise<void>)[] = [];
afterEach(async () => {
  for (const close of open.splice(0).toReversed()) await close();
});

/** Starts a target, and a forwarder that connects to it. */
async function site(
  onConnection: (socket: Socket) => void,
  more: {
    readonly lingerMs?: number;
    readonly maxConnections?: number;
    readonly dial?: (port: number, signal: AbortSignal) => Promise<Duplex>;
  } = {},
): Promise<{ forwarder: Forwarder; outcomes: ForwardOutcome[]; client: () => Socket }> {
  const sockets = new Set<Socket>();
  const server: Server = createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
    onConnection(socket);
  });
  const port = await listenOn(server);
  open.push(() => {
    for (const socket of sockets) socket.destroy();
    return new Promise((done) => server.close(() => done()));
  });
  const outcomes: ForwardOutcome[] = [];
  const forwarder = await openForwarder({
    host: '127.0.0.1',
    ports: [0],
    async dial() {
      // As in tailscaled, the end of one direction also ends the other direction.
      const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: false });
      await once(socket, 'connect');
      return socket;
    },
    onEnd: (outcome) => outcomes.push(outcome),
    log: createSilentLogger(),
    ...more,
  });
  open.push(() => forwarder.close());
  const client = (): Socket => {
    const socket = connect({ port: forwarder.ports[0]!, host: '127.0.0.1', allowHalfOpen: true });
    socket.on('error', () => undefined);
    return socket;
  };
  return { forwarder, outcomes, client };
}

async function ended(outcomes: readonly ForwardOutcome[]): Promise<ForwardOutcome> {
  await expect.poll(() => outcomes.length).toBe(1);
  return outcomes[0]!;
}

describe('the forwarder', () => {
  it('carries bytes in both directions, whatever their number', async () => {
    const { client, outcomes } = await site((socket) => socket.pipe(socket), { lingerMs: 50 });
    const socket = client();
    const sent = Buffer.alloc(8 * 1024 * 1024, 'tailnet');
    let received = 0;
    socket.on('data', (chunk: Buffer) => {
      received += chunk.length;
      if (received === sent.length) socket.end();
    });
    socket.write(sent);
    await once(socket, 'end');
    expect(received).toBe(sent.length);
    expect(await ended(outcomes)).toBe('done');
  });

  it('gives answers to a client that has ended its own direction', async () => {
    const { client, outcomes } = await site((socket) => {
      socket.once('data', (chunk: Buffer) => {
        setTimeout(() => socket.end(`answer to ${String(chunk)}`), 100);
      });
    });
    const socket = client();
    socket.end('question');
    const chunks = (await socket.toArray()) as Buffer[];
    expect(Buffer.concat(chunks).toString()).toBe('answer to question');
    expect(await ended(outcomes)).toBe('done');
  });

  it('lets go of a target that is silent after the client has ended', async () => {
    const over = Promise.withResolvers<void>();
    const { client, forwarder } = await site(
      (socket) => {
        socket.resume();
        socket.once('end', () => {
          over.resolve();
          socket.end();
        });
      },
      { lingerMs: 50 },
    );
    const socket = client();
    socket.end('bye');
    socket.resume();
    await over.promise;
    await expect.poll(() => forwarder.open).toBe(0);
  });

  it('holds the target up while the client does not read', async () => {
    let sent = 0;
    const { client } = await site((socket) => {
      const chunk = Buffer.alloc(64 * 1024);
      const more = (): void => {
        while (!socket.destroyed && socket.write(chunk)) sent += chunk.length;
      };
      socket.on('drain', more);
      more();
    });
    const socket = client();
    socket.pause();
    let before = -1;
    await expect
      .poll(
        () => {
          const still = before === sent;
          before = sent;
          return still;
        },
        { interval: 200, timeout: 10_000 },
      )
      .toBe(true);
    expect(sent).toBeLessThan(32 * 1024 * 1024);
    socket.destroy();
  });

  it('resets who cannot be carried, and whose target breaks', async () => {
    const nowhere = await site(() => undefined, { dial: () => Promise.reject(new Error('no such node')) });
    const first = nowhere.client();
    const [error] = (await once(first, 'error')) as [NodeJS.ErrnoException];
    expect(error.code).toBe('ECONNRESET');
    expect(nowhere.outcomes).toEqual(['unreachable']);
    const breaking = await site((socket) => socket.once('data', () => socket.resetAndDestroy()));
    const second = breaking.client();
    second.write('x');
    await new Promise((done) => second.once('close', done));
    expect(await ended(breaking.outcomes)).toBe('broken');
  });

  it('gives a client that has ended all of its answer, however slowly it reads', async () => {
    const { client, outcomes } = await site(
      (socket) => {
        // as in tailscaled, the end of one direction also ends the other direction
        socket.on('end', () => socket.destroy());
        socket.write(Buffer.alloc(16 * 1024 * 1024));
        socket.once('data', () => socket.end());
      },
      { lingerMs: 300 },
    );
    const socket = client();
    socket.pause();
    socket.end('question');
    await new Promise((done) => setTimeout(done, 900));
    const chunks = (await socket.toArray()) as Buffer[];
    expect(Buffer.concat(chunks)).toHaveLength(16 * 1024 * 1024);
    expect(await ended(outcomes)).toBe('done');
  });

  it('lets go of a target that comes when nobody is there any more', async () => {
    const called = Promise.withResolvers<void>();
    const wait = Promise.withResolvers<void>();
    const target = new PassThrough();
    const { client, forwarder, outcomes } = await site(() => undefined, {
      async dial(_port, signal) {
        called.resolve();
        await wait.promise;
        expect(signal.aborted).toBe(true);
        return target;
      },
    });
    client();
    await called.promise;
    await forwarder.close();
    // the forwarder closes its sockets one event-loop turn later
    for (let turn = 0; turn < 3; turn += 1) await new Promise(setImmediate);
    wait.resolve();
    await expect.poll(() => target.destroyed).toBe(true);
    expect(await ended(outcomes)).toBe('broken');
  });

  it('waits for a target that goes on speaking after the client has ended', async () => {
    const { client, outcomes } = await site(
      (socket) => {
        socket.resume().on('end', () => socket.destroy());
        let pieces = 0;
        const timer = setInterval(() => {
          pieces += 1;
          socket.write('piece');
          if (pieces < 20) return;
          clearInterval(timer);
          socket.end();
        }, 50);
        socket.once('close', () => clearInterval(timer));
      },
      { lingerMs: 400 },
    );
    const socket = client();
    socket.end('question');
    const chunks = (await socket.toArray()) as Buffer[];
    expect(Buffer.concat(chunks).toString()).toBe('piece'.repeat(20));
    expect(await ended(outcomes)).toBe('done');
  });

  it('resets a client whose target goes without a word', async () => {
    const target = new PassThrough();
    const { client, outcomes } = await site(() => undefined, { dial: () => Promise.resolve(target) });
    const socket = client();
    socket.write('question');
    await once(target, 'readable');
    const failed = once(socket, 'error');
    target.destroy();
    expect(await failed).toMatchObject([{ code: 'ECONNRESET' }]);
    expect(await ended(outcomes)).toBe('broken');
  });

  it('opens all of its ports or none', async () => {
    const { forwarder } = await site(() => undefined);
    const options = {
      host: '127.0.0.1',
      dial: () => Promise.reject(new Error('nobody')),
      onEnd: () => undefined,
      log: createSilentLogger(),
    };
    await expect(openForwarder({ ...options, ports: [0, forwarder.ports[0]!] })).rejects.toMatchObject({
      code: 'EADDRINUSE',
    });
  });

  it('counts each way to end from nothing', async () => {
    const registry = new Registry();
    const { ended: counter } = createForwarderMetrics(registry, () => 3);
    counter.inc({ outcome: 'broken' });
    const { values } = await counter.get();
    expect(Object.fromEntries(values.map(({ labels, value }) => [labels.outcome, value]))).toEqual({
      broken: 1,
      done: 0,
      refused: 0,
      unreachable: 0,
    });
    expect(await registry.metrics()).toMatch(/ 3$/m);
  });

  it('takes no more than it may', async () => {
    const { client, outcomes } = await site((socket) => socket.pipe(socket), { maxConnections: 1 });
    const first = client();
    first.write('x');
    await once(first, 'data');
    const second = client();
    await once(second, 'error');
    expect(outcomes).toEqual(['refused']);
    first.destroy();
  });

  it('leaves connections for other addresses', async () => {
    const { client, forwarder, outcomes } = await site((socket) => socket.pipe(socket), {
      maxConnections: 8,
    });
    for (let at = 0; at < 8; at++) client();
    await expect.poll(() => outcomes).toEqual(Array.from({ length: 4 }, () => 'refused'));
    expect(forwarder.open).toBe(4);
    const port = forwarder.ports[0]!;
    const other = connect({ port, host: '127.0.0.1', localAddress: '127.0.0.2' });
    other.on('error', () => {});
    other.write('x');
    expect(String((await once(other, 'data'))[0])).toBe('x');
    other.destroy();
  });

  it('closes with connections open', async () => {
    const { client, forwarder } = await site((socket) => socket.pipe(socket));
    const socket = client();
    socket.write('x');
    await once(socket, 'data');
    await forwarder.close();
    expect(forwarder.open).toBe(0);
  });
});
