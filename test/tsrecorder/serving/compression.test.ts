import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { brotliCompressSync, gunzipSync } from 'node:zlib';
import Fastify from 'fastify';
import { describe, expect, it } from 'vitest';
import { addCompression, acceptsGzip } from '../../../src/tsrecorder/serving/compression.ts';
import { createRig, HEADER, type Rig } from '../recorder-rig.ts';

interface Answer {
  readonly encoding: string | undefined;
  readonly vary: string | undefined;
  readonly body: Buffer;
}

function ask(rig: Rig, path: string, accepted: string | undefined): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const headers = accepted === undefined ? {} : { 'accept-encoding': accepted };
    request(`${rig.recorder.url}${path}`, { headers }, (response) => {
      const parts: Buffer[] = [];
      response.on('data', (part: Buffer) => parts.push(part));
      response.on('end', () =>
        resolve({
          encoding: response.headers['content-encoding'],
          vary: response.headers.vary,
          body: Buffer.concat(parts),
        }),
      );
    })
      .on('error', reject)
      .end();
  });
}

async function fill(directory: string): Promise<void> {
  await mkdir(join(directory, 'nX'), { recursive: true });
  for (let count = 10; count < 60; count += 1)
    await writeFile(
      join(directory, 'nX', `2026-01-02T03:04:${count}.000000000Z.cast`),
      HEADER + '[1,"o","x"]\n',
    );
}

describe('compression of responses', () => {
  it('applies to JSON, for clients that accept it, and keeps the content', async () => {
    await using rig = await createRig();
    await fill(rig.directory);
    const path = '/api/v1/recordings?limit=50';
    const plain = await ask(rig, path, undefined);
    const packed = await ask(rig, path, 'gzip, br');
    expect(plain).toMatchObject({ encoding: undefined, vary: 'accept-encoding' });
    expect(packed).toMatchObject({ encoding: 'gzip', vary: 'accept-encoding' });
    expect(packed.body.length).toBeLessThan(plain.body.length / 4);
    expect(gunzipSync(packed.body).equals(plain.body)).toBe(true);
  });

  it('does not apply to casts and to small responses', async () => {
    await using rig = await createRig();
    await fill(rig.directory);
    const id = 'nX_2026-01-02T03:04:10.000000000Z';
    for (const path of [`/api/v1/recordings/${id}/cast`, `/api/v1/recordings/${id}`, '/healthz'])
      expect((await ask(rig, path, 'gzip')).encoding, path).toBeUndefined();
  });

  it('sends a transcript as it is stored', async () => {
    await using rig = await createRig();
    await fill(rig.directory);
    const path = '/api/v1/recordings/nX_2026-01-02T03:04:10.000000000Z/transcript';
    const ready = async (): Promise<string | undefined> => (await ask(rig, path, 'gzip')).encoding;
    await expect.poll(ready, { timeout: 15_000 }).toBe('gzip');
    const packed = await ask(rig, path, 'gzip');
    const plain = await ask(rig, path, undefined);
    expect(plain.encoding).toBeUndefined();
    expect(gunzipSync(packed.body).toString()).toBe(plain.body.toString());
  });

  it.each([
    ['gzip', true],
    ['deflate, gzip;q=0.5', true],
    ['*', true],
    ['gzip;q=0', false],
    ['br', false],
    ['', false],
  ])('parses %j as %s', (accepted, taken) => {
    expect(acceptsGzip(accepted)).toBe(taken);
  });
});

describe('files of the page', () => {
  it('are cached only if their name changes with their content', async () => {
    const playerDirectory = await mkdtemp(join(tmpdir(), 'tailcast-page-'));
    await mkdir(join(playerDirectory, 'assets'));
    for (const name of ['index.html', 'assets/a.js', 'assets/a.js.br'])
      await writeFile(join(playerDirectory, name), '');
    await using rig = await createRig({ playerDirectory });
    const cacheOf = async (path: string): Promise<string | null> =>
      (await fetch(`${rig.recorder.url}${path}`)).headers.get('cache-control');
    expect(await cacheOf('/')).toBe('public, max-age=0');
    expect(await cacheOf('/assets/a.js')).toBe('private, max-age=86400, immutable');
    await rm(playerDirectory, { recursive: true });
  });

  it('are sent as they were built, and compressed for clients that accept it', async () => {
    const playerDirectory = await mkdtemp(join(tmpdir(), 'tailcast-page-'));
    const text = 'a page '.repeat(100);
    await writeFile(join(playerDirectory, 'index.html'), text);
    await writeFile(join(playerDirectory, 'index.html.br'), brotliCompressSync(text));
    await using rig = await createRig({ playerDirectory });
    expect((await ask(rig, '/', 'br')).encoding).toBe('br');
    expect((await ask(rig, '/', undefined)).body.toString()).toBe(text);
    await rm(playerDirectory, { recursive: true });
  });
});

it.each([
  ['application/json', {}, 'gzip'],
  ['application/json; charset=utf-8', {}, 'gzip'],
  ['text/plain', {}, undefined],
  ['application/x-asciicast', {}, undefined],
  ['application/json', { 'content-encoding': 'br' }, 'br'],
])('a response of type %s with %j has the encoding %s', async (type, headers, encoding) => {
  const app = Fastify();
  addCompression(app);
  app.get('/', async (_request, reply) => reply.headers(headers).type(type).send('"'.padEnd(4000, 'x')));
  const answer = await app.inject({ url: '/', headers: { 'accept-encoding': 'gzip' } });
  expect(answer.headers['content-encoding']).toBe(encoding);
  if (encoding !== 'gzip') expect(answer.body).toHaveLength(4000);
  await app.close();
});
