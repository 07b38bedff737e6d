import { cp, mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import {
  createRig,
  HEADER,
  openUpload,
  STORED_HEADER,
  until,
  uploadWhole,
  type Rig,
} from '../recorder-rig.ts';

const LINES = '[0.1,"o","one\\r\\n"]\n[0.2,"r","24x80"]\n[0.3,"o","two\\r\\n"]\n';
const GOLDEN = join(dirname(fileURLToPath(import.meta.url)), '../../fixtures/golden');

describe('a recording', () => {
  let rig: Rig;
  let path: string;
  beforeAll(async () => {
    const player = await mkdtemp(join(tmpdir(), 'player-'));
    await writeFile(join(player, 'index.html'), '<!doctype html><title>player</title>');
    await writeFile(join(player, '.secret'), 'no');
    rig = await createRig({ playerDirectory: player, hostNames: ['rec.tail1.ts.net'] });
    await uploadWhole(rig.recorder, HEADER + LINES);
    const [recording] = await rig.list();
    path = `/api/v1/recordings/${recording!.id}`;
  });
  afterAll(() => rig[Symbol.asyncDispose]());

  it('is described under its id', async () => {
    const [listed] = await rig.list();
    const answer = await rig.get(path);
    expect(answer.headers['content-type']).toMatch('application/json');
    expect(JSON.parse(answer.body)).toEqual(listed);
    expect((await rig.get(encodeURI(path))).status).toBe(200);
  });

  it('is served completely, in ranges, and not again if it has not changed', async () => {
    const whole = await rig.get(`${path}/cast`);
    expect(whole.body).toBe(STORED_HEADER + LINES);
    expect(whole.headers).toMatchObject({
      'content-type': 'application/x-asciicast',
      'content-length': String(whole.body.length),
      'accept-ranges': 'bytes',
    });
    const etag = whole.headers['etag']!;
    const size = whole.body.length;
    for (const [range, status, expected, contentRange] of [
      ['bytes=0-9', 206, whole.body.slice(0, 10), `bytes 0-9/${size}`],
      ['bytes=10-', 206, whole.body.slice(10), `bytes 10-${size - 1}/${size}`],
      ['bytes=-5', 206, whole.body.slice(-5), `bytes ${size - 5}-${size - 1}/${size}`],
      [`bytes=5-${size + 100}`, 206, whole.body.slice(5), `bytes 5-${size - 1}/${size}`],
      [`bytes=-${size + 1}`, 206, whole.body, `bytes 0-${size - 1}/${size}`],
      [`bytes=${size}-`, 416, undefined, `bytes */${size}`],
      ['bytes=-0', 416, undefined, `bytes */${size}`],
      ['bytes=5-4', 200, whole.body, undefined],
      ['bytes=0-1,3-4', 200, whole.body, undefined],
      ['lines=0-1', 200, whole.body, undefined],
    ] as const) {
      const answer = await rig.get(`${path}/cast`, { range });
      expect([range, answer.status, answer.headers['content-range']]).toEqual([range, status, contentRange]);
      if (expected !== undefined) expect(answer.body).toBe(expected);
    }
    const unchanged = await rig.get(`${path}/cast`, { 'if-none-match': etag });
    expect([unchanged.status, unchanged.body]).toEqual([304, '']);
    const stale = await rig.get(`${path}/cast`, { range: 'bytes=0-1', 'if-range': '"other"' });
    expect([stale.status, stale.body]).toEqual([200, whole.body]);
    expect((await rig.get(`${path}/cast`, { range: 'bytes=0-1', 'if-range': etag })).status).toBe(206);
  });

  it('is normalised for a player: rows first of the reference become columns first', async () => {
    const { body } = await rig.get(`${path}/cast?normalise=1`);
    expect(body).toBe(STORED_HEADER + LINES.replace('24x80', '80x24'));
  });

  it.each([
    '/api/v1/recordings/nGATE1CNTRL_2020-01-01T00:00:00Z',
    '/api/v1/recordings/..%2f..%2fetc_2020-01-01T00:00:00Z/cast',
    '/api/v1/recordings/%2e%2e/cast',
    '/api/v1/recordings/x',
    '/api/v1/recordings/x/sidecar',
    '/api/v1/recordings/%ff/cast',
    '/.secret',
    '/../package.json',
    '/%2e%2e/package.json',
    '/nothing',
  ])('is not %s', async (other) => {
    const answer = await rig.get(other);
    expect(answer.status).toBeGreaterThanOrEqual(400);
    expect(answer.status).toBeLessThan(500);
    expect(Object.keys(JSON.parse(answer.body))).toEqual(['code', 'message']);
  });

  it('has headers that block all foreign content', async () => {
    for (const served of ['/', '/api/v1/recordings', `${path}/cast`, '/nothing']) {
      const { headers } = await rig.get(served);
      const policy = headers['content-security-policy']!;
      expect(policy).toMatch(/^default-src 'none'; script-src 'self'; style-src 'self';/);
      expect(policy).toMatch("frame-ancestors 'none'");
      expect(policy).not.toMatch(/unsafe-inline|unsafe-eval|\*/);
      expect(headers).toMatchObject({
        'x-content-type-options': 'nosniff',
        'referrer-policy': 'same-origin',
      });
    }
    expect((await rig.get('/')).body).toMatch('<title>player');
  });

  it("is served only under the recorder's own host names", async () => {
    const { port } = rig.recorder.address;
    for (const host of [
      `localhost:${port}`,
      `127.0.0.1:${port}`,
      'REC.tail1.ts.net',
      'rec.tail1.ts.net.:443',
    ]) {
      expect([host, (await rig.get('/api/v1/recordings', { host })).status]).toEqual([host, 200]);
    }
    for (const host of [
      'evil.example',
      `rec.tail1.ts.net.evil.example`,
      '10.0.0.1',
      'localhost@evil',
      '[::2]',
    ]) {
      expect([host, (await rig.get('/api/v1/recordings', { host })).status]).toEqual([host, 421]);
      expect((await rig.get('/', { host })).status).toBe(421);
      expect((await rig.get('/healthz', { host })).status).toBe(200);
    }
  });

  it('is read-only', async () => {
    for (const method of ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']) {
      expect([method, (await rig.get(path, {}, method)).status]).toEqual([method, 405]);
    }
  });

  it('list is filtered by exact names, times and text, and invalid filters are refused', async () => {
    const [recording] = await rig.list();
    const { startedAt } = recording!;
    const earlier = new Date(Date.parse(startedAt) - 1).toISOString();
    for (const [query, count] of [
      ['user=a@example.com', 1],
      ['user=a', 0],
      ['node=laptop.tail1.ts.net', 1],
      ['node=nGATE1CNTRL', 1],
      ['namespace=prod&pod=web-0&container=app&kind=exec&state=completed', 1],
      ['result=0', 0],
      ['result=client%20disconnected', 0],
      ['trust=verified', 1],
      ['trust=unverified', 0],
      ['kind=ssh', 0],
      ['tag=tag:ci', 0],
      ['text=LAPTOP', 1],
      ['text=sh%20-i', 1],
      ['text=nowhere', 0],
      [`from=${startedAt}`, 1],
      [`to=${startedAt}`, 0],
      [`from=${earlier}&to=2100-01-01T00:00:00Z`, 1],
    ] as const) {
      expect([query, (await rig.list(`?${query}`)).length]).toEqual([query, count]);
    }
    for (const query of [
      'limit=0',
      'limit=501',
      'limit=x',
      'from=yesterday',
      'state=odd',
      'state=open',
      'result=odd',
      'trust=odd',
      'usr=alice',
      'user=a&user=b',
    ]) {
      expect([query, (await rig.get(`/api/v1/recordings?${query}`)).status]).toEqual([query, 400]);
    }
  });

  it('responds to liveness and readiness checks', async () => {
    expect((await rig.get('/healthz')).status).toBe(200);
    expect((await rig.get('/readyz')).status).toBe(200);
  });
});

describe('a running session', () => {
  it('is listed as open, served up to the durable bytes, and followed to its end', async () => {
    await using rig = await createRig();
    const upload = openUpload(rig.recorder);
    const first = '[0.1,"o","one"]\n';
    upload.write(HEADER + first);
    await upload.ack(({ ack }) => ack === (HEADER + first).length);
    const [open] = await rig.list();
    expect(open).toMatchObject({ state: 'running', bytes: (STORED_HEADER + first).length });
    const path = `/api/v1/recordings/${open!.id}/cast`;
    expect((await rig.get(path)).body).toBe(STORED_HEADER + first);
    expect((await rig.get(path)).headers['etag']).toBeUndefined();

    const { host, port } = rig.recorder.address;
    const follower = httpRequest({ host, port, path: `${path}?follow=1` }).end();
    const [response] = (await once(follower, 'response')) as [IncomingMessage];
    let received = '';
    response.setEncoding('utf8');
    response.on('data', (text: string) => {
      received += text;
      if (received.endsWith(first)) upload.write('[0.2,"o","two"]\n[0.3,"o","hal');
      if (received.endsWith('"two"]\n')) {
        upload.write('f"]\n');
        upload.end();
      }
    });
    await once(response, 'end');
    expect(received).toBe(`${STORED_HEADER}${first}[0.2,"o","two"]\n[0.3,"o","half"]\n`);
    await upload.over;
    expect((await rig.get(`${path}?follow=1`)).body).toBe(received);
  });

  it('is followed over a WebSocket line by line', async () => {
    await using rig = await createRig();
    const upload = openUpload(rig.recorder);
    upload.write(`${HEADER}[0.1,"r","24x80"]\n`);
    await upload.ack(({ ack }) => ack > HEADER.length);
    const [open] = await rig.list();
    const address = `${rig.recorder.url.replace('http', 'ws')}/api/v1/recordings/${encodeURIComponent(open!.id)}/live`;
    const viewer = new WebSocket(address, ['v1.alis', 'v2.asciicast', 'raw'], { origin: rig.recorder.url });
    const messages: string[] = [];
    viewer.on('message', (data: Buffer) => {
      messages.push(data.toString());
      if (messages.length === 2) {
        upload.write('[0.2,"o","x"]\n');
        upload.end();
      }
    });
    const [code] = await once(viewer, 'close');
    expect(viewer.protocol).toBe('v2.asciicast');
    expect(code).toBe(1000);
    expect(messages).toEqual([STORED_HEADER.trimEnd(), '[0.1,"r","80x24"]', '[0.2,"o","x"]']);
    for (const [url, options] of [
      [address, { origin: 'http://evil.example' }],
      [address, { origin: 'http://localhost:9999' }],
      [address, { origin: 'http://127.0.0.1:1' }],
      [address, { headers: { host: 'evil.example' } }],
      [address.replace('/live', '/other'), {}],
      [address.replace('nGATE1', 'nGATE2'), {}],
    ] as const) {
      const refused = new WebSocket(url, options);
      const [error] = await once(refused, 'error');
      expect(String(error)).toMatch(/Unexpected server response: 40[34]/);
    }
  });
});

describe('an archive of the reference', () => {
  let rig: Rig;
  let directory: string;
  const names = ['tty-resize-spdy', 'tty-resize-ws', 'notty-ws', 'stdin-spdy', 'attach-tty-ws', 'run-i-ws'];
  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'archive-'));
    await mkdir(join(directory, 'n5CNTRL', 'events'), { recursive: true });
    for (const [index, name] of names.entries()) {
      await cp(
        join(GOLDEN, `${name}.cast`),
        join(directory, 'n5CNTRL', `2026-07-29T11:50:50.0${index}Z.cast`),
      );
    }
    await writeFile(join(directory, 'n5CNTRL', '2026-07-29T11:50:51Z.cast'), 'not a header\n');
    await writeFile(join(directory, 'n5CNTRL', '2026-07-29T11:50:52Z.cast'), '');
    await writeFile(
      join(directory, 'n5CNTRL', '2026-07-29T11:50:53Z.cast'),
      `${HEADER}[1,"o","x"]\n[2,"o","br`,
    );
    await writeFile(join(directory, 'n5CNTRL', '2026-07-29T11:50:54Z.cast'), HEADER);
    await writeFile(join(directory, 'n5CNTRL', '2026-07-29T11:50:54Z.json'), '{}');
    await writeFile(join(directory, 'n5CNTRL', 'events', '2026-07-29T11:45:08.133861649Z.event'), '{}\n');
    await writeFile(join(directory, 'check-write-access'), '');
    await writeFile(join(directory, '.events-exist'), '');
    await mkdir(join(directory, 'state'));
    rig = await createRig({ directory });
  });
  afterAll(async () => {
    await rig[Symbol.asyncDispose]();
  });

  it('is listed, newest first, whatever it contains', async () => {
    const recordings = await rig.list();
    expect(recordings.map(({ state }) => state)).toEqual([
      'completed',
      'interrupted',
      'damaged',
      'damaged',
      ...names.map(() => 'completed'),
    ]);
    expect(recordings[0]?.problem).toBe('the sidecar cannot be read');
    expect(recordings[1]).toMatchObject({
      durationSeconds: 1,
      problem: 'the recording ends inside of a line',
    });
    expect(recordings[3]).toMatchObject({ problem: 'the header line cannot be read', bytes: 13 });
    const byName = new Map(names.map((name, index) => [name, recordings[4 + names.length - 1 - index]]));
    expect(byName.get('tty-resize-ws')).toMatchObject({
      id: 'n5CNTRL_2026-07-29T11:50:50.01Z',
      startedAt: '2026-07-29T11:50:50.010Z',
      durationSeconds: 3.433471288,
      width: 101,
      height: 33,
      command: 'sh -i',
      kind: 'exec',
      source: { node: 'alice.lab.ts.net', nodeId: '5', user: 'alice@example.com' },
      destination: { node: '', nodeId: 'n5CNTRL' },
    });
    expect(byName.get('stdin-spdy')?.durationSeconds).toBeUndefined();
    expect(byName.get('attach-tty-ws')?.kind).toBe('attach');
  });

  it('is shown with corrected resizes and complete line ends', async () => {
    const cast = async (index: number, query: string): Promise<string> =>
      (await rig.get(`/api/v1/recordings/n5CNTRL_2026-07-29T11:50:50.0${index}Z/cast${query}`)).body;
    expect(await cast(0, '')).toContain('[0.425029618,"r","44x120"]\n');
    expect(await cast(0, '?normalise=1')).toBe(
      (await cast(0, '')).replace('"44x120"', '"120x44"').replace('"24x80"', '"80x24"'),
    );
    const plain = await cast(2, '?normalise=1');
    expect(plain).toContain('"width":80,"height":24,');
    expect(plain).toContain('[0.004000026,"o","out1\\r\\n"]\n');
    expect(await cast(2, '')).toContain('[0.004000026,"o","out1\\n"]\n');
  });

  it('is paged without gaps or repeats', async () => {
    const seen: string[] = [];
    let cursor = '';
    for (;;) {
      const { body } = await rig.get(`/api/v1/recordings?limit=3${cursor}`);
      const page = JSON.parse(body);
      seen.push(...page.recordings.map(({ id }: { id: string }) => id));
      if (page.next === undefined) break;
      cursor = `&cursor=${encodeURIComponent(page.next)}`;
    }
    expect(seen).toEqual((await rig.list()).map(({ id }) => id));
  });

  it('shows recordings that other programs add', async () => {
    await using other = await createRig({
      directory,
      spoolDirectory: join(directory, '.other'),
      timing: { listRefreshMs: 0 },
    });
    const before = (await other.list('?limit=500')).length;
    await uploadWhole(rig.recorder, HEADER);
    expect((await other.list('?limit=500')).length).toBe(before + 1);
  });
});

describe('the files of a recording that has ended and is not stored yet', () => {
  it('are served after it is stored', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'tsrecorder-'));
    const store = await createDiskStore(directory);
    const gate = Promise.withResolvers<void>();
    await using rig = await createRig(
      {
        store: {
          ...store,
          async finish(upload) {
            await gate.promise;
            await store.finish(upload);
          },
        },
      },
      directory,
    );
    const upload = openUpload(rig.recorder);
    upload.write(`${HEADER}{"kind":"session","id":"s1"}\n${LINES}{"kind":"end","outcome":"completed"}\n`);
    upload.end();
    const over = await until(async () => (await rig.list()).find(({ state }) => state === 'completed'));
    const asked = Promise.all(
      ['notes', 'sidecar'].map((kind) => rig.get(`/api/v1/recordings/${over.id}/${kind}`)),
    );
    // both requests must stay pending until the test resolves `gate`
    expect(await Promise.race([asked, rig.get('/healthz')])).toMatchObject({ status: 200 });
    gate.resolve();
    expect((await asked).map(({ status }) => status)).toEqual([200, 200]);
    await upload.over;
  });
});
