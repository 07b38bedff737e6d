/**
 * An HTTP proxy that injects faults between a recorder and a real S3 server.
 *
 * Faults: `error`: 500 · `slowDown`: 503 · `expired`: 403, as with expired credentials · `afterwards`: the server
 * executes the request, and the client gets no response · `cutRequest`/`cutResponse`: the connection breaks during the
 * request or the response.
 */
import { createServer, request as httpRequest, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export const FAULTS = ['error', 'slowDown', 'expired', 'afterwards', 'cutRequest', 'cutResponse'] as const;
export type Fault = (typeof FAULTS)[number];

export interface S3Shim extends AsyncDisposable {
  readonly endpoint: string;
  /** Probability of a fault, per request. */
  rate: number;
  faults: readonly Fault[];
  /** Number of injected faults by kind. */
  readonly done: Map<Fault, number>;
}

export async function startShim(target: string, random: () => number): Promise<S3Shim> {
  const server = createServer((request, response) => {
    const fault = random() < shim.rate ? shim.faults[Math.floor(random() * shim.faults.length)] : undefined;
    if (fault !== undefined) shim.done.set(fault, (shim.done.get(fault) ?? 0) + 1);
    pass(target, request, response, fault);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const shim: S3Shim = {
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    rate: 0,
    faults: FAULTS,
    done: new Map(),
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return shim;
}

const REFUSALS = {
  error: [500, 'InternalError'],
  slowDown: [503, 'SlowDown'],
  expired: [403, 'ExpiredToken'],
} as const;

function pass(
  target: string,
  request: IncomingMessage,
  response: ServerResponse,
  fault: Fault | undefined,
): void {
  request.on('error', () => undefined);
  response.on('error', () => undefined);
  if (fault === 'cutRequest') {
    request.once('data', () => request.socket.destroy());
    request.once('end', () => request.socket.destroy());
    return;
  }
  if (fault === 'error' || fault === 'slowDown' || fault === 'expired') {
    const [status, code] = REFUSALS[fault];
    request.resume();
    request.once('end', () => {
      const body =
        '<?xml version="1.0" ' +
        `encoding="UTF-8"?><Error><Code>${code}</Code><Message>spoiled</Message></Error>`;
      response.writeHead(status, { 'content-type': 'application/xml', 'content-length': body.length });
      response.end(request.method === 'HEAD' ? undefined : body);
    });
    return;
  }
  const url = new URL(target);
  const upstream = httpRequest(
    {
      host: url.hostname,
      port: url.port,
      method: request.method,
      path: request.url,
      headers: request.headers,
    },
    (answer) => {
      answer.on('error', () => response.destroy());
      if (fault === 'afterwards') {
        // the request is executed, and the client gets no response
        answer.resume();
        return;
      }
      response.writeHead(answer.statusCode ?? 502, answer.rawHeaders);
      if (fault === 'cutResponse') {
        answer.resume();
        answer.once('end', () => response.destroy());
        response.flushHeaders();
        return;
      }
      answer.pipe(response);
    },
  );
  upstream.on('error', () => response.destroy());
  response.once('close', () => {
    if (fault !== 'afterwards') upstream.destroy();
  });
  request.pipe(upstream);
}
