/**
 * HTTP client for OpenSearch with JSON requests and responses, timeouts and size limits. The client follows no
 * redirects. Errors contain only the error type of the server, because its messages may quote recorded text.
 */
import { Agent as HttpAgent, request as requestHttp, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as requestHttps, type RequestOptions } from 'node:https';
import { z } from 'zod';
import { withTimeout } from '../../../async/with-timeout.ts';
import { watchForStale } from '../../../stale-connections.ts';
import { jsonOrUndefined } from '../../../wire/json-value.ts';
import { readBounded } from '../../../async/read-bounded.ts';

export interface ServerAccess {
  readonly url: string;
  /** Trusted CA certificates in PEM. If set, no other CA is trusted. */
  readonly ca?: string;
  /** Value of the Authorization header. */
  readonly authorization?: string;
}

export interface ServerRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'HEAD';
  /** Path below the URL, encoded: `/index/_search?…`. */
  readonly path: string;
  /** Body, sent as JSON. A string is sent unchanged. */
  readonly body?: unknown;
  readonly timeoutMs?: number;
}

/** Connection to an OpenSearch server. */
export type SearchServer = ReturnType<typeof createSearchServer>;

/** Error response of the server. */
export class ServerError extends Error {
  override readonly name = 'ServerError';
  readonly status: number;
  /** Error types, including the types of the causes. */
  readonly kinds: readonly string[];

  constructor(status: number, kinds: readonly string[]) {
    super(`OpenSearch refused with status ${status}${kinds.length === 0 ? '' : ` (${kinds.join(', ')})`}`);
    this.status = status;
    this.kinds = kinds;
  }

  /** True if the server is overloaded and the request may be repeated later. */
  get isBusy(): boolean {
    return isBusyStatus(this.status);
  }
}

/** True if the status means that the server is overloaded. */
export function isBusyStatus(status: number): boolean {
  return status === 429 || status === 502 || status === 503 || status === 504;
}

const TIMEOUT_MS = 30_000;
/** Maximum number of keep-alive connections. */
const MAX_SOCKETS = 4;
const MAX_ANSWER = 64 * 1024 ** 2;

/** Creates a client. @param maxAnswer maximum size of a response, in bytes */
export function createSearchServer(access: ServerAccess, maxAnswer = MAX_ANSWER) {
  const url = new URL(access.url);
  const isTls = url.protocol === 'https:';
  const kept = { keepAlive: true, maxSockets: MAX_SOCKETS, ...(isTls ? { ca: access.ca } : {}) };
  const agent = isTls ? new HttpsAgent(kept) : new HttpAgent(kept);
  const base = url.pathname.replace(/\/$/, '');

  async function send(asked: ServerRequest, stop: AbortSignal): Promise<Answered> {
    const isLines = typeof asked.body === 'string';
    const body = asked.body === undefined ? undefined : Buffer.from(textOf(asked.body));
    const options: RequestOptions = {
      method: asked.method,
      path: `${base}${asked.path}`,
      host: url.hostname.replace(/^\[|\]$/g, ''),
      port: url.port === '' ? (isTls ? 443 : 80) : url.port,
      agent,
      signal: stop,
      headers: {
        accept: 'application/json',
        'user-agent': 'tailcast',
        ...(access.authorization === undefined ? {} : { authorization: access.authorization }),
        ...(body === undefined
          ? {}
          : {
              'content-type': isLines ? 'application/x-ndjson' : 'application/json',
              'content-length': String(body.length),
            }),
      },
    };
    const answered = Promise.withResolvers<IncomingMessage>();
    const sent = isTls ? requestHttps(options) : requestHttp(options);
    const isStale = watchForStale(sent);
    sent.once('response', answered.resolve);
    sent.on('error', (error) => answered.reject(isStale(error) ? new StaleConnectionError() : error));
    sent.end(body);
    const response = await answered.promise;
    return { status: response.statusCode ?? 0, text: await readText(response, maxAnswer) };
  }

  return {
    /**
     * Sends a request.
     * @returns the body of a successful response; undefined if it is empty
     * @throws ServerError if the server refuses the request; Error with a sentence if there is no valid response in
     * time
     */
    ask: (asked: ServerRequest): Promise<unknown> =>
      withTimeout(asked.timeoutMs ?? TIMEOUT_MS, 'OpenSearch', undefined, async (stop) => {
        const { status, text } = await send(asked, stop).catch((error: unknown) => {
          // The server may have closed a keep-alive connection. All requests are safe to repeat.
          if (error instanceof StaleConnectionError) return send(asked, stop);
          throw error;
        });
        const answer = jsonOrUndefined(text);
        if (status < 200 || status > 299) throw new ServerError(status, kindsOf(answer));
        if (answer === undefined && text !== '') throw new Error('OpenSearch answered what is no JSON');
        return answer;
      }),
    /** Closes idle connections. */
    close: (): void => agent.destroy(),
  };
}

interface Answered {
  readonly status: number;
  readonly text: string;
}

class StaleConnectionError extends Error {
  override readonly name = 'StaleConnectionError';
}

function textOf(body: unknown): string {
  return typeof body === 'string' ? body : JSON.stringify(body);
}

async function readText(response: IncomingMessage, maxAnswer: number): Promise<string> {
  const tooLong = (): Error => new Error(`OpenSearch answered more than ${maxAnswer} bytes`);
  return (await readBounded(response, maxAnswer, tooLong)).toString();
}

const MAX_KINDS = 4;
const CAUSE = z.object({
  type: z.string().regex(/^[a-z][a-z0-9_]{0,63}$/),
  caused_by: z.unknown().optional(),
});
const REFUSAL = z.object({
  error: z.looseObject({ root_cause: z.array(z.unknown()).optional() }),
});

/** Returns the error types of a response, without its messages. */
function kindsOf(answer: unknown): readonly string[] {
  const refusal = REFUSAL.safeParse(answer).data;
  const kinds = new Set<string>();
  const waiting: unknown[] =
    refusal === undefined ? [] : [refusal.error, ...(refusal.error.root_cause ?? [])];
  while (waiting.length > 0 && kinds.size < MAX_KINDS) {
    const cause = CAUSE.safeParse(waiting.shift()).data;
    if (cause === undefined) continue;
    kinds.add(cause.type);
    if (cause.caused_by !== undefined) waiting.push(cause.caused_by);
  }
  return [...kinds];
}
