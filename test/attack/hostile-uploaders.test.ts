/** A tailnet node with the right to upload forges facts about viewers, or makes the recorder repeat expensive work. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import {
  createRig,
  HEADER,
  openUpload,
  request,
  UPLOADER,
  uploadWhole,
  type Rig,
  type Upload,
} from '../tsrecorder/recorder-rig.ts';

/** Returns a header with this command. */
const headerOf = (command: string): string =>
  `${JSON.stringify({ ...JSON.parse(HEADER), command, tailcast: 1 })}\n`;

describe('events that only the recorder writes', () => {
  let rig: Rig;
  beforeAll(async () => {
    rig = await createRig();
  });
  afterAll(() => rig[Symbol.asyncDispose]());

  it.each(['tailcast-recording-access', 'tailcast-untrusted-session'])('%s is refused', async (type) => {
    await uploadWhole(rig.recorder, HEADER);
    const [{ id } = { id: '' }] = await rig.list();
    const body = JSON.stringify({
      type,
      timestamp: Math.floor(Date.now() / 1000),
      action: 'download',
      recording: id,
      source: { node: 'audit.tail1.ts.net', nodeID: 'nAUDIT', nodeUser: 'auditor@example.com' },
    });
    const answer = await request(rig.recorder, { path: '/v2/event', method: 'POST', body });
    expect(answer).toMatchObject({
      status: 400,
      body: expect.stringContaining('UPLOAD_MALFORMED') as unknown,
    });
    expect((await rig.get(`/api/v1/recordings/${id}/evidence`)).body).not.toContain('auditor@example.com');
  });
});

it('an event in chunks of one byte needs no memory for each chunk', async () => {
  await using rig = await createRig();
  const concat = vi.spyOn(Buffer, 'concat');
  onTestFinished(() => concat.mockRestore());
  const event = JSON.stringify({ type: 'test', timestamp: 1, padding: 'x'.repeat(50_000) });
  const socket = connect(rig.recorder.address);
  socket.write('POST /v2/event HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n');
  socket.write(Array.from(event, (byte) => `1\r\n${byte}\r\n`).join(''));
  socket.write('0\r\n\r\n');
  const [answer] = await once(socket, 'data');
  socket.destroy();
  expect(String(answer)).toMatch(/^HTTP\/1\.1 20/);
  expect(Math.max(...concat.mock.calls.map(([list]) => list.length))).toBeLessThan(1000);
});

describe.each(['a line', 'a header'] as const)('%s that fills the memory', (kind) => {
  it('is refused if the node has too many of them, and other nodes still upload', async () => {
    await using rig = await createRig({
      limits: { maxLongLineBytes: 8 * 1024 ** 2 },
      identify: async ({ address }) => ({ ...UPLOADER, nodeId: address }),
    });
    const uploads: Upload[] = [];
    let refused: string | undefined;
    for (let count = 0; count < 20 && refused === undefined; count += 1) {
      const upload = openUpload(rig.recorder);
      if (kind === 'a line') upload.write(`${HEADER}{"kind":"gap","reason":"${'x'.repeat(2 ** 20)}`);
      else upload.write(headerOf('x'.repeat(900_000)));
      uploads.push(upload);
      await upload.ack(({ ack, error }) => ack > 0 || error !== undefined);
      await rig.get('/healthz');
      refused = uploads.flatMap(({ acks }) => acks).find(({ error }) => error !== undefined)?.error;
    }
    expect(refused).toMatch(/too many long lines/);
    expect(uploads.length).toBeGreaterThan(3);
    const other = await request(rig.recorder, {
      path: '/record',
      method: 'POST',
      body: headerOf('x'.repeat(100_000)),
      localAddress: '127.0.0.2',
    });
    expect(other.status).toBe(200);
    for (const upload of uploads) upload.close();
    // After the uploads are closed, the recorder forgets their sessions, and the node may upload again.
    await expect
      .poll(async () => {
        const body = headerOf('x'.repeat(900_000));
        return (await request(rig.recorder, { path: '/record', method: 'POST', body })).status;
      })
      .toBe(200);
  });
});

describe('sessions with a long command', () => {
  /** A command in which a search for secrets takes long. */
  const COMMAND = 'password='.repeat(100_000);
  const SESSIONS = 5;
  let rig: Rig;
  const uploads: Upload[] = [];
  beforeAll(async () => {
    rig = await createRig();
    for (let count = 0; count < SESSIONS; count += 1) {
      const upload = openUpload(rig.recorder);
      upload.write(headerOf(COMMAND));
      await upload.ack(({ ack }) => ack > 0);
      uploads.push(upload);
    }
  });
  afterAll(async () => {
    for (const upload of uploads) upload.close();
    await rig[Symbol.asyncDispose]();
  });

  it('are searched for secrets once, and not for each request', async () => {
    await rig.list('?limit=1');
    const startMs = performance.now();
    for (let count = 0; count < 10; count += 1) await rig.list('?limit=1');
    // If the recorder searched all commands at each request, this would take more than 10 s on an idle machine.
    expect(performance.now() - startMs).toBeLessThan(5_000);
  });

  it('are listed with the start of the command', async () => {
    const upload = openUpload(rig.recorder);
    upload.write(headerOf('x '.repeat(50_000)));
    await upload.ack(({ ack }) => ack > 0);
    const [listed] = await rig.list();
    expect(listed?.command?.length).toBeLessThan(5_000);
    const { command } = JSON.parse((await rig.get(`/api/v1/recordings/${listed?.id}`)).body);
    expect(command.length).toBeGreaterThan(50_000);
    upload.close();
  });
});

it('idle sessions do not prevent rules from reading another session', { timeout: 600_000 }, async () => {
  /** Number of running sessions: more than the recorder reads at the same time. */
  const IDLE = 505;
  await using rig = await createRig({
    searchText: 'commands',
    alerts: {
      rules: [
        {
          name: 'aws-key',
          query: { clauses: [] },
          pattern: { in: 'output', source: 'AKIA[0-9A-Z]{16}' },
          action: 'end',
        },
      ],
      webhooks: new Map(),
      giveUpMs: 3_600_000,
    },
  });
  const index = async (): Promise<string> => (await rig.get('/api/v1/index')).body;
  await expect.poll(index).toContain('"ready"');
  const open = (name: string): Upload => {
    const upload = openUpload(rig.recorder, { 'tailcast-session': name, 'tailcast-orders': '1' });
    upload.write(`${HEADER}[1,"o","$ "]\n`);
    return upload;
  };
  const idle = Array.from({ length: IDLE }, (_, count) => open(`idle-${count}`));
  for (const upload of idle) await upload.ack(({ ack }) => ack > HEADER.length);
  await expect.poll(async () => JSON.parse(await index()).lagSeconds, { timeout: 500_000 }).toBe(0);
  const hostile = open('hostile');
  hostile.write('[2,"o","AKIAABCDEFGHIJKLMNOP\\r\\n"]\n');
  const { order } = await hostile.ack((ack) => ack.order !== undefined);
  expect(order).toMatchObject({ action: 'end', by: expect.stringContaining('aws-key') as unknown });
  // The recorder may have stopped reading an idle session in order to read others. New output makes the recorder read
  // the idle session again.
  idle[0]?.write('[2,"o","AKIAABCDEFGHIJKLMNOP\\r\\n"]\n');
  expect(await idle[0]?.ack((ack) => ack.order !== undefined)).toMatchObject({ order: { action: 'end' } });
  for (const upload of [...idle, hostile]) upload.close();
});
