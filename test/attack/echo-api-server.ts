/**
 * An API server that stores the raw bytes of each request. The server responds to a plain request with the bytes of the
 * request line and the headers. The server has its own small HTTP/1.1 parser and shares no code with the gateway.
 */
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { createServer, type TLSSocket } from 'node:tls';
import { listenOn } from '../support/listen.ts';

export interface EchoedRequest {
  /** Bytes from the request line to the empty line, as latin1. */
  readonly head: string;
  readonly requestLine: string;
  /** Headers in their order and spelling on the wire. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: string;
  /** Bytes that the server has received after the upgrade. */
  readonly tunnelled: () => Buffer;
  readonly socket: TLSSocket;
}

/**
 * Returns a response to send instead of the echo, or undefined for the echo. If the script returns a function, this
 * function takes over the connection.
 */
export type AnswerScript = (request: EchoedRequest) => string | ((socket: TLSSocket) => void) | undefined;

export interface EchoApiServer {
  readonly port: number;
  readonly requests: EchoedRequest[];
  /** Received bytes of all connections, including invalid HTTP. */
  readonly receivedBytes: number;
  script: AnswerScript | undefined;
  close(): Promise<void>;
}

export async function startEchoApiServer(pair: {
  readonly key: string;
  readonly cert: string;
}): Promise<EchoApiServer> {
  const sockets = new Set<TLSSocket>();
  const requests: EchoedRequest[] = [];
  let receivedBytes = 0;
  const double: EchoApiServer = {
    get port() {
      return (server.address() as AddressInfo).port;
    },
    requests,
    get receivedBytes() {
      return receivedBytes;
    },
    script: undefined,
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
  const server = createServer({ ...pair, noDelay: true }, (socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    socket.on('error', () => {});
    let buffered = Buffer.alloc(0);
    let tunnel: Buffer[] | undefined;
    socket.on('data', (chunk: Buffer) => {
      receivedBytes += chunk.length;
      if (tunnel !== undefined) return void tunnel.push(chunk);
      buffered = Buffer.concat([buffered, chunk]);
      for (;;) {
        const whole = takeRequest(buffered);
        if (whole === undefined) return;
        buffered = buffered.subarray(whole.length);
        const early: Buffer[] = [];
        const request: EchoedRequest = {
          ...whole.request,
          tunnelled: () => Buffer.concat(early),
          socket,
        };
        requests.push(request);
        const upgrade = valueOf(request, 'upgrade');
        const scripted = double.script?.(request);
        if (typeof scripted === 'function') {
          scripted(socket);
          continue;
        }
        const answer = scripted ?? (upgrade === undefined ? echo(request) : switching(request, upgrade));
        socket.write(answer, 'latin1');
        if (answer.startsWith('HTTP/1.1 101')) {
          tunnel = early;
          if (buffered.length > 0) early.push(buffered);
          return;
        }
      }
    });
  });
  await listenOn(server);
  return double;
}

/** The values of a header, by lower-case name. */
export function valuesOf({ headers }: Pick<EchoedRequest, 'headers'>, name: string): string[] {
  return headers.filter(([key]) => key.toLowerCase() === name).map(([, value]) => value);
}

function valueOf(request: EchoedRequest, name: string): string | undefined {
  return valuesOf(request, name)[0];
}

function echo(request: EchoedRequest): string {
  const head = request.requestLine.startsWith('HEAD ') ? '' : request.head;
  return `HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: ${request.head.length}\r\n\r\n${head}`;
}

function switching(request: EchoedRequest, upgrade: string): string {
  const websocket = upgrade.toLowerCase() === 'websocket';
  const name = websocket ? 'Sec-WebSocket-Protocol' : 'X-Stream-Protocol-Version';
  const offered = valuesOf(request, name.toLowerCase()).flatMap((line) => line.split(','));
  const chosen = offered.map((name) => name.trim()).find((name) => !name.startsWith('base64url.bearer.'));
  const line = chosen === undefined || chosen === '' ? '' : `${name}: ${chosen}\r\n`;
  return `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${upgrade}\r\n${line}\r\n`;
}

function takeRequest(
  bytes: Buffer,
): { readonly length: number; readonly request: Omit<EchoedRequest, 'tunnelled' | 'socket'> } | undefined {
  const end = bytes.indexOf('\r\n\r\n');
  if (end === -1) return undefined;
  const head = bytes.toString('latin1', 0, end + 4);
  const [requestLine = '', ...lines] = head.slice(0, -4).split('\r\n');
  const headers = lines.map((line) => {
    const colon = line.indexOf(': ');
    return [line.slice(0, colon), line.slice(colon + 2)] as const;
  });
  const known = { head, requestLine, headers };
  const start = end + 4;
  const length = valuesOf(known, 'content-length')[0];
  if (length !== undefined) {
    const stop = start + Number(length);
    if (bytes.length < stop) return undefined;
    return { length: stop, request: { ...known, body: bytes.toString('latin1', start, stop) } };
  }
  if (valuesOf(known, 'transfer-encoding').length === 0)
    return { length: start, request: { ...known, body: '' } };
  const last = bytes.indexOf('0\r\n\r\n', start);
  if (last === -1) return undefined;
  return { length: last + 5, request: { ...known, body: bytes.toString('latin1', start, last) } };
}
