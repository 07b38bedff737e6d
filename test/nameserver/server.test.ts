import { Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import { createSocket } from 'node:dgram';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { encode, streamDecode, streamEncode } from 'dns-packet';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { answerQuery } from '../../src/nameserver/answer.ts';
import { openRecordsFile, type RecordsFile } from '../../src/nameserver/records-file.ts';
import { openNameServer } from '../../src/nameserver/server.ts';
import { createLogger } from '../../src/observe/logger.ts';

const MANY = Array.from({ length: 100 }, (_, n) => `10.0.1.${n}`);
const FILE = {
  version: 'v1alpha1',
  ip4: { 'db.lab.ts.net': ['10.0.0.1'], 'many.lab.ts.net': MANY },
  ip6: { 'db.lab.ts.net': ['fd00::1'] },
};
const log = createLogger({ level: 'silent' });

let folder: string;
let records: RecordsFile;
let server: Awaited<ReturnType<typeof openNameServer>>;
let resolver: Resolver;
let stop: AbortController;
let following: Promise<void>;
const closing: (() => Promise<void>)[] = [];

/** Replaces the file as a kubelet updates a ConfigMap: creates a new folder, and replaces the symlink. */
let generation = 0;
function publish(text: string): void {
  generation += 1;
  const data = join(folder, `..data_${generation}`);
  mkdirSync(data);
  writeFileSync(join(data, 'records.json'), text);
  symlinkSync(data, join(folder, `..next_${generation}`));
  renameSync(join(folder, `..next_${generation}`), join(folder, '..data'));
}

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tcnames-'));
  publish(JSON.stringify(FILE));
  symlinkSync('..data/records.json', join(folder, 'records.json'));
  records = await openRecordsFile({ path: join(folder, 'records.json'), log, checkEveryMs: 10 });
  stop = new AbortController();
  following = records.follow(stop.signal);
  server = await openNameServer({
    host: '127.0.0.1',
    port: 0,
    answer: (message, transport) => answerQuery(message, records.current, transport),
    idleMs: 500,
  });
  resolver = new Resolver({ timeout: 5000, tries: 1 });
  resolver.setServers([`127.0.0.1:${server.address.port}`]);
});
afterEach(async () => {
  stop.abort();
  await following;
  await server.close();
  for (const close of closing.splice(0)) await close();
});

async function dial(): Promise<Socket> {
  const socket = connect(server.address.port, '127.0.0.1');
  await once(socket, 'connect');
  return socket;
}
const query = (id: number, name: string): Buffer =>
  streamEncode({ type: 'query', id, questions: [{ name, type: 'A' }] });

describe('the nameserver', () => {
  it('answers a resolver over UDP, and over TCP where the answer is long', async () => {
    expect(await resolver.resolve4('db.lab.ts.net')).toEqual(['10.0.0.1']);
    expect(await resolver.resolve6('DB.Lab.TS.net')).toEqual(['fd00::1']);
    expect((await resolver.resolve4('many.lab.ts.net')).toSorted()).toEqual(MANY.toSorted());
    await expect(resolver.resolve4('nobody.lab.ts.net')).rejects.toMatchObject({ code: 'ENOTFOUND' });
    await expect(resolver.resolve6('many.lab.ts.net')).rejects.toMatchObject({ code: 'ENODATA' });
    await expect(resolver.resolve4('example.com')).rejects.toMatchObject({ code: 'EREFUSED' });
  });

  it('reads its file again when it is put in place, and keeps the last good one', async () => {
    publish(JSON.stringify({ version: 'v1alpha1', ip4: { 'db.lab.ts.net': ['10.0.0.9'] } }));
    await expect.poll(() => resolver.resolve4('db.lab.ts.net'), { timeout: 10_000 }).toEqual(['10.0.0.9']);
    await expect(resolver.resolve4('many.lab.ts.net')).rejects.toMatchObject({ code: 'ENOTFOUND' });
    publish('{"version":');
    publish(JSON.stringify({ version: 'v1alpha1', ip4: { 'db.lab.ts.net': ['not an address'] } }));
    expect(await resolver.resolve4('db.lab.ts.net')).toEqual(['10.0.0.9']);
    publish(JSON.stringify({ version: 'v1alpha1', ip4: { 'db.lab.ts.net': ['10.0.0.10'] } }));
    await expect.poll(() => resolver.resolve4('db.lab.ts.net'), { timeout: 10_000 }).toEqual(['10.0.0.10']);
  });

  it('answers several questions on one connection, in order, however they are cut', async () => {
    const socket = await dial();
    const bytes = Buffer.concat([
      query(1, 'db.lab.ts.net'),
      query(2, 'nobody.lab.ts.net'),
      query(3, 'many.lab.ts.net'),
    ]);
    for (const byte of bytes) socket.write(Buffer.of(byte));
    let held = Buffer.alloc(0);
    const seen: [number | undefined, number][] = [];
    for await (const chunk of socket as AsyncIterable<Buffer>) {
      held = Buffer.concat([held, chunk]);
      while (held.length >= 2 && held.length >= 2 + held.readUInt16BE(0)) {
        const length = 2 + held.readUInt16BE(0);
        const { id, answers = [] } = streamDecode(held.subarray(0, length));
        seen.push([id, answers.length]);
        held = held.subarray(length);
      }
      if (seen.length === 3) break;
    }
    expect(seen).toEqual([
      [1, 1],
      [2, 0],
      [3, 100],
    ]);
  });

  it.each<[string, Buffer]>([
    ['a length that no question has', Buffer.from([0xff, 0xff])],
    ['an answer', Buffer.concat([Buffer.from([0, 12]), encode({ type: 'response', id: 1 })])],
    ['nothing, for too long', Buffer.of(0)],
  ])('ends a connection with %s', async (_what, bytes) => {
    const socket = await dial();
    socket.resume();
    socket.write(bytes);
    await once(socket, 'close');
    expect(await resolver.resolve4('db.lab.ts.net')).toEqual(['10.0.0.1']);
  });

  it('closes the connection that has been open longest when there are too many', async () => {
    const patient = await openNameServer({
      host: '127.0.0.1',
      port: 0,
      answer: (message, transport) => answerQuery(message, records.current, transport),
      maxConnections: 8,
    });
    closing.push(() => patient.close());
    const dialPatient = async (localAddress = '127.0.0.1'): Promise<Socket> => {
      const socket = connect({ port: patient.address.port, host: '127.0.0.1', localAddress });
      await once(socket, 'connect');
      // sends only the first byte of a query, so that the server waits for the rest
      socket.write(Buffer.of(0));
      return socket;
    };
    const other = await dialPatient('127.0.0.2');
    const first = await dialPatient();
    const second = await dialPatient();
    const gone = once(first.resume(), 'close');
    const third = await dialPatient();
    await gone;
    for (const socket of [other, second, third]) {
      const answered = once(socket, 'data');
      socket.write(query(1, 'db.lab.ts.net').subarray(1));
      const [bytes] = (await answered) as [Buffer];
      expect(streamDecode(bytes).answers).toHaveLength(1);
      socket.destroy();
    }
  });

  it('is not kept from others by somebody who asks and does not read', async () => {
    const socket = await dial();
    socket.on('error', () => undefined);
    socket.pause();
    const many = Buffer.concat(Array.from({ length: 2000 }, (_, id) => query(id, 'many.lab.ts.net')));
    const closed = new Promise((done) => socket.once('close', done));
    for (let round = 0; round < 50 && !socket.destroyed; round += 1) socket.write(many);
    expect(await resolver.resolve4('db.lab.ts.net')).toEqual(['10.0.0.1']);
    socket.resume();
    await closed;
  });

  it('opens both of its sockets or none', async () => {
    const taken = createSocket('udp4');
    taken.bind(0, '127.0.0.1');
    await once(taken, 'listening');
    const { port }: AddressInfo = taken.address();
    closing.push(async () => void taken.close());
    const options = { host: '127.0.0.1', port, answer: () => undefined };
    await expect(openNameServer(options)).rejects.toMatchObject({ code: 'EADDRINUSE' });
    // the error is `bind` again, so the first attempt has released its other socket
    await expect(openNameServer(options)).rejects.toMatchObject({ syscall: 'bind' });
  });
});
