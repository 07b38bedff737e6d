/** Requests of the gateway and the operator to an API server, outside of the proxy. */
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest, type Agent } from 'node:https';
import type { ApiServer } from './api-server.ts';

const RESPONSE_TIMEOUT_MS = 30_000;

export interface KubeRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: readonly string[];
  readonly body?: string | undefined;
  /** Pool of connections. Default: a new connection for each request. */
  readonly agent?: Agent;
  readonly signal: AbortSignal;
}

/** Sends a request. Call `authorization()` of the API server first, because it reloads certificates. */
export async function sendRequest(server: ApiServer, request: KubeRequest): Promise<IncomingMessage> {
  const { method, path, headers, body, agent = false, signal } = request;
  const tunnel = await server.open?.(signal);
  const options = {
    method,
    host: server.host,
    port: server.port,
    path: `${server.basePath}${path}`,
    headers,
    signal,
    ...(server.lookup === undefined ? {} : { lookup: server.lookup }),
  };
  const connection = tunnel === undefined ? { agent } : { agent: false, socket: tunnel };
  return new Promise((resolve, reject) => {
    const sent =
      server.plain === true
        ? httpRequest(options)
        : httpsRequest({ ...options, ...server.tls, servername: server.serverName, ...connection });
    sent.setTimeout(RESPONSE_TIMEOUT_MS, () =>
      sent.destroy(new Error(`${method} ${path}: no response within ${RESPONSE_TIMEOUT_MS} ms`)),
    );
    sent.on('error', reject);
    sent.once('response', (response) => {
      sent.setTimeout(0);
      resolve(response);
    });
    sent.end(body);
  });
}
