/** Clients that use Node.js and report all received data, even if the response is incomplete. */
import { once } from 'node:events';
import { request, type IncomingMessage, type RequestOptions } from 'node:http';
import { connect as connectHttp2, type ClientSessionOptions } from 'node:http2';
import type { Socket } from 'node:net';

/** A response as its client received it. */
export interface Seen {
  /** 0 if the connection ended before the response. */
  readonly status: number;
  readonly body: string;
  /** True if the response is complete. */
  readonly whole: boolean;
  readonly fields: readonly string[];
  readonly trailers: readonly string[];
}

/**
 * Expected result: the status if the response is delivered; `refused`: the client gets 502; `cut`: the client gets an
 * incomplete response and an error.
 */
export type Verdict = number | 'refused' | 'cut';

const NOTHING: Seen = { status: 0, body: '', whole: false, fields: [], trailers: [] };

/** Sends a request on the connection, and closes the connection after the response. */
export async function askHttp1(
  socket: Socket,
  headers: readonly string[],
  { method = 'GET', path = '/' }: Pick<RequestOptions, 'method' | 'path'> = {},
): Promise<Seen> {
  const asking = request({
    method,
    path,
    createConnection: () => socket,
    maxHeaderSize: 1024 * 1024,
    headers: headers as never,
  });
  asking.end();
  try {
    const [response, opened] = (await Promise.race([
      once(asking, 'response'),
      once(asking, 'upgrade'),
      once(asking, 'error').then(([error]) => Promise.reject(error as Error)),
    ]).catch(() => [])) as [IncomingMessage?, Socket?];
    if (response === undefined) return NOTHING;
    const { statusCode: status = 0, rawHeaders: fields } = response;
    if (opened !== undefined) return { ...NOTHING, status, whole: true, fields };
    asking.on('error', () => {});
    let body = '';
    response.on('data', (chunk: Buffer) => (body += chunk.toString('latin1')));
    response.on('error', () => {});
    await new Promise((resolve) => response.once('close', resolve));
    return { status, body, whole: response.complete, fields, trailers: response.rawTrailers };
  } finally {
    socket.destroy();
  }
}

/** Sends a request over HTTP/2 on the connection, and closes the connection after the response. */
export async function askHttp2(
  socket: Socket,
  {
    method = 'GET',
    path = '/',
    scheme,
    host,
  }: Readonly<Record<'scheme' | 'host', string>> & {
    readonly method?: string;
    readonly path?: string;
  },
): Promise<Seen> {
  const options: ClientSessionOptions = {
    createConnection: () => socket,
    settings: { maxHeaderListSize: 1024 * 1024 },
    maxHeaderListPairs: 1000,
  };
  const session = connectHttp2(`${scheme}://${host}`, options);
  session.on('error', () => {});
  const head = { ':method': method, ':path': path, ':scheme': scheme, ':authority': host };
  const stream = session.request(head, { endStream: true });
  let seen = NOTHING;
  stream.on('error', () => {});
  stream.on('response', (headers, _flags, raw: string[]) => {
    seen = { ...seen, status: Number(headers[':status']), fields: raw.slice(2) };
  });
  stream.on('trailers', (_headers, _flags, raw: string[]) => {
    seen = { ...seen, trailers: raw };
  });
  let body = '';
  stream.on('data', (chunk: Buffer) => (body += chunk.toString('latin1')));
  await new Promise((resolve) => stream.once('close', resolve));
  session.destroy();
  return { ...seen, body, whole: stream.rstCode === 0 };
}
