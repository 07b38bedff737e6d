import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { createMetrics } from '../../src/observe/metrics.ts';
import { openOpsServer, type OpsServer, type ReadinessCheck } from '../../src/observe/ops-server.ts';
import { listenOn } from '../support/listen.ts';

const servers: OpsServer[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) await server.close();
});

async function open(checks: readonly ReadinessCheck[], draining = false): Promise<string> {
  const metrics = createMetrics();
  const options = { metrics: metrics.registry, checks, draining: () => draining, timeoutMs: 50 };
  const server = (await openOpsServer({ host: '127.0.0.1', port: 0 }, options))!;
  servers.push(server);
  return `http://127.0.0.1:${server.address.port}`;
}

const working: ReadinessCheck = { name: 'upstream', check: () => Promise.resolve() };

describe('ops server', () => {
  it('is live, ready and shows metrics', async () => {
    const base = await open([working]);
    expect((await fetch(`${base}/livez`)).status).toBe(200);
    expect((await fetch(`${base}/readyz?verbose`)).status).toBe(200);
    const metrics = await fetch(`${base}/metrics`);
    expect(metrics.headers.get('content-type')).toContain('text/plain');
    expect(await metrics.text()).toContain('# TYPE tailcast_requests_total counter');
  });

  it('is not ready while a check fails, hangs, or the gateway drains, and says which', async () => {
    const base = await open([
      working,
      { name: 'tailscaled', check: () => Promise.reject(new Error('no socket')) },
      { name: 'api server', check: () => new Promise(() => {}) },
    ]);
    const answer = await fetch(`${base}/readyz`);
    expect(answer.status).toBe(503);
    expect(await answer.text()).toBe('tailscaled: no socket\napi server: the check took longer than 50 ms\n');
    expect((await fetch(`${base}/livez`)).status).toBe(200);
    const draining = await open([working], true);
    expect([(await fetch(`${draining}/readyz`)).status]).toEqual([503]);
  });

  it('answers probes while another client holds all connections', async () => {
    const base = await open([working]);
    const held = Array.from({ length: 64 }, () => connect(Number(new URL(base).port), '127.0.0.1'));
    for (const socket of held) socket.on('error', () => {});
    await Promise.all(held.map((socket) => once(socket, 'connect')));
    expect((await fetch(`${base}/livez`)).status).toBe(200);
    for (const socket of held) socket.destroy();
  });

  it('serves nothing else', async () => {
    const base = await open([]);
    expect((await fetch(`${base}/`)).status).toBe(404);
    expect((await fetch(`${base}/livez`, { method: 'POST', body: 'x' })).status).toBe(405);
  });

  it('names the address it cannot listen on', async () => {
    const blocker = createServer();
    const port = await listenOn(blocker);
    const opened = openOpsServer(
      { host: '127.0.0.1', port },
      { metrics: createMetrics().registry, checks: [] },
    );
    await expect(opened).rejects.toThrow(`cannot listen on 127.0.0.1:${port}`);
    blocker.close();
  });
});
