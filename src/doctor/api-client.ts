/**
 * Simple client for the API server. Each request uses a new connection. Responses have a maximum size. The abort signal
 * of the caller limits the time.
 */
import { jsonOrUndefined } from '../wire/json-value.ts';
import { buildUpstreamHeaders } from '../impersonation/apply.ts';
import type { ImpersonationTarget } from '../impersonation/target.ts';
import { sendRequest } from '../kube/api-request.ts';
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

export type ApiClient = ReturnType<typeof createApiClient>;

const MAX_ANSWER_BYTES = 4 * 1024 * 1024;

/** Error for a response that exceeds the maximum size. */
export class AnswerTooLargeError extends Error {
  override readonly name = 'AnswerTooLargeError';
}

/**
 * Creates a client. `unixMs` returns the local time, for comparisons with the header `Date`.
 * @param prefix prefix of every path, for example the path of a kcp workspace
 */
export function createApiClient(server: ApiServer, unixMs: () => number, prefix = '') {
  const ask = async (
    method: 'GET' | 'POST',
    path: string,
    body: unknown,
    signal: AbortSignal,
    as?: ImpersonationTarget,
  ): Promise<ApiAnswer> => {
    const authorization = await server.authorization();
    const content = body === undefined ? undefined : JSON.stringify(body);
    const askedAtMs = unixMs();
    const response = await sendRequest(server, {
      method,
      path: prefix + path,
      headers: [...headersFor(server, authorization, as), ...contentHeaders(content)],
      body: content,
      signal,
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
    get: (path: string, signal: AbortSignal): Promise<ApiAnswer> => ask('GET', path, undefined, signal),
    /** @param as identity that the request impersonates; default: none */
    post: (path: string, body: unknown, signal: AbortSignal, as?: ImpersonationTarget): Promise<ApiAnswer> =>
      ask('POST', path, body, signal, as),
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

function contentHeaders(content: string | undefined): readonly string[] {
  if (content === undefined) return [];
  return ['Content-Type', 'application/json', 'Content-Length', String(Buffer.byteLength(content))];
}
