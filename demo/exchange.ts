import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Http2ServerRequest, Http2ServerResponse } from 'node:http2';
import { isJson, isObject, parseApiJson, type Json, type ApiObject } from './json.ts';
import { parse as parseYaml } from 'yaml';
import { badRequest, encodeBody, tooLarge, unsupportedMediaType } from './api-status.ts';
import type { UserInfo } from './authentication.ts';
import { decodeProtobufObject, PROTOBUF_TYPE } from './protobuf-body.ts';
import { PATCHES } from './patch.ts';
import { parsePath, type ApiPath } from './api-path.ts';

/** One request and its response, over HTTP/1.1 or HTTP/2. */
export interface ApiExchange {
  readonly method: string;
  readonly path: ApiPath;
  readonly query: URLSearchParams;
  readonly accept: string;
  readonly contentType: string;
  readonly user: UserInfo;
  /** Aborts when the client disconnects or the cluster closes. */
  readonly signal: AbortSignal;
  /** Returns the body as an object; undefined without a body. Throws a 400, 413 or 415 error. */
  readObject(): Promise<ApiObject | undefined>;
  readBody(): Promise<Json | undefined>;
  send(httpStatus: number, body: ApiObject, contentType?: string): void;
  sendText(httpStatus: number, text: string | Uint8Array, contentType: string): void;
  /** Starts a response of unknown length, and sends its headers immediately. */
  stream(contentType: string): ResponseStream;
}

export interface ResponseStream {
  /** Resolves when the stream accepts more data, or when the client has disconnected. */
  write(chunk: string | Uint8Array): Promise<void>;
  end(): void;
}

export type HttpRequest = IncomingMessage | Http2ServerRequest;
export type HttpResponse = ServerResponse | Http2ServerResponse;

/** Maximum size of a request body, in bytes. Source: apiserver `MaxRequestBodyBytes`. */
const MAX_BODY_BYTES = 3 * 1024 * 1024;

const JSON_TYPE = 'application/json';
const BODY_TYPES = [JSON_TYPE, 'application/yaml', PROTOBUF_TYPE, ...PATCHES.keys()];

/** Creates an exchange for a request of `user`. If `closing` aborts, streamed responses end. */
export function createExchange(
  request: HttpRequest,
  response: HttpResponse,
  user: UserInfo,
  closing: AbortSignal,
): ApiExchange {
  const { path, query } = parsePath(request.url ?? '/');
  const left = new AbortController();
  response.once('close', () => {
    left.abort();
  });
  response.on('error', () => undefined);
  const contentType = (request.headers['content-type'] ?? '').split(';')[0]?.trim() ?? '';
  // HTTP/1.1 and HTTP/2 responses have the same methods, but with different signatures.
  const target: ResponseTarget = response;
  const head = (httpStatus: number, headers: Record<string, string>): void => {
    target.writeHead(httpStatus, {
      ...headers,
      'cache-control': 'no-cache, private',
      'x-content-type-options': 'nosniff',
    });
  };
  const sendText = (httpStatus: number, text: string | Uint8Array, type: string): void => {
    if (response.headersSent || response.destroyed) return;
    head(httpStatus, { 'content-type': type, 'content-length': String(Buffer.byteLength(text)) });
    target.end(typeof text === 'string' ? Buffer.from(text) : text);
  };
  const readBody = async (): Promise<Json | undefined> =>
    decodeBody(await collect(request), contentType === '' ? JSON_TYPE : contentType);
  return {
    method: request.method ?? 'GET',
    path,
    query,
    accept: request.headers.accept ?? '',
    contentType,
    user,
    signal: AbortSignal.any([left.signal, closing]),
    readBody,
    async readObject() {
      const body = await readBody();
      if (body !== undefined && !isObject(body)) throw badRequest('the body of the request is not an object');
      return body;
    },
    sendText,
    send: (httpStatus, body, type = JSON_TYPE) => {
      sendText(httpStatus, encodeBody(body), type);
    },
    stream(type) {
      head(200, { 'content-type': type });
      if (hasFlushHeaders(response)) response.flushHeaders();
      return openResponseStream(response, target);
    },
  };
}

interface ResponseTarget {
  writeHead(httpStatus: number, headers: Record<string, string>): unknown;
  write(chunk: Uint8Array): boolean;
  end(): unknown;
  end(chunk: Uint8Array): unknown;
}

/** HTTP/2 responses also have `flushHeaders`, although their type does not declare it. */
function hasFlushHeaders(response: object): response is { flushHeaders(): void } {
  return 'flushHeaders' in response;
}

function openResponseStream(response: HttpResponse, target: ResponseTarget): ResponseStream {
  return {
    write(chunk) {
      if (response.destroyed || response.writableEnded) return Promise.resolve();
      const taken = target.write(typeof chunk === 'string' ? Buffer.from(chunk) : chunk);
      if (taken) return Promise.resolve();
      return new Promise((resolve) => {
        response.once('drain', resolve);
        response.once('close', resolve);
      });
    },
    end() {
      if (!response.writableEnded) target.end();
    },
  };
}

async function collect(request: HttpRequest): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let total = 0;
  const source: AsyncIterable<Uint8Array> = request;
  for await (const chunk of source) {
    total += chunk.byteLength;
    if (total > MAX_BODY_BYTES) throw tooLarge(MAX_BODY_BYTES);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}

function decodeBody(bytes: Buffer, contentType: string): Json | undefined {
  if (bytes.byteLength === 0) return undefined;
  if (!BODY_TYPES.includes(contentType)) throw unsupportedMediaType(BODY_TYPES);
  if (contentType === PROTOBUF_TYPE) return decodeProtobufObject(bytes);
  const text = bytes.toString('utf8');
  try {
    if (!contentType.endsWith('yaml')) return parseApiJson(text);
    const value: unknown = parseYaml(text, { maxAliasCount: 100 });
    return isJson(value) ? value : null;
  } catch (error) {
    throw badRequest(
      `the object provided is not valid: ${error instanceof Error ? error.message : String(error)}`,
    );
  }
}
