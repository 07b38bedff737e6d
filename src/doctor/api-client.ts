/**
 * Simple client for the API server. Each request uses a new connection. The size of the response is limited, and the
 * signal limits the time.
 */
import { request } from 'node:https';
import type { IncomingMessage } from 'node:http';
import { jsonOrUndefined } from '../wire/json-value.ts';
import { buildUpstreamHeaders } from '../impersonation/apply.ts';
import type { ImpersonationTarget } from '../impersonation/target.ts';
import type { ApiServer } from '../kube/api-server.ts';
import { readBounded } from '../async/read-bounded.ts';

export interface ApiAnswer {
  readonly status: number;
  /** Parsed body; undefined if it is not valid JSON. */
  readonly body: unknown;
  /** Response headers as a flat list, unchanged. */
  readonly headers: readonly string[];
  /** `Date` of the response, in milliseconds since 1970. */
  readonly dateMs: number | undefined;
  /** Local times at which the request was sent and the response headers arrived. */
  readonly askedAtMs: number;
  readonly answeredAtMs: number;
}

export interface ApiClient {
  get(path: string, signal: AbortSignal): Promise<ApiAnswer>;
  /** @param as identity that the request impersonates; default: none */
  post(path: string, body: unknown, signal: AbortSignal, as?: ImpersonationTarget): Promise<ApiAnswer>;
}

const MAX_ANSWER_BYTES = 4 * 1024 * 1024;

/** Error for a response above the maximum size. */
export class AnswerTooLargeError extends Error {
  override readonly name = 'AnswerTooLargeError';
}

/**
 * Creates a client. `unixMs` returns the local time, for comparisons with the header `Date`.
 * @param prefix prefix of every path, for example the path of a kcp workspace
 */
export function createApiClient(server: ApiServer, unixMs: () => number, prefix = ''): ApiClient {
  const ask = async (
    method: 'GET' | 'POST',
    path: string,
    body: unknown,
    signal: AbortSignal,
    as?: ImpersonationTarget,
  ): Promise<ApiAnswer> => {
    const authorization = await server.authorization();
    const content = body === undefined ? undefined : Buffer.from(JSON.stringify(body));
    const tunnel = await server.open?.(signal);
    const askedAtMs = unixMs();
    const response = await new Promise<IncomingMessage>((resolve, reject) => {
      const outgoing = request(
        {
          method,
          host: server.host,
          port: server.port,
          servername: server.serverName,
          path: server.basePath + prefix + path,
          ...server.tls,
          ...(server.lookup === undefined ? {} : { lookup: server.lookup }),
          agent: false,
          ...(tunnel === undefined ? {} : { socket: tunnel }),
          signal,
          headers: [
            ...headersFor(server, authorization, as),
            ...(content === undefined
              ? []
              : ['Content-Type', 'application/json', 'Content-Length', String(content.length)]),
          ],
        },
        resolve,
      );
      outgoing.once('error', reject);
      outgoing.end(content);
    });
    const answeredAtMs = unixMs();
    const text = await readBounded(
      response,
      MAX_ANSWER_BYTES,
      () => new AnswerTooLargeError('the API server’s answer is too large'),
    );
    const dateMs = Date.parse(response.headers.date ?? '');
    return {
      status: response.statusCode ?? 0,
      headers: response.rawHeaders,
      body: jsonOrUndefined(text.toString()),
      dateMs: Number.isNaN(dateMs) ? undefined : dateMs,
      askedAtMs,
      answeredAtMs,
    };
  };
  return {
    get: (path, signal) => ask('GET', path, undefined, signal),
    post: (path, body, signal, as) => ask('POST', path, body, signal, as),
  };
}

function headersFor(
  { hostHeader: host, requestHeader }: ApiServer,
  authorization: string | undefined,
  as: ImpersonationTarget | undefined,
): readonly string[] {
  const own = ['Accept', 'application/json', 'User-Agent', 'tailcast'];
  if (as !== undefined) {
    const identity =
      requestHeader === true
        ? ({ mode: 'requestHeader', target: as, passImpersonation: false } as const)
        : ({ mode: 'auth', target: as, authorization } as const);
    return buildUpstreamHeaders({ rawHeaders: own, host, identity });
  }
  return ['Host', host, ...own, ...(authorization === undefined ? [] : ['Authorization', authorization])];
}
