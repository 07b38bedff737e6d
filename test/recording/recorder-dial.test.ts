import { PassThrough } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { dialNode } from '../../src/recording/recorder-dial.ts';

describe('dialling the addresses of a node', () => {
  it('reports the error of each address if all fail', async () => {
    const refused = dialNode(
      ['a:1', 'b:2'],
      (address) => Promise.reject(new Error(`${address} refused`)),
      5000,
      new AbortController().signal,
    );
    await expect(refused).rejects.toThrow('a:1 refused; b:2 refused');
  });

  it('fails with the reason of its signal, before and during the attempt', async () => {
    const abort = new AbortController();
    const dialled = dialNode(['a:1'], () => new Promise(() => undefined), 5000, abort.signal);
    abort.abort(new Error('the session is over'));
    await expect(dialled).rejects.toThrow('the session is over');
    await expect(dialNode(['a:1'], async () => new PassThrough(), 5000, abort.signal)).rejects.toThrow(
      'the session is over',
    );
  });

  it('closes a socket that opens after the signal', async () => {
    const abort = new AbortController();
    const socket = new PassThrough();
    const given = Promise.withResolvers<PassThrough>();
    const dialled = dialNode(['a:1'], () => given.promise, 5000, abort.signal);
    abort.abort(new Error('over'));
    await expect(dialled).rejects.toThrow('over');
    given.resolve(socket);
    await new Promise((resolve) => socket.once('close', resolve));
    expect(socket.destroyed).toBe(true);
  });

  it('closes the second socket if two addresses respond at once', async () => {
    const go = Promise.withResolvers<void>();
    const both = Promise.withResolvers<void>();
    const sockets: PassThrough[] = [];
    let dialled = 0;
    const answered = dialNode(
      ['a:1', 'b:2'],
      async () => {
        dialled += 1;
        if (dialled === 2) both.resolve();
        await go.promise;
        const socket = new PassThrough();
        sockets.push(socket);
        return socket;
      },
      60_000,
      new AbortController().signal,
    );
    await both.promise;
    go.resolve();
    const { socket } = await answered;
    await expect.poll(() => sockets.filter(({ destroyed }) => destroyed).length).toBe(1);
    expect(sockets).toHaveLength(2);
    expect(socket.destroyed).toBe(false);
  });

  it('returns a socket that may break before it is used', async () => {
    const socket = new PassThrough();
    const dialled = await dialNode(['a:1'], async () => socket, 5000, new AbortController().signal);
    expect(dialled).toEqual({ address: 'a:1', socket });
    expect(socket.listenerCount('error')).toBeGreaterThan(0);
    expect(() => socket.emit('error', new Error('reset'))).not.toThrow();
  });
});
