import { once } from 'node:events';
import { connect as connectTcp } from 'node:net';
import { Registry } from 'prom-client';
import { afterEach, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { createRig, HEADER, openUpload, request, uploadWhole, type Rig } from './recorder-rig.ts';

const stack: AsyncDisposable[] = [];
afterEach(async () => {
  for (const rig of stack.splice(0)) await rig[Symbol.asyncDispose]();
});

async function openRig(options: Parameters<typeof createRig>[0] = {}): Promise<Rig & { readonly read: URL }> {
  const rig = await createRig({ readListen: { host: '127.0.0.1', port: 0 }, ...options });
  stack.push(rig);
  return { ...rig, read: new URL(rig.recorder.readUrl) };
}

async function listed(read: URL | string): Promise<readonly { readonly id: string }[]> {
  const answer = await fetch(new URL('/api/v1/recordings', read));
  return ((await answer.json()) as { recordings: { id: string }[] }).recordings;
}

/** @returns the id of a complete recording */
async function uploaded(recorder: Rig['recorder']): Promise<string> {
  await uploadWhole(recorder, HEADER);
  const [first] = await listed(recorder.readUrl);
  return first?.id ?? '';
}

it('serves no viewers at the upload address, and accepts no uploads at the viewer address', async () => {
  const { recorder, get, read } = await openRig();
  const id = await uploaded(recorder);
  expect(read.port).not.toBe(String(recorder.address.port));
  for (const path of [
    '/',
    '/api/v1/recordings',
    `/api/v1/recordings/${id}/cast`,
    '/api/v1/events',
    '/nothing',
  ]) {
    expect((await get(path)).status, path).toBe(404);
  }
  expect((await get('/nothing')).headers['x-content-type-options']).toBe('nosniff');
  const viewers = { ...recorder, address: { host: read.hostname, port: Number(read.port) } };
  const refused = openUpload({ url: recorder.readUrl });
  expect((await refused.headers)[':status']).toBe(404);
  refused.close();
  for (const path of ['/record', '/v2/record', '/v2/event']) {
    const answer = await request(viewers, { path, method: 'POST', body: HEADER });
    expect([404, 405], path).toContain(answer.status);
  }
  expect(await listed(read)).toHaveLength(1);
});

it('responds to health checks at both addresses', async () => {
  const { get, read } = await openRig();
  for (const path of ['/healthz', '/readyz']) {
    expect((await get(path)).status).toBe(200);
    expect((await fetch(new URL(path, read))).status).toBe(200);
  }
});

it('has live views only at the viewer address', async () => {
  const { recorder, read } = await openRig();
  const id = await uploaded(recorder);
  const path = `/api/v1/recordings/${id}/live`;
  const there = new WebSocket(new URL(path, read.href.replace('http', 'ws')));
  await once(there, 'message');
  there.terminate();
  const here = new WebSocket(`ws://127.0.0.1:${recorder.address.port}${path}`);
  const [error] = (await once(here, 'error')) as [Error];
  expect(error.message).toMatch(/hang up|ECONNRESET/);
});

it('limits and counts the connections of each listener separately', async () => {
  const registry = new Registry();
  const { recorder, read } = await openRig({ registry, limits: { maxConnections: 3 } });
  const sockets = [1, 2].map(() => connectTcp(Number(read.port), read.hostname));
  await Promise.all(sockets.map((socket) => once(socket, 'connect')));
  const surplus = connectTcp(Number(read.port), read.hostname);
  await once(surplus, 'close');
  const open = async (listener: string): Promise<number | undefined> => {
    const { values } = await registry.getSingleMetric('tailcast_recorder_connections')!.get();
    return values.find(({ labels }) => labels['listener'] === listener)?.value;
  };
  expect(await open('read')).toBe(2);
  expect(await open('upload')).toBe(0);
  await uploadWhole(recorder, HEADER);
  for (const socket of sockets) socket.destroy();
});

it('serves uploaders and viewers on one listener by default', async () => {
  const rig = await createRig();
  stack.push(rig);
  await uploadWhole(rig.recorder, HEADER);
  expect(rig.recorder.readUrl).toBe(rig.recorder.url);
  expect(await rig.list()).toHaveLength(1);
});

it('listens nowhere if one of the two addresses cannot be used', async () => {
  const { recorder } = await openRig();
  const taken = recorder.address;
  await expect(createRig({ readListen: taken })).rejects.toMatchObject({ code: 'EADDRINUSE' });
});
