import { createHash } from 'node:crypto';
import { readdirSync, statSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:http2';
import { connect as tcpConnect } from 'node:net';
import { join } from 'node:path';
import { once } from 'node:events';
import { Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import {
  createRig,
  HEADER,
  openUpload,
  readAnswer,
  request,
  STORED_HEADER,
  until,
  UPLOADER,
  uploadWhole,
  type Rig,
  type Upload,
} from '../recorder-rig.ts';
import type { RunningRecorder } from '../../../src/compose/recorder-parts.ts';

const LINE = '[0.5,"o","hello\\r\\n"]\n';

async function stored(rig: Rig): Promise<string> {
  const [recording] = await rig.list();
  return (await rig.get(`/api/v1/recordings/${recording!.id}/cast`)).body;
}

describe('/v2/record', () => {
  it('accepts HEAD and POST over one connection, announces the upgrade, and responds before any body', async () => {
    await using rig = await createRig();
    const session = connect(rig.recorder.url);
    const head = session.request({ ':method': 'HEAD', ':path': '/v2/record' });
    const [answer] = await once(head, 'response');
    expect(answer).toMatchObject({ ':status': 200, 'tailcast-upgrade': '1' });
    head.resume();
    const post = session.request({ ':method': 'POST', ':path': '/v2/record' });
    const [response] = await once(post, 'response');
    expect(response).toMatchObject({ ':status': 200 });
    expect(response['content-encoding']).toBeUndefined();
    const [first] = await once(post, 'data');
    expect(String(first)).toBe('{}\n');
    session.destroy();
  });
});

describe.each(['h2', 'upgrade'] as const)('/v2/record over %s', (over) => {
  let sessions = 0;
  const open = (recorder: RunningRecorder): Upload =>
    openUpload(recorder, over === 'h2' ? {} : { 'tailcast-session': `s${(sessions += 1)}` });

  it('sends acknowledgements without any data, and continues while the client is silent', async () => {
    await using rig = await createRig({ timing: { idleAckMs: 30 } });
    const upload = open(rig.recorder);
    await upload.ack(() => true);
    await until(async () => (upload.acks.length >= 5 ? true : undefined));
    expect(new Set(upload.acks.map(({ ack }) => ack))).toEqual(new Set([0]));
    upload.write(HEADER);
    await upload.ack(({ ack }) => ack === HEADER.length);
    const count = upload.acks.length;
    await until(async () => (upload.acks.length >= count + 5 ? true : undefined));
    upload.close();
  });

  it('acknowledges only complete lines, within 200 ms', async () => {
    await using rig = await createRig();
    const upload = open(rig.recorder);
    upload.write(HEADER);
    await upload.ack(({ ack }) => ack === HEADER.length);
    const took: number[] = [];
    for (let count = 1; count <= 10; count += 1) {
      const begun = performance.now();
      upload.write(LINE);
      await upload.ack(({ ack }) => ack === HEADER.length + count * LINE.length);
      took.push(performance.now() - begun);
    }
    // checks the fastest acknowledgement: a busy machine delays some of them, but a delay in the recorder would affect
    // all
    expect(Math.min(...took)).toBeLessThan(200);
    upload.write('[0.6,"o","half');
    upload.write(' and half"]\n');
    const whole = HEADER.length + 10 * LINE.length + '[0.6,"o","half and half"]\n'.length;
    await upload.ack(({ ack }) => ack === whole);
    expect(
      upload.acks.every(({ ack }) => ack === 0 || (ack - HEADER.length) % LINE.length === 0 || ack === whole),
    ).toBe(true);
    upload.end();
    await upload.over;
  });

  it('ends the response with the last acknowledgement after the recording is stored', async () => {
    await using rig = await createRig();
    const upload = await uploadWhole(rig.recorder, HEADER + LINE);
    expect(upload.acks.at(-1)).toEqual({ ack: HEADER.length + LINE.length });
    expect(await stored(rig)).toBe(STORED_HEADER + LINE);
    expect(await readdir(rig.spool)).toEqual(['events', 'evidence', 'format.json', 'owner']);
  });

  it('keeps an unknown key, an id above 2^53 and the order of the header', async () => {
    await using rig = await createRig();
    await uploadWhole(rig.recorder, HEADER);
    const header = await stored(rig);
    expect(header).toContain('"srcNodeUserID":16793133573424021');
    expect(header).toContain('"future": {"x" : [1, 2]}');
    expect(header.startsWith('{"version":2,"width":80')).toBe(true);
  });

  it('lets no uploader choose where the recording is stored', async () => {
    await using rig = await createRig();
    const forged = HEADER.replace('"env"', '"dstNode":"other","dst\\u004eodeID":"nOTHER","env"');
    await uploadWhole(rig.recorder, forged);
    const [recording] = await rig.list();
    expect(recording?.destination).toEqual({ node: UPLOADER.nodeName, nodeId: UPLOADER.nodeId });
    expect(await stored(rig)).not.toContain('other');
  });

  it('writes annotations to sidecar and notes', async () => {
    await using rig = await createRig();
    const notes = [
      '{"kind":"session","id":"s1","user":"alice","tty":true,"stdin":true,"protocol":"websocket","path":"/api"}\n',
      '{"kind":"stream","name":"stderr"}\n',
      '{"kind":"exit","code":37}\n',
      '{"kind":"gap","bytes":9,"reason":"slow"}\n',
      '{"kind":"end","outcome":"violated","reason":"odd frame","outputBytes":5,"outputLines":1}\n',
    ];
    const body = HEADER + notes[0] + LINE + notes[1] + LINE + notes[2] + notes[3] + notes[4];
    const upload = await uploadWhole(rig.recorder, body);
    expect(upload.acks.at(-1)).toEqual({ ack: body.length });
    expect(await stored(rig)).toBe(STORED_HEADER + LINE + LINE);
    const [recording] = await rig.list();
    expect(recording).toMatchObject({ state: 'violated', result: '37' });
    expect(recording?.problem).toBe('session violated: odd frame; output is missing in 1 place');
    const sidecar = JSON.parse((await rig.get(`/api/v1/recordings/${recording!.id}/sidecar`)).body);
    const sha256 = createHash('sha256')
      .update(STORED_HEADER + LINE + LINE)
      .digest('hex');
    expect(sidecar).toMatchObject({
      session: { id: 's1', user: 'alice' },
      cast: { bytes: (STORED_HEADER + LINE + LINE).length },
      evidence: { cast: { blocks: [[(STORED_HEADER + LINE + LINE).length, sha256]] } },
      upload: { protocol: 'v2', address: '127.0.0.1', bodyBytes: body.length },
      gaps: [{ at: STORED_HEADER.length + 2 * LINE.length, bytes: 9, reason: 'slow' }],
    });
    const { body: journal } = await rig.get(`/api/v1/recordings/${recording!.id}/notes`);
    const positions = journal
      .split('\n')
      .slice(1, 3)
      .map((line) => JSON.parse(line));
    expect(positions).toEqual([
      { at: STORED_HEADER.length, size: notes[0]!.length, note: JSON.parse(notes[0]!) },
      { at: STORED_HEADER.length + LINE.length, size: notes[1]!.length, note: JSON.parse(notes[1]!) },
    ]);
  });

  it('accepts a megabyte in one line', async () => {
    await using rig = await createRig();
    const long = `[1,"o","${'x'.repeat(1_048_576)}"]\n`;
    const upload = await uploadWhole(rig.recorder, HEADER + long);
    expect(upload.acks.at(-1)).toEqual({ ack: HEADER.length + long.length });
    expect(await stored(rig)).toBe(STORED_HEADER + long);
  });

  it('accepts a last event without its line feed', async () => {
    await using rig = await createRig();
    const upload = await uploadWhole(rig.recorder, HEADER + LINE.trimEnd());
    expect(upload.acks.at(-1)).toEqual({ ack: HEADER.length + LINE.length - 1 });
    expect(await stored(rig)).toBe(STORED_HEADER + LINE);
  });

  it.each([
    ['random bytes', Buffer.from(Array.from({ length: 1_048_576 }, (_, index) => (index * 7919) % 251))],
    ['an event first', Buffer.from(LINE + HEADER)],
    ['nothing', Buffer.alloc(0)],
    ['another object', Buffer.from('{"hello":1}\n')],
    ['a header that is not UTF-8', Buffer.from(HEADER.replace('laptop', 'l\u00e9'), 'latin1')],
    ['a header without end', Buffer.from(HEADER.slice(0, 50))],
  ])('refuses %s with an error frame and stores nothing', async (_name, body) => {
    await using rig = await createRig();
    const upload = open(rig.recorder);
    if (body.length > 0) upload.write(body);
    upload.end();
    await upload.over;
    expect(upload.acks.at(-1)?.error).toMatch('the upload is not a session recording');
    expect(await rig.list()).toEqual([]);
    expect(await readdir(rig.spool)).toEqual(['events', 'evidence', 'format.json', 'owner']);
  });

  it('keeps the complete lines of an upload that ends inside a line', async () => {
    await using rig = await createRig();
    const upload = await uploadWhole(rig.recorder, `${HEADER}${LINE}[0.7,"o","brok`);
    expect(upload.acks.at(-1)?.error).toMatch('ends inside of a line');
    const [recording] = await until(async () => {
      const found = await rig.list('?state=interrupted');
      return found.length > 0 ? found : undefined;
    });
    expect(recording?.problem).toMatch('ends inside of a line');
    expect(await stored(rig)).toBe(STORED_HEADER + LINE);
  });

  it('keeps the complete lines if the uploader resets inside a line', async () => {
    await using rig = await createRig();
    const upload = openUpload(rig.recorder);
    upload.write(`${HEADER}${LINE}[0.7,"o","brok`);
    await upload.ack(({ ack }) => ack === HEADER.length + LINE.length);
    upload.reset();
    const [recording] = await until(async () => {
      const found = await rig.list('?state=interrupted');
      return found.length > 0 ? found : undefined;
    });
    expect(recording?.problem).toBe('the connection was lost');
    expect(await stored(rig)).toBe(STORED_HEADER + LINE);
    upload.close();
  });

  it('treats the end of a body as an interruption if an annotating gateway has not ended its session', async () => {
    await using rig = await createRig();
    const session =
      '{"kind":"session","id":"s1","tty":true,"stdin":true,"protocol":"spdy","path":"/api/v1/x"}\n';
    const upload = await uploadWhole(rig.recorder, HEADER + session + LINE);
    expect(upload.acks.at(-1)).toEqual({ ack: HEADER.length + session.length + LINE.length });
    expect((await rig.list())[0]).toMatchObject({
      state: 'interrupted',
      problem: 'the upload ended before its session',
    });
  });

  it('marks lines that are not events, and keeps them', async () => {
    await using rig = await createRig();
    await uploadWhole(rig.recorder, `${HEADER}not a line\n${LINE}{"kind":"unheard of"}\n`);
    const [recording] = await rig.list();
    expect(recording).toMatchObject({ state: 'completed', problem: '2 lines are not asciicast' });
    expect(await stored(rig)).toBe(`${STORED_HEADER}not a line\n${LINE}`);
  });

  it('ends a session that is longer than allowed, with one error frame', async () => {
    await using rig = await createRig({ limits: { maxSessionBytes: HEADER.length + 10 * LINE.length } });
    const upload = open(rig.recorder);
    upload.write(HEADER + LINE.repeat(10));
    await upload.ack(({ ack }) => ack === HEADER.length + 10 * LINE.length);
    upload.write(LINE);
    await upload.over;
    expect(upload.acks.at(-1)?.error).toMatch('the session is too long');
    expect(upload.acks.filter(({ error }) => error !== undefined)).toHaveLength(1);
  });

  it('makes a flooding uploader wait while acknowledgements continue, with little memory', async () => {
    const registry = new Registry();
    await using rig = await createRig({ registry, limits: { maxPendingBytes: 262_144 } });
    const received = async (): Promise<number> =>
      (await registry.getSingleMetric('tailcast_recorder_received_bytes_total')?.get())?.values[0]?.value ??
      0;
    const written = (): number =>
      readdirSync(rig.spool)
        .filter((name) => name.endsWith('.cast'))
        .reduce((sum, name) => sum + statSync(join(rig.spool, name)).size, 0);
    const upload = open(rig.recorder);
    const chunk = Buffer.from(`[1,"o","${'y'.repeat(65_000)}"]\n`);
    const total = HEADER.length + chunk.length * 3000;
    let peak = 0;
    upload.write(HEADER);
    for (let count = 0; count < 3000; count += 1) {
      if (!upload.stream.write(chunk)) await once(upload.stream, 'drain');
      // Read the number of written bytes first, so that bytes written later do not reduce the difference.
      const onDisk = written();
      peak = Math.max(peak, (await received()) - onDisk);
    }
    upload.end();
    await upload.over;
    expect(upload.acks.at(-1)).toEqual({ ack: total });
    expect(upload.acks.length).toBeGreaterThan(20);
    expect(peak).toBeGreaterThan(0);
    // Unwritten bytes are those of the current commit, of the next commit, and in transport windows: a few MiB. A slow
    // evidence log delays acknowledgements, but must not increase this number.
    expect(peak).toBeLessThan(total / 10);
    const [recording] = await rig.list();
    expect(recording?.bytes).toBe(STORED_HEADER.length + chunk.length * 3000);
  });

  it('commits immediately for an uploader that declares that it waits', async () => {
    await using rig = await createRig({ timing: { commitWindowMs: 600_000 } });
    const upload = openUpload(rig.recorder, { 'tailcast-session': 'waits', 'tailcast-waits': '1' });
    upload.write(HEADER);
    for (let count = 0; count <= 5; count += 1) {
      await upload.ack(({ ack }) => ack === HEADER.length + count * LINE.length);
      upload.write(LINE);
    }
    expect(upload.acks.every(({ error }) => error === undefined)).toBe(true);
  });

  it('accepts many concurrent sessions and mixes none', async () => {
    await using rig = await createRig();
    const uploads = Array.from({ length: 60 }, () => open(rig.recorder));
    for (const upload of uploads) upload.write(HEADER);
    for (let round = 0; round < 20; round += 1) {
      for (const [index, upload] of uploads.entries())
        upload.write(`[${round},"o","session ${index} round ${round}"]\n`);
      await uploads[round]!.ack(({ ack }) => ack > HEADER.length);
    }
    for (const upload of uploads) upload.end();
    await Promise.all(uploads.map(({ over }) => over));
    const recordings = await rig.list('?limit=500');
    expect(recordings).toHaveLength(60);
    const seen = new Set<string>();
    for (const { key, state } of recordings) {
      expect(state).toBe('completed');
      const lines = (await readFile(join(rig.directory, key), 'utf8')).split('\n').slice(1, -1);
      const names = new Set(lines.map((line) => /session \d+/.exec(line)?.[0]));
      expect(lines).toHaveLength(20);
      expect(names.size).toBe(1);
      seen.add([...names].join());
    }
    expect(seen.size).toBe(60);
  });
});

describe('the uploader', () => {
  it.each([
    ['refused', { kind: 'refused', reason: 'not a gateway' } as const, 403],
    ['without a node id', { ...UPLOADER, nodeId: '' }, 403],
  ])('is identified by the tailnet: %s', async (_name, identity, status) => {
    const asked: unknown[] = [];
    await using rig = await createRig({
      identify: async (from) => {
        asked.push(from.address);
        return identity;
      },
    });
    const session = connect(rig.recorder.url);
    for (const method of ['HEAD', 'POST']) {
      const stream = session.request({ ':method': method, ':path': '/v2/record' });
      const [headers] = await once(stream, 'response');
      expect(headers).toMatchObject({ ':status': status });
      stream.resume();
    }
    session.destroy();
    for (const [method, path] of [
      ['POST', '/record'],
      ['HEAD', '/v2/event'],
      ['POST', '/v2/event'],
    ] as const) {
      const answer = await request(rig.recorder, { method, path });
      expect([path, answer.status]).toEqual([path, status]);
      if (method === 'POST') expect(JSON.parse(answer.body).code).toBe('UPLOAD_REFUSED');
    }
    expect(new Set(asked)).toEqual(new Set(['127.0.0.1']));
    expect(asked).toHaveLength(5);
  });

  it('is refused if the tailnet cannot be queried', async () => {
    await using rig = await createRig({
      identify: async () => {
        throw new Error('no socket');
      },
    });
    const answer = await request(rig.recorder, { method: 'POST', path: '/v2/event', body: '{"type":"x"}' });
    expect(answer.status).toBe(503);
  });

  it('is identified by an IPv6 address without brackets or zone', async () => {
    const asked: string[] = [];
    await using rig = await createRig({
      listen: { host: '::1', port: 0 },
      identify: async ({ address }) => {
        asked.push(address);
        return UPLOADER;
      },
    });
    await uploadWhole(rig.recorder, HEADER);
    expect(asked).toEqual(['::1']);
    expect((await rig.list())[0]?.state).toBe('completed');
  });
});

describe('POST /record', () => {
  it('sends 100 Continue, reads the body, and responds with 200 when it is stored', async () => {
    await using rig = await createRig();
    const { host, port } = rig.recorder.address;
    const sent = httpRequest({
      host,
      port,
      method: 'POST',
      path: '/record',
      headers: { expect: '100-continue', 'transfer-encoding': 'chunked' },
    });
    sent.flushHeaders();
    await once(sent, 'continue');
    sent.write(HEADER);
    sent.write(LINE.slice(0, 5));
    sent.end(LINE.slice(5));
    const [response] = await once(sent, 'response');
    expect(await readAnswer(response)).toMatchObject({ status: 200, body: '' });
    expect(await stored(rig)).toBe(STORED_HEADER + LINE);
  });

  it('works without Expect', async () => {
    await using rig = await createRig();
    const answer = await request(rig.recorder, { method: 'POST', path: '/record', body: HEADER + LINE });
    expect(answer.status).toBe(200);
    expect(await stored(rig)).toBe(STORED_HEADER + LINE);
  });

  it('refuses a request before 100 Continue', async () => {
    await using rig = await createRig({ identify: async () => ({ kind: 'refused', reason: 'no' }) });
    const { host, port } = rig.recorder.address;
    const sent = httpRequest({
      host,
      port,
      method: 'POST',
      path: '/record',
      headers: { expect: '100-continue' },
    });
    let continued = false;
    sent.on('continue', () => {
      continued = true;
    });
    sent.flushHeaders();
    const [response] = await once(sent, 'response');
    expect(response.statusCode).toBe(403);
    expect(continued).toBe(false);
    sent.destroy();
  });

  it('responds with 400 to a body that is not a recording', async () => {
    await using rig = await createRig();
    const answer = await request(rig.recorder, {
      method: 'POST',
      path: '/record',
      body: 'x'.repeat(100_000),
    });
    expect(answer.status).toBe(400);
    expect(JSON.parse(answer.body).code).toBe('UPLOAD_MALFORMED');
  });

  it('stores an upload whose connection breaks as interrupted', async () => {
    await using rig = await createRig();
    const { host, port } = rig.recorder.address;
    const socket = tcpConnect(port, host);
    socket.write(`POST /record HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n`);
    socket.write(`${(HEADER.length + LINE.length).toString(16)}\r\n${HEADER}${LINE}\r\n`);
    await until(async () => ((await rig.list()).length > 0 ? true : undefined));
    socket.destroy();
    await until(async () => ((await rig.list('?state=interrupted')).length > 0 ? true : undefined));
    expect(await stored(rig)).toBe(STORED_HEADER + LINE);
  });

  it('has no time limit for a body', async () => {
    const { createServer } = await import('node:http');
    expect(createServer().requestTimeout).toBe(300_000);
    await using rig = await createRig({ timing: { headTimeoutMs: 100, idleTimeoutMs: 100 } });
    const { host, port } = rig.recorder.address;
    const sent = httpRequest({ host, port, method: 'POST', path: '/record' });
    sent.write(HEADER);
    // waits longer than every time limit of the server, and longer than the interval at which Node.js checks slow
    // connections
    await new Promise((resolve) => setTimeout(resolve, 1500));
    sent.end(LINE);
    const [response] = await once(sent, 'response');
    expect(response.statusCode).toBe(200);
    response.resume();
  });
});

describe('/v2/event', () => {
  const EVENT =
    '{"type":"kubernetes-api-request","id":"","timestamp":1785321882,"userAgent":"kubectl","request":{"method":"GET",' +
    '"path":"/version","body":"","queryParameters":{}},"kubernetes":{"Parts":null},"source":{"node":"laptop","nodeID":' +
    '"nA1","nodeUserID":16793133573424021},"destination":{"node":"","nodeID":""}}\n';

  it('responds, closes, and stores the event in the format of the reference', async () => {
    await using rig = await createRig({ eventLayout: 'reference' });
    expect((await request(rig.recorder, { method: 'HEAD', path: '/v2/event' })).status).toBe(200);
    const answer = await request(rig.recorder, {
      method: 'POST',
      path: '/v2/event',
      body: EVENT,
      headers: { 'content-type': 'application/json' },
    });
    expect(answer.status).toBe(200);
    expect(answer.headers['connection']).toBe('close');
    const folder = join(rig.directory, UPLOADER.nodeId, 'events');
    const [name, ...others] = await readdir(folder);
    expect(others).toEqual([]);
    const text = await readFile(join(folder, name!), 'utf8');
    expect(text).toContain('"nodeUserID":16793133573424021');
    expect(text.endsWith('}\n')).toBe(true);
    const original = JSON.parse(EVENT);
    expect(JSON.parse(text)).toEqual({
      stableID: UPLOADER.nodeId,
      event: {
        ...original,
        id: `${UPLOADER.nodeId}/events/${name}`,
        destination: { node: UPLOADER.nodeName, nodeID: UPLOADER.nodeId },
      },
      timestamp: '2026-07-29 10:44:42 +0000 UTC',
    });
    expect(await readdir(rig.directory)).toContain('.events-exist');
    // event search reads the signed batch of the same event
    const found = await rig.get('/api/v1/events?type=kubernetes-api-request&from=2026-01-01T00:00:00Z');
    expect(JSON.parse(found.body).events).toMatchObject([{ stableID: UPLOADER.nodeId }]);
    expect(await rig.list()).toEqual([]);
  });

  it('accepts 10 MiB', async () => {
    await using rig = await createRig({ eventLayout: 'reference' });
    const body = EVENT.replace('"body":""', `"body":"${'QUJD'.repeat(2_621_440)}"`);
    expect((await request(rig.recorder, { method: 'POST', path: '/v2/event', body })).status).toBe(200);
  });

  it('refuses long or invalid events with a short message', async () => {
    await using rig = await createRig({ limits: { maxEventBytes: 1000 }, eventLayout: 'reference' });
    for (const [body, status] of [
      [EVENT.padEnd(1001), 413],
      ['[]', 400],
      ['{"type":1}', 400],
      ['', 400],
    ] as const) {
      const answer = await request(rig.recorder, { method: 'POST', path: '/v2/event', body });
      expect(answer.status).toBe(status);
      expect(answer.body.length).toBeLessThan(200);
    }
    expect((await request(rig.recorder, { method: 'PUT', path: '/v2/event' })).status).toBe(405);
  });

  it('accepts a thousand events on separate connections', async () => {
    const registry = new Registry();
    await using rig = await createRig({ registry, eventLayout: 'reference' });
    const begun = performance.now();
    let next = 0;
    const client = async (): Promise<void> => {
      while (next < 1000) {
        next += 1;
        expect((await request(rig.recorder, { method: 'POST', path: '/v2/event', body: EVENT })).status).toBe(
          200,
        );
      }
    };
    await Promise.all(Array.from({ length: 32 }, client));
    expect(await readdir(join(rig.directory, UPLOADER.nodeId, 'events'))).toHaveLength(1000);
    expect(await registry.getSingleMetricAsString('tailcast_recorder_events_total')).toContain(' 1000');
    // the uploads take one second on an idle machine, so the limit detects only a deadlock
    expect(performance.now() - begun).toBeLessThan(100_000);
  });
});
