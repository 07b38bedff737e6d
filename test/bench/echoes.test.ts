import { createServer, type AddressInfo, type Server } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { afterEach, describe, expect, it } from 'vitest';
import { loadExec } from '../../bench/programs/load-exec.ts';
import type { LoadResult } from '../../bench/programs/plan.ts';
import { serveExec } from '../../bench/programs/upstream-exec.ts';

const servers: Server[] = [];
afterEach(() => {
  for (const server of servers.splice(0)) server.close();
});

/**
 * Runs the load generator with three shells of the bench's API server, without TLS. `falsify` changes the bytes that
 * the server sends.
 */
async function type(onSteady: () => void, falsify: (bytes: Buffer) => Buffer): Promise<LoadResult> {
  const server = createServer((socket) => {
    socket.on('error', () => socket.destroy());
    socket.once('data', (head: Buffer) => {
      const { write } = socket;
      const falsified = (bytes: Uint8Array): boolean => write.call(socket, falsify(Buffer.from(bytes)));
      Object.assign(socket, { write: falsified });
      serveExec(socket as unknown as TLSSocket, head.toString('latin1'), Buffer.alloc(0));
    });
  });
  await new Promise<void>((resolve) => {
    server.listen(0, '127.0.0.1', resolve);
  });
  servers.push(server);
  return loadExec(
    { port: (server.address() as AddressInfo).port },
    {
      kind: 'exec',
      transport: 'websocket',
      work: { kind: 'echoes', sessions: 3, everyMs: 15, durationMs: 60 },
    },
    onSteady,
  );
}

describe('echoes of many shells', () => {
  it('count every key, and come when all shells are open', async () => {
    let steady = 0;
    const {
      units,
      p50Ms = 0,
      p99Ms = 0,
    } = await type(
      () => (steady += 1),
      (bytes) => bytes,
    );
    expect({ units, steady }).toEqual({ units: 12, steady: 1 });
    expect(p50Ms).toBeGreaterThan(0);
    expect(p99Ms).toBeGreaterThanOrEqual(p50Ms);
  });

  it('are refused when another letter comes back', async () => {
    const other = (bytes: Buffer): Buffer => (bytes.at(-1) === 0x61 ? Buffer.of(0x82, 2, 1, 0x62) : bytes);
    await expect(type(() => {}, other)).rejects.toThrow('another letter');
  });
});
