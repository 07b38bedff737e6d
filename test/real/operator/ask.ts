/**
 * Sends requests from inside a pod's network, and prints the responses.
 *
 *   node ask.ts http <url> [<host> [<headers as JSON>]]
 *   node ask.ts tls <https|ws|grpc> <what: address, host, path, ca, headers as JSON>
 *   node ask.ts fetch <url> <bytes>
 *   node ask.ts body <url> <bytes>
 *   node ask.ts lines <url>
 *   node ask.ts ws <url> <messages>
 *   node ask.ts udp <address> <port> <text>
 *   node ask.ts dns <address of the nameserver> <A|AAAA> <name>
 */
import { createSocket } from 'node:dgram';
import { Resolver } from 'node:dns/promises';
import { once } from 'node:events';
import { get, request as open } from 'node:http';
import { connect } from 'node:http2';
import { get as getSecure } from 'node:https';
import type { TLSSocket } from 'node:tls';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { WebSocket } from 'ws';
import { bodyOf, digestOf, type Digest } from './body.ts';

const [how, target = '', port = '', text = ''] = process.argv.slice(2);
const LIMIT_MS = 4000;

interface Wish {
  readonly address: string;
  readonly host: string;
  readonly path: string;
  readonly ca: string;
  readonly headers: Readonly<Record<string, string>>;
}

const ASK_TLS: Readonly<Record<string, (wish: Wish) => Promise<unknown>>> = {
  async https({ address, host, path, ca, headers }) {
    const options = { host: address, servername: host, path, ca, agent: false, timeout: LIMIT_MS };
    const request = getSecure({ ...options, headers: { host, ...headers } });
    request.on('timeout', () => request.destroy(new Error(`no answer from ${address}`)));
    const [response] = (await once(request, 'response')) as [
      AsyncIterable<Buffer> & { readonly statusCode: number; readonly socket: TLSSocket },
    ];
    const { serialNumber } = response.socket.getPeerCertificate();
    const parts: Buffer[] = [];
    for await (const chunk of response) parts.push(chunk);
    const text = Buffer.concat(parts).toString();
    return { status: response.statusCode, serial: serialNumber, text };
  },
  async ws({ address, host, path, ca, headers }) {
    const tls = { servername: host, ca, handshakeTimeout: LIMIT_MS };
    const client = new WebSocket(`wss://${address}${path}`, { ...tls, headers: { host, ...headers } });
    await once(client, 'open');
    client.send('who?');
    const [data] = (await once(client, 'message')) as [Buffer];
    client.terminate();
    return { text: data.toString() };
  },
  async grpc({ address, host, path, ca, headers }) {
    const session = connect(`https://${address}`, { servername: host, ca });
    const stream = session.request({
      ':method': 'POST',
      ':path': path,
      ':authority': host,
      'content-type': 'application/grpc',
      te: 'trailers',
      ...headers,
    });
    stream.setTimeout(LIMIT_MS, () => stream.destroy(new Error(`no answer from ${address}`)));
    stream.end('question');
    const trailers = once(stream, 'trailers');
    const text = (await stream.setEncoding('utf8').toArray()).join('');
    const [said] = (await trailers) as [Readonly<Record<string, unknown>>];
    session.close();
    return { text, grpcStatus: said['grpc-status'] };
  },
};

type Answer = AsyncIterable<Buffer> & { readonly statusCode: number };

/**
 * Uploads a body and then downloads one. For each body, returns the digest of the received bytes and the expected
 * digest.
 */
async function exchangeBodies(url: string, bytes: number): Promise<Readonly<Record<string, Digest>>> {
  const upload = open(url, { method: 'POST', agent: false });
  const answered = once(upload, 'response') as Promise<[Answer]>;
  await pipeline(Readable.from(bodyOf(bytes)), upload);
  const [said] = await answered;
  const parts: Buffer[] = [];
  for await (const part of said) parts.push(part);
  const up = JSON.parse(Buffer.concat(parts).toString()) as Digest;
  const [response] = (await once(get(`${url}?body=${bytes}`, { agent: false }), 'response')) as [Answer];
  const down = await digestOf(response);
  return { up, down, expected: await digestOf(bodyOf(bytes)) };
}

/** Returns the arrival time of each line of a stream, in milliseconds after the first line. */
async function arrivals(url: string): Promise<readonly number[]> {
  const [response] = (await once(get(url, { agent: false }), 'response')) as [Answer];
  const times: number[] = [];
  for await (const chunk of response) {
    for (const _line of chunk.toString().matchAll(/\n/g)) times.push(performance.now());
  }
  return times.map((time) => Math.round(time - (times[0] ?? 0)));
}

async function converse(url: string, messages: number): Promise<readonly string[]> {
  const client = new WebSocket(url, { handshakeTimeout: LIMIT_MS });
  await once(client, 'open');
  const texts: string[] = [];
  for (let sent = 0; sent < messages; sent += 1) {
    client.send('who?');
    const [data] = (await once(client, 'message')) as [Buffer];
    texts.push(data.toString());
  }
  client.terminate();
  return texts;
}

if (how === 'http') {
  // The other arguments are the `Host` header and more headers as JSON.
  const headers = { ...(port === '' ? {} : { host: port }), ...(JSON.parse(text || '{}') as object) };
  const request = get(target, { timeout: LIMIT_MS, agent: false, headers });
  request.on('timeout', () => request.destroy(new Error(`no answer from ${target}`)));
  const [response] = (await once(request, 'response')) as [
    AsyncIterable<Buffer> & { readonly statusCode: number },
  ];
  // Prints the body of a response with status 200, which only pods send. Otherwise prints the status.
  if (response.statusCode !== 200) process.stdout.write(JSON.stringify({ status: response.statusCode }));
  else for await (const chunk of response) process.stdout.write(chunk);
} else if (how === 'tls') {
  const wish = JSON.parse(port) as Wish;
  process.stdout.write(JSON.stringify(await ASK_TLS[target]?.(wish)));
} else if (how === 'fetch') {
  const startedMs = performance.now();
  const request = get(target, { agent: false });
  const [response] = (await once(request, 'response')) as [AsyncIterable<Buffer>];
  let bytes = 0;
  for await (const chunk of response) bytes += chunk.length;
  if (bytes < Number(port)) throw new Error(`${bytes} of ${port} bytes came`);
  process.stdout.write(String(Math.round((bytes * 1000) / (performance.now() - startedMs))));
} else if (how === 'body') {
  process.stdout.write(JSON.stringify(await exchangeBodies(target, Number(port))));
} else if (how === 'lines') {
  process.stdout.write(JSON.stringify(await arrivals(target)));
} else if (how === 'ws') {
  process.stdout.write(JSON.stringify(await converse(target, Number(port))));
} else if (how === 'dns') {
  const resolver = new Resolver({ timeout: LIMIT_MS, tries: 1 });
  resolver.setServers([target]);
  const answer = await resolver.resolve(text, port).catch((error: NodeJS.ErrnoException) => error.code);
  process.stdout.write(JSON.stringify(answer));
} else {
  const socket = createSocket(target.includes(':') ? 'udp6' : 'udp4');
  const signal = AbortSignal.timeout(LIMIT_MS);
  socket.send(text, Number(port), target);
  const [message] = (await once(socket, 'message', { signal })) as [Buffer];
  process.stdout.write(message);
  socket.close();
}
