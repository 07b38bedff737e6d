/**
 * Asks an OpenSearch: JSON there, JSON back, each within a time and a size. Follows no redirect, and says of an error its kind alone:
 * what the server says beside it may quote what was on a screen.
 */
import { Agent as HttpAgent, request as requestHttp, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as requestHttps, type RequestOptions } from 'node:https';
import { z } from 'zod';
import { within } from '../../../async/within.ts';
import { watchForLeft } from '../../../kept-connections.ts';
import { jsonOrUndefined } from '../../../wire/json-value.ts';

export interface ServerAccess {
  readonly url: string;
  /** PEM of authorities beside which no other is trusted. */
  readonly ca?: string;
  /** The header field. */
  readonly authorization?: string;
}

export interface ServerRequest {
  readonly method: 'GET' | 'POST' | 'PUT' | 'HEAD';
  /** Below the URL, encoded: `/index/_search?…`. */
  readonly path: string;
  /** Becomes JSON; a text is sent as the lines that it is. */
  readonly body?: unknown;
  readonly timeoutMs?: number;
}

export interface SearchServer {
  /**
   * @returns what was answered with a status of success; undefined when that had no body
   * @throws ServerError when it refuses; Error with a sentence when nothing of use came in time
   */
  ask(request: ServerRequest): Promise<unknown>;
  /** Ends the connections that wait for the next question. */
  close(): void;
}

/** It answered that it will not. */
export class ServerError extends Error {
  override readonly name = 'ServerError';
  readonly status: number;
  /** Names of what is wrong, of the causes too. */
  readonly kinds: readonly string[];

  constructor(status: number, kinds: readonly string[]) {
    super(`OpenSearch refused with status ${status}${kinds.length === 0 ? '' : ` (${kinds.join(', ')})`}`);
    this.status = status;
    this.kinds = kinds;
  }

  /** It has no room now: the same may be asked later. */
  get isBusy(): boolean {
    return isBusyStatus(this.status);
  }
}

export function isBusyStatus(status: number): boolean {
  return status === 429 || status === 502 || status === 503 || status === 504;
}

const TIMEOUT_MS = 30_000;
/** Connections that are kept; questions come one after another. */
const MAX_SOCKETS = 4;
const MAX_ANSWER = 64 * 1024 ** 2;

/** @param maxAnswer bytes that are read of an answer */
export function createSearchServer(access: ServerAccess, maxAnswer = MAX_ANSWER): SearchServer {
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
    const wasLeft = watchForLeft(sent);
    sent.once('response', answered.resolve);
    sent.on('error', (error) => answered.reject(wasLeft(error) ? new LeftSocketError() : error));
    sent.end(body);
    const response = await answered.promise;
    return { status: response.statusCode ?? 0, text: await readText(response, maxAnswer) };
  }

  return {
    ask: (asked) =>
      within(asked.timeoutMs ?? TIMEOUT_MS, 'OpenSearch', undefined, async (stop) => {
        const { status, text } = await send(asked, stop).catch((error: unknown) => {
          // it had closed a connection that was kept: everything that is asked may be asked twice
          if (error instanceof LeftSocketError) return send(asked, stop);
          throw error;
        });
        const answer = jsonOrUndefined(text);
        if (status < 200 || status > 299) throw new ServerError(status, kindsOf(answer));
        if (answer === undefined && text !== '') throw new Error('OpenSearch answered what is no JSON');
        return answer;
      }),
    close: () => agent.destroy(),
  };
}

interface Answered {
  readonly status: number;
  readonly text: string;
}

class LeftSocketError extends Error {
  override readonly name = 'LeftSocketError';
}

function textOf(body: unknown): string {
  return typeof body === 'string' ? body : JSON.stringify(body);
}

async function readText(response: IncomingMessage, maxAnswer: number): Promise<string> {
  const pieces: AsyncIterable<Buffer> = response;
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of pieces) {
      bytes += chunk.length;
      if (bytes > maxAnswer) throw new Error(`OpenSearch answered more than ${maxAnswer} bytes`);
      chunks.push(chunk);
    }
  } finally {
    if (!response.complete) response.destroy();
  }
  return Buffer.concat(chunks).toString();
}

const MAX_KINDS = 4;
const CAUSE = z.object({
  type: z.string().regex(/^[a-z][a-z0-9_]{0,63}$/),
  caused_by: z.unknown().optional(),
});
const REFUSAL = z.object({
  error: z.looseObject({ root_cause: z.array(z.unknown()).optional() }),
});

/** Words of the server's own alone: never its sentences. */
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
