/** The check of silent connections, against a gateway in this process and against servers that close connections. */
import { once } from 'node:events';
import { createServer, type TLSSocket } from 'node:tls';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { runChecks, type CheckFinding } from '../../src/doctor/checks.ts';
import { silenceCheck } from '../../src/doctor/silence-check.ts';
import {
  createServerCa,
  kubeconfigOf,
  openClusterRig,
  startScripted,
  type ServerCa,
} from '../support/cluster-rig.ts';
import { listenOn } from '../support/listen.ts';

const RESPONSE = 'HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n';
let ca: ServerCa;

beforeAll(async () => {
  ca = await createServerCa();
});

async function examine(port: number, silentMs: number): Promise<CheckFinding> {
  const through = new URL(`https://127.0.0.1:${port}`);
  const [finding] = await runChecks(
    [silenceCheck({ through, silentMs, monotonicMs: () => performance.now() })],
    new AbortController().signal,
  );
  return finding!;
}

/** Starts a server that passes each connection to `serve` after the request. @returns its port */
async function startServer(serve: (socket: TLSSocket) => void): Promise<number> {
  const server = createServer({ key: ca.pair.keyPem, cert: ca.pair.certificatePem }, (socket) => {
    socket.on('error', () => undefined);
    void once(socket, 'data').then(() => serve(socket));
    onTestFinished(() => void socket.destroy());
  });
  onTestFinished(() => void server.close());
  return listenOn(server);
}

describe('a silent connection', () => {
  it.each([
    ['with a rule', undefined],
    ['without a rule', []],
  ])('stays open at a gateway for a caller %s', async (_, rules) => {
    const api = await startScripted('a');
    onTestFinished(() => api.close());
    const rig = await openClusterRig({
      content: { clusters: [{ name: 'a', kubeconfig: { file: 'DIR/a.yaml' } }] },
      files: { 'a.yaml': kubeconfigOf(api) },
      ...(rules === undefined ? {} : { rules }),
    });
    onTestFinished(() => rig.close());
    expect(await examine(rig.gateway.port, 300)).toMatchObject({
      status: 'ok',
      summary: expect.stringContaining('kept a connection for 0.3 s without data'),
    });
  });

  it.each([
    ['an end', (socket: TLSSocket) => void socket.end()],
    ['a reset', (socket: TLSSocket) => void socket.destroy()],
  ])('is a warning after %s, with the time since the last data', async (_, close) => {
    const port = await startServer((socket) => {
      socket.write(RESPONSE.slice(0, 20));
      setTimeout(() => socket.write(RESPONSE.slice(20)), 600);
      setTimeout(() => close(socket), 1700);
    });
    expect(await examine(port, 5000)).toMatchObject({
      status: 'warning',
      summary: `127.0.0.1:${port} closed a connection after 1 s without data`,
      remedy: expect.stringContaining('timeout tunnel 24h'),
    });
  });

  it('cannot be measured if the response ends the connection', async () => {
    const port = await startServer(
      (socket) => void socket.end(RESPONSE.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n')),
    );
    expect(await examine(port, 300)).toMatchObject({
      status: 'failed',
      summary: expect.stringContaining('closes'),
    });
  });

  it('cannot be measured without a server', async () => {
    expect(await examine(1, 300)).toMatchObject({
      status: 'failed',
      summary: expect.stringContaining('127.0.0.1:1 did not respond'),
    });
  });
});
