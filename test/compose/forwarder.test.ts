import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { listenOn } from '../support/listen.ts';
import { startLocalApiDouble } from '../support/local-api-double.ts';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));

/** Returns a port that the OS has just assigned. */
async function freePort(): Promise<number> {
  const server = createServer();
  const port = await listenOn(server);
  await new Promise((done) => server.close(done));
  return port;
}

it('refuses loopback addresses, to which a userspace tailscaled forwards connections of peers', async () => {
  const localApi = await startLocalApiDouble();
  const target = createServer((socket) => socket.end('secret'));
  const port = await freePort();
  localApi.dials.set(`db.example.ts.net:${port}`, await listenOn(target));
  const flags = ['--target', 'db.example.ts.net', '--ports', String(port), '--socket', localApi.socketPath];
  const role = spawn(process.execPath, [MAIN, 'forwarder', ...flags, '--ops-listen', 'off'], {
    env: { PATH: process.env['PATH'] },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  onTestFinished(async () => {
    role.kill('SIGKILL');
    target.close();
    await localApi.close();
  });
  for await (const line of createInterface({ input: role.stderr }))
    if (line.includes('forwarder is ready')) break;
  for (const host of ['127.0.0.1', '127.0.0.2', '::1']) {
    const peer = connect(port, host);
    const [error] = (await once(peer, 'error')) as [NodeJS.ErrnoException];
    expect(error.code, host).toBe('ECONNRESET');
  }
});
