/**
 * What an API server may answer a watch with that shares its connection: frames written by hand, over HTTP/1.1 and HTTP/2 to the client. The answer
 * ends that watch, or is delivered. A neighbour on the same connection goes on, unless the connection itself is broken; a watch
 * on another connection goes on whatever comes; the next watch of the same user gets its own answer.
 */
import { createServer, type TLSSocket } from 'node:tls';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Identity } from '../../src/tailnet/identity.ts';
import { createClient, openRig, person, rawClient, type Client, type Rig } from '../proxy/rig.ts';
import { FLAG, FRAME, PREFACE, readFrames } from './raw-http2.ts';
import {
  answer,
  data,
  EMPTY,
  goaway,
  head,
  OK,
  setting,
  SHAPES,
  times,
  withFields,
  type Script,
  type Verdict,
} from './shared-shapes.ts';

const WATCH = '/api/v1/pods?watch=true';
/** Two of a connection: a neighbour, and whoever is attacked. */
const STREAMS = 2;
interface Asked {
  readonly socket: TLSSocket;
  readonly id: number;
}

let rig: Rig;
let asked: Asked[];
let script: ((id: number) => Script) | undefined;
/** Behind the first settings. */
let greeting: Buffer = EMPTY;
const sockets = new Set<TLSSocket>();
const clients: Client[] = [];
const server = { port: 0, close: (): void => {} };

beforeAll(async () => {
  // the rig of a test has one authority for all
  const probe = await openRig({ upstream: () => {} });
  await probe.close();
  const { key, cert } = probe.pki;
  const tls = createServer({ key, cert, ALPNProtocols: ['h2'], noDelay: true }, serve);
  tls.listen(0, '127.0.0.1');
  await once(tls, 'listening');
  server.port = (tls.address() as AddressInfo).port;
  server.close = () => tls.close();
});
afterAll(() => server.close());

beforeEach(async () => {
  asked = [];
  script = undefined;
  rig = await openRig({
    upstream: () => {},
    upstreamPort: server.port,
    shareAfter: 0,
    identities: {
      whois: async ({ port }) =>
        ({ ...person(), nodeId: `n${port}`, login: `user${port}@example.com` }) as Identity,
    },
  });
  return async () => {
    for (const client of clients.splice(0)) client.close();
    await rig.close();
    for (const socket of sockets) socket.destroy();
  };
});

function serve(socket: TLSSocket): void {
  sockets.add(socket);
  socket.once('close', () => sockets.delete(socket));
  socket.on('error', () => {});
  // the first word of a client, which no frame has the form of
  socket.once('data', (first: Buffer) => {
    socket.pause();
    socket.unshift(first.subarray(PREFACE.length));
    readFrames(socket, ({ type, streamId: id }) => {
      if (type !== FRAME.headers) return;
      asked.push({ socket, id });
      const said = script === undefined ? head(id, [OK]) : script(id);
      if (typeof said === 'function') said(id, socket);
      else socket.write(said);
    });
    socket.resume();
    socket.write(Buffer.concat([setting(3, STREAMS), greeting]));
  });
}

interface Watch {
  readonly says: Asked;
  readonly heard: () => string;
  readonly isCut: () => boolean;
}

/** A watch of somebody else. */
async function watch(): Promise<Watch> {
  const client = createClient('h1', rig);
  clients.push(client);
  const { status, body } = await client.open({ path: WATCH });
  expect(status).toBe(200);
  let text = '';
  let cut = false;
  body.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  body.on('error', () => (cut = true));
  return { says: asked.at(-1)!, heard: () => text, isCut: () => cut };
}

async function expectUndisturbed({ says: { socket, id }, heard }: Watch): Promise<void> {
  socket.write(data(id, 'event\n'));
  await expect.poll(heard, { interval: 2 }).toBe('event\n');
}

interface Seen {
  readonly status: number;
  readonly body: string;
  readonly whole: boolean;
  readonly fields: readonly string[];
}

async function ask(client: Client): Promise<Seen> {
  const { status, rawHeaders: fields, body, rest } = await client.open({ path: WATCH });
  let text = '';
  body.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  const whole = await rest().then(
    () => true,
    () => false,
  );
  return { status, fields, body: text, whole };
}

function expectVerdict({ status, body, whole }: Seen, verdict: Verdict): void {
  if (verdict === 'refused') {
    expect({ status, whole }).toEqual({ status: 502, whole: true });
    expect(JSON.parse(body)).toMatchObject({ kind: 'Status', code: 502 });
  } else if (verdict === 'cut') {
    expect(whole).toBe(false);
  } else
    expect({ status, body, whole }).toEqual({
      status: verdict,
      body: verdict === 200 ? 'body' : '',
      whole: true,
    });
}

describe.each(['h1', 'h2'] as const)('an API server that answers a shared watch over %s with', (protocol) => {
  it.each(SHAPES)('$what', async ({ answer: shape, verdict, overHttp1 = verdict, breaks }) => {
    const client = createClient(protocol, rig);
    clients.push(client);
    const [elsewhere] = [await watch(), await watch()];
    const neighbour = await watch();
    expect(sockets.size).toBe(2);
    script = shape;
    const seen = await ask(client);
    script = undefined;
    expectVerdict(seen, protocol === 'h1' ? overHttp1 : verdict);
    const names = seen.fields.filter((_, index) => index % 2 === 0);
    expect(names.join().toLowerCase()).not.toMatch(/evil|upgrade|http2|keep|cookie|proxy|x-b,|[^-,a-z0-9]/);
    expect(seen.fields.join()).not.toMatch(/[\r\n\0]/);
    expect(seen.body).not.toContain('HTTP/1.1');
    await expectUndisturbed(elsewhere);
    if (breaks === true) await expect.poll(neighbour.isCut).toBe(true);
    else await expectUndisturbed(neighbour);
    script = (id) => answer(id, [], data(id, 'next', FLAG.endStream));
    expect(await ask(client)).toMatchObject({ status: 200, body: 'next', whole: true });
  });
});

describe('an API server on a connection that is to be shared', () => {
  it.each([
    ['a farewell', goaway(0, 0)],
    ['a farewell with a fault', goaway(0, 2)],
    ['words of another protocol', Buffer.from('HTTP/1.1 400 Bad Request\r\n\r\n')],
  ])('is not there where it says %s with its settings', async (_what, more) => {
    greeting = more;
    const client = createClient('h1', rig);
    clients.push(client);
    expect(await ask(client)).toMatchObject({ status: 502, whole: true });
    greeting = EMPTY;
    script = withFields();
    expect(await ask(client)).toMatchObject({ status: 200, body: 'body' });
  });

  it('cannot fill the memory with hints for a client that does not read', async () => {
    const slow = await rawClient(rig);
    slow.socket.pause();
    const closed = once(slow.socket, 'close');
    script = (id) =>
      times(
        20,
        head(id, [
          [':status', '103'],
          ['x-a', 'b'.repeat(30_000)],
        ]),
      );
    slow.socket.write(`GET ${WATCH} HTTP/1.1\r\nHost: a\r\n\r\n`);
    await expect.poll(() => rig.access.map(({ error }) => error)).toEqual(['UPSTREAM_BROKEN']);
    slow.socket.resume();
    slow.socket.end();
    await closed;
    expect(slow.received().match(/^HTTP\/1\.1 103 /gm)).toHaveLength(16);
    expect(slow.received()).toMatch(/^HTTP\/1\.1 502 /m);
  });
});
