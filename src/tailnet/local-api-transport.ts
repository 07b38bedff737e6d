/**
 * HTTP/1.1 with tailscaled over its unix socket: requests with complete responses, byte tunnels, and the
 * notification bus. Rejects with the errors of the socket; `local-api.ts` converts them to codes.
 */
import { createDeadline } from '../async/deadline.ts';
import { withTimeout } from '../async/with-timeout.ts';
import {
  request,
  type Agent,
  type ClientRequest,
  type IncomingMessage,
  type RequestOptions,
} from 'node:http';
import type { Duplex } from 'node:stream';
import { TailcastError } from '../errors.ts';
import { watchForStale } from '../stale-connections.ts';
import { parseExactJson } from './exact-json.ts';
import { readTextLines } from '../wire/lines.ts';
import { describeFailure, describeRefusal } from './local-api-failure.ts';
import { isRecord } from '../wire/is-record.ts';
import { readBounded } from '../async/read-bounded.ts';

/** Capability version, sent as `Tailscale-Cap`. Version 113 contains all features that tailcast uses. */
const CAPABILITY_VERSION = '113';

/** One message of the notification bus. */
export type Notify = Readonly<Record<string, unknown>>;

const MAX_ERROR_BYTES = 4096;
const MAX_BUS_LINE_BYTES = 32 * 1024 * 1024;

export interface Question {
  readonly path: string;
  /** HTTP method. Default: GET. */
  readonly method?: string;
  /** Body of the request. Default: none. */
  readonly content?: string;
  readonly timeoutMs: number;
  readonly maxBytes: number;
  readonly signal: AbortSignal;
}

export interface LocalApiAnswer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  readonly body: string;
}

function requestOptions(socketPath: string, path: string, signal: AbortSignal): RequestOptions {
  return {
    socketPath,
    path,
    signal,
    headers: { Host: 'local-tailscaled.sock', 'Tailscale-Cap': CAPABILITY_VERSION },
    maxHeaderSize: 16 * 1024,
  };
}

/**
 * Sends a request and returns the complete response. Rejects with the socket's error, an `AbortError` or a
 * `TimeoutError`.
 */
export async function exchange(
  socketPath: string,
  agent: Agent,
  question: Question,
): Promise<LocalApiAnswer> {
  const signal = AbortSignal.any([question.signal, AbortSignal.timeout(question.timeoutMs)]);
  const response = await ask(socketPath, agent, { ...question, signal });
  const body = await readBody(response, signal, question.maxBytes);
  return { status: response.statusCode ?? 0, headers: response.headers, body };
}

/**
 * Sends a request. If the daemon had already closed the idle connection, sends the request once more on a new
 * connection.
 */
async function ask(
  socketPath: string,
  agent: Agent,
  { path, method, content, signal }: Pick<Question, 'path' | 'method' | 'content' | 'signal'>,
): Promise<IncomingMessage> {
  const options = { ...requestOptions(socketPath, path, signal), method };
  const first = request({ ...options, agent });
  const isStale = watchForStale(first);
  try {
    return await responseTo(first, signal, content);
  } catch (error) {
    if (!isStale(error)) throw error;
    return await responseTo(request({ ...options, agent: false }), signal, content);
  }
}

function responseTo(asked: ClientRequest, signal: AbortSignal, content = ''): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    asked
      .on('response', resolve)
      .on('error', (error) => reject(signal.aborted ? abortReason(signal) : error))
      .end(content);
  });
}

async function readBody(response: IncomingMessage, signal: AbortSignal, maxBytes: number): Promise<string> {
  try {
    const tooLong = (): Error => new Error(`the response is larger than ${maxBytes} bytes`);
    return (await readBounded(response, maxBytes, tooLong)).toString();
  } catch (error) {
    throw signal.aborted ? abortReason(signal) : error;
  }
}

function abortReason(signal: AbortSignal): Error {
  const reason: unknown = signal.reason;
  return reason instanceof Error ? reason : new Error('aborted', { cause: reason });
}

/**
 * Opens a tunnel with `POST /localapi/v0/dial` and an upgrade to `ts-dial`. tailscaled compares `Connection`
 * case-sensitively. tailscaled responds with 200 and `Dial-Self: true` for an address outside of the tailnet.
 * `openTunnel` rejects in this case, because the tailnet does not protect such a connection.
 */
export async function openTunnel(
  socketPath: string,
  target: {
    readonly host: string;
    readonly port: number;
    readonly timeoutMs: number;
    readonly signal: AbortSignal;
  },
): Promise<Duplex> {
  const { host, port, timeoutMs } = target;
  const what = `connecting to ${host} port ${port}`;
  // `target.signal` must not end a tunnel that the caller has received, so the request uses the signal of the attempt.
  const open = (signal: AbortSignal): Promise<Duplex> =>
    new Promise((resolve, reject) => {
      const base = requestOptions(socketPath, '/localapi/v0/dial', signal);
      request({
        ...base,
        method: 'POST',
        agent: false,
        headers: {
          ...dialHeaders(host, port),
          Host: 'local-tailscaled.sock',
          'Tailscale-Cap': CAPABILITY_VERSION,
        },
      })
        .on('upgrade', (response, socket, head) => {
          if (response.headers.upgrade?.toLowerCase() !== 'ts-dial') {
            socket.destroy();
            reject(new Error(`${socketPath} answered the dial with an upgrade to something else`));
            return;
          }
          if (head.length > 0) socket.unshift(head);
          resolve(socket);
        })
        .on('response', (response) => {
          readBody(response, signal, MAX_ERROR_BYTES).then(
            (body) => reject(dialRefusal(response, body, `${host} port ${port}`, socketPath)),
            reject,
          );
        })
        .on('error', (error) => reject(signal.aborted ? abortReason(signal) : error))
        .end();
    });
  return withTimeout(timeoutMs, what, target.signal, open);
}

function dialHeaders(host: string, port: number): Record<string, string> {
  return {
    Connection: 'upgrade',
    Upgrade: 'ts-dial',
    'Content-Length': '0',
    'Dial-Host': host,
    'Dial-Port': String(port),
    'Dial-Network': 'tcp',
  };
}

function dialRefusal(
  response: IncomingMessage,
  body: string,
  target: string,
  socketPath: string,
): TailcastError {
  if (response.headers['dial-self'] === 'true') {
    return new TailcastError('TAILNET_DIAL_FAILED', `${target} is not an address of this tailnet`);
  }
  const status = response.statusCode ?? 0;
  if (status === 502) return new TailcastError('TAILNET_DIAL_FAILED', `${target}: ${body.trim()}`);
  return new TailcastError('TAILNET_DIAL_FAILED', describeRefusal(status, body, socketPath));
}

export async function* watchBus(
  socketPath: string,
  mask: number,
  { signal, answerTimeoutMs }: { readonly signal: AbortSignal; readonly answerTimeoutMs: number },
): AsyncGenerator<Notify> {
  const path = `/localapi/v0/watch-ipn-bus?mask=${mask}`;
  const deadline = new AbortController();
  const timer = createDeadline(answerTimeoutMs, () =>
    deadline.abort(new DOMException('no response in time', 'TimeoutError')),
  );
  const either = AbortSignal.any([signal, deadline.signal]);
  try {
    const asked = request({ ...requestOptions(socketPath, path, either), agent: false });
    const response = await responseTo(asked, either);
    timer.clear();
    if (response.statusCode !== 200) {
      const body = await readBody(response, either, MAX_ERROR_BYTES);
      throw new TailcastError(
        'TAILNET_UNAVAILABLE',
        describeRefusal(response.statusCode ?? 0, body, socketPath),
      );
    }
    const body: AsyncIterable<Buffer> = response;
    for await (const line of readTextLines(body, MAX_BUS_LINE_BYTES)) {
      if (line.trim() === '') continue;
      const notify = parseExactJson(line);
      if (isRecord(notify)) yield notify;
    }
    throw new Error(`${socketPath} closed the notification bus`);
  } catch (error) {
    if (signal.aborted) return;
    if (error instanceof TailcastError) throw error;
    throw new TailcastError('TAILNET_UNAVAILABLE', describeFailure(error, socketPath), { cause: error });
  } finally {
    timer.clear();
  }
}
