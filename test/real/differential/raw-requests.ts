/**
 * Sends request lines byte for byte to a TLS server, over a few keep-alive connections. Node's client would reject or
 * repair invalid lines.
 */
import { once } from 'node:events';
import { connect, type TLSSocket } from 'node:tls';

export interface RawServer {
  readonly host: string;
  readonly port: number;
  readonly ca: string;
}

export interface RawRequest {
  readonly method: string;
  /** Each character stands for one byte. */
  readonly target: string;
  /** Flat list of names and values, including `Host`. Each character stands for one byte. */
  readonly headers: readonly string[];
  readonly body?: string;
}

export interface RawResponse {
  /** Status; 0 if the server closed the connection without a response. */
  readonly status: number;
  /** The part of the body that was read. */
  readonly body: string;
  /** True if the response was endless, as for a watch, and the client stopped reading. */
  readonly endless: boolean;
}

/** Time after which an unfinished response counts as endless. */
const ENDLESS_AFTER_MS = 250;
const SILENT_AFTER_MS = 10_000;

/** Returns all responses in the order of the requests. */
export async function sendRaw(
  server: RawServer,
  requests: readonly RawRequest[],
  connections: number,
): Promise<readonly RawResponse[]> {
  const responses: RawResponse[] = [];
  let next = 0;
  async function work(): Promise<void> {
    let socket: TLSSocket | undefined;
    while (next < requests.length) {
      const index = next++;
      if (socket === undefined || socket.destroyed) socket = await open(server);
      const { response, reusable } = await exchange(socket, requests[index]!);
      responses[index] = response;
      if (!reusable) socket.destroy();
    }
    socket?.destroy();
  }
  await Promise.all(Array.from({ length: connections }, work));
  return responses;
}

async function open({ host, port, ca }: RawServer): Promise<TLSSocket> {
  const socket = connect({ host, port, ca, ALPNProtocols: ['http/1.1'] });
  await once(socket, 'secureConnect');
  socket.setNoDelay(true);
  // An error needs no handling here, because the `close` event follows.
  socket.on('error', () => undefined);
  return socket;
}

interface Exchange {
  readonly response: RawResponse;
  readonly reusable: boolean;
}

function exchange(socket: TLSSocket, request: RawRequest): Promise<Exchange> {
  return new Promise((done) => {
    let received: Buffer = Buffer.alloc(0);
    const timer = setTimeout(() => finish(read(received, request.method, true), false), SILENT_AFTER_MS);

    function finish(answer: Answer, reusable: boolean): void {
      clearTimeout(timer);
      socket.off('data', onData);
      socket.off('close', onClose);
      const { status, body, ended, closes } = answer;
      done({ response: { status, body, endless: !ended }, reusable: reusable && ended && !closes });
    }
    function onData(chunk: Buffer | string): void {
      const begun = received.length > 0;
      received = Buffer.concat([received, Buffer.from(chunk)]);
      const answer = read(received, request.method, false);
      if (answer.ended) finish(answer, true);
      else if (!begun) setTimeout(onStillOpen, ENDLESS_AFTER_MS).unref();
    }
    function onStillOpen(): void {
      if (socket.listeners('data').includes(onData)) finish(read(received, request.method, false), false);
    }
    function onClose(): void {
      finish(read(received, request.method, true), false);
    }
    socket.on('data', onData);
    socket.on('close', onClose);
    socket.write(serialise(request), 'latin1');
  });
}

function serialise({ method, target, headers, body }: RawRequest): string {
  let text = `${method} ${target} HTTP/1.1\r\n`;
  for (let index = 0; index < headers.length; index += 2)
    text += `${headers[index]}: ${headers[index + 1]}\r\n`;
  if (body !== undefined) text += `Content-Length: ${Buffer.byteLength(body)}\r\n`;
  return `${text}\r\n${body === undefined ? '' : Buffer.from(body).toString('latin1')}`;
}

interface Answer {
  readonly status: number;
  readonly body: string;
  readonly ended: boolean;
  readonly closes: boolean;
}

/** Parses the response as far as it has arrived. The parser relies on correct framing by the server. */
function read(bytes: Buffer, method: string, closed: boolean): Answer {
  const text = bytes.toString('latin1');
  const headEnd = text.indexOf('\r\n\r\n');
  if (headEnd === -1) return { status: 0, body: '', ended: closed, closes: true };
  const head = text.slice(0, headEnd).toLowerCase();
  const rest = text.slice(headEnd + 4);
  const status = Number(text.slice(9, 12));
  const closes = /\r\nconnection:[^\r]*close/.test(head) || head.startsWith('http/1.0');
  const length = /\r\ncontent-length: *(\d+)/.exec(head)?.[1];
  const chunked = /\r\ntransfer-encoding: *chunked/.test(head);
  let ended = closed;
  if (method === 'HEAD' || status === 204 || status === 304) ended = true;
  else if (length !== undefined) ended ||= rest.length >= Number(length);
  else if (chunked) ended ||= rest === '0\r\n\r\n' || rest.endsWith('\r\n0\r\n\r\n');
  return { status, body: Buffer.from(rest, 'latin1').toString(), ended, closes };
}
