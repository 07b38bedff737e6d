/** A recorder on loopback for tests, and clients for both upload protocols. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { connect, type IncomingHttpHeaders, type IncomingHttpStatusHeader } from 'node:http2';
import { connect as tcpConnect } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { Writable } from 'node:stream';
import { createSilentLogger } from '../../src/observe/logger.ts';
import type { Recording } from '../../src/wire/recorder-api/recording.ts';
import { createRecorder, type RunningRecorder } from '../../src/compose/recorder-parts.ts';
import type { RecorderOptions } from '../../src/compose/recorder-options.ts';
import type { HoldSigner } from '../../src/tsrecorder/evidence/holds.ts';
import { loadSigningKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { createAckParser, type Ack } from '../../src/wire/recorder-api/ack.ts';
import {
  createRecordReader,
  encodeRecords,
  endOfRecords,
  MAX_ACK_RECORD_BYTES,
  MAX_UPLOAD_RECORD_BYTES,
} from '../../src/wire/recorder-api/length-prefixed.ts';
import { framed } from '../support/recorder-double.ts';
import { eventually, UNTIL_MS } from '../support/until.ts';

export const UPLOADER = {
  kind: 'accepted',
  nodeId: 'nGATE1CNTRL',
  nodeName: 'gateway.tail1.ts.net',
} as const;

/** A cast header as the reference's API proxy writes it, with an id above 2^53 and an unknown field. */
export const HEADER =
  '{"version":2,"width":80,"height":24,"timestamp":1785325858,"command":"sh -i","srcNode":"laptop.tail1.ts.net",' +
  '"srcNodeID":"nA1CNTRL","srcNodeUserID":16793133573424021,"srcNodeUser":"a@example.com","env":null,"sshUser":"",' +
  '"localUser":"","connectionID":"","kubernetes":{"PodName":"web-0","Namespace":"prod","Container":"app",' +
  '"SessionType":"exec"},"future": {"x" : [1, 2]}}\n';

/** The stored header for {@link UPLOADER}. */
export const STORED_HEADER = HEADER.replace(
  '}}\n'.slice(1),
  ',"dstNode":"gateway.tail1.ts.net","dstNodeID":"nGATE1CNTRL"}\n',
);

export interface Rig extends AsyncDisposable {
  readonly directory: string;
  readonly spool: string;
  readonly recorder: RunningRecorder;
  /** Restarts the recorder with the same directories. */
  restart(options?: Partial<RecorderOptions>): Promise<Rig>;
  get(path: string, headers?: Record<string, string>, method?: string): Promise<Answer>;
  list(query?: string): Promise<readonly Recording[]>;
}

export interface Answer {
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** Starts a recorder. Recorders of one directory share one evidence key, as `docs/evidence.md` requires. */
export async function createRig(options: Partial<RecorderOptions> = {}, directory?: string): Promise<Rig> {
  const root = directory ?? (await mkdtemp(join(tmpdir(), 'tsrecorder-')));
  // default path of the key, also for recorders with another spool directory
  const evidenceKey = join(`${root}.spool`, 'evidence', 'key.pem');
  if (options.spoolDirectory !== undefined) await mkdir(dirname(evidenceKey), { recursive: true });
  const recorder = await createRecorder({
    listen: { host: '127.0.0.1', port: 0 },
    directory: root,
    identify: async () => UPLOADER,
    log: createSilentLogger(),
    ...(options.spoolDirectory === undefined ? {} : { evidenceKey }),
    ...(process.env['TEST_ARCHIVE'] === 'zstd' ? { archive: 'zstd' as const } : {}),
    ...options,
    timing: { closeGraceMs: 200, ...options.timing },
  });
  const get = (path: string, headers = {}, method = 'GET'): Promise<Answer> =>
    request(recorder, { path, method, headers });
  const spool = options.spoolDirectory ?? `${root}.spool`;
  return {
    directory: root,
    spool,
    recorder,
    get,
    async restart(changed) {
      await recorder.close();
      return createRig({ ...options, ...changed }, root);
    },
    async list(query = '') {
      const { status, body } = await get(`/api/v1/recordings${query}`);
      if (status !== 200) throw new Error(`no list but ${status}: ${body}`);
      return JSON.parse(body).recordings;
    },
    async [Symbol.asyncDispose]() {
      await recorder.close();
      // removes the folders, because suites with real peers have no scratch directory that is removed later
      for (const path of [root, spool]) await rm(path, { recursive: true, force: true });
    },
  };
}

/** Sends one HTTP/1.1 request on a new connection. */
export function request(
  { address }: RunningRecorder,
  options: {
    path: string;
    method?: string;
    headers?: Record<string, string>;
    body?: string | Uint8Array;
    localAddress?: string;
  },
): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const sent = httpRequest(
      { ...options, host: address.host, port: address.port, agent: false },
      (response) => resolve(readAnswer(response)),
    );
    sent.on('error', reject);
    sent.end(options.body);
  });
}

export async function readAnswer(response: IncomingMessage): Promise<Answer> {
  const chunks = await Array.fromAsync(response);
  return {
    status: response.statusCode ?? 0,
    headers: response.headers,
    body: Buffer.concat(chunks).toString(),
  };
}

type AnswerHeaders = IncomingHttpHeaders & IncomingHttpStatusHeader;

export interface Upload {
  /** The body. */
  readonly stream: Writable;
  readonly acks: Ack[];
  /** Resolves with the response headers. */
  readonly headers: Promise<AnswerHeaders>;
  /** Resolves when the response has ended or the stream was closed. */
  readonly over: Promise<void>;
  write(text: string | Uint8Array): void;
  end(): void;
  /** Resolves when an acknowledgement satisfies the condition. */
  ack(condition: (ack: Ack) => boolean): Promise<Ack>;
  /** Breaks the connection. */
  close(): void;
  /** Resets the upload. */
  reset(): void;
}

/**
 * Opens an upload on its own connection: without a session id over HTTP/2, with a session id over an upgraded
 * connection. Lines of an upgraded upload become frames, unless `headers` declare frames.
 */
export function openUpload(
  recorder: Pick<RunningRecorder, 'url'>,
  headers: Record<string, string> = {},
): Upload {
  if (Object.keys(headers).length === 0) return openPost(recorder);
  if (headers['tailcast-frames'] !== undefined) return openUpgrade(recorder, headers);
  // the rig sends the position in lines also as the position in frames, which the recorder accepts
  const fields = { ...headers, 'tailcast-frames': headers['tailcast-offset'] ?? '0' };
  return openUpgrade(recorder, fields, framesOfLines(Number(headers['tailcast-preamble'] ?? 0)));
}

/** Encodes complete lines as frames after a preamble. An incomplete line is buffered until its rest arrives. */
function framesOfLines(preambleBytes: number): (written: Buffer) => Buffer {
  let preambleLeft = preambleBytes;
  let rest: Buffer = Buffer.alloc(0);
  return (written) => {
    const preamble = written.subarray(0, preambleLeft);
    preambleLeft -= preamble.length;
    const all = Buffer.concat([rest, written.subarray(preamble.length)]);
    const whole = all.lastIndexOf('\n') + 1;
    rest = all.subarray(whole);
    if (whole === 0) return preamble;
    return Buffer.concat([preamble, framed(all.subarray(0, whole))]);
  };
}

/** Returns an acknowledgement without the position in frames. */
function withoutFrames({ ack, error, order }: Ack): Ack {
  return { ack, ...(error === undefined ? {} : { error }), ...(order === undefined ? {} : { order }) };
}

/** Parses the response data of both protocols. */
function createAnswer(onlyLines = false) {
  const acks: Ack[] = [];
  const waiting = new Set<() => void>();
  let finished = false;
  const notify = (): void => {
    for (const wake of waiting) wake();
  };
  const answered = Promise.withResolvers<AnswerHeaders>();
  answered.promise.catch(() => undefined);
  const over = Promise.withResolvers<void>();
  const parser = createAckParser();
  return {
    answered,
    push(chunk: Uint8Array) {
      const parsed = parser.push(chunk);
      acks.push(...(onlyLines ? parsed.map(withoutFrames) : parsed));
      notify();
    },
    closed() {
      finished = true;
      notify();
      over.resolve();
      answered.reject(new Error('closed without a response'));
    },
    view: {
      acks,
      headers: answered.promise,
      over: over.promise,
      async ack(condition: (ack: Ack) => boolean): Promise<Ack> {
        for (;;) {
          const found = acks.find(condition);
          if (found !== undefined) return found;
          if (finished) throw new Error(`no such ack among ${JSON.stringify(acks)}`);
          await new Promise<void>((resolve) => {
            const wake = (): void => {
              waiting.delete(wake);
              resolve();
            };
            waiting.add(wake);
          });
        }
      },
    },
  };
}

/** Opens `POST /v2/record` over HTTP/2 with prior knowledge. */
function openPost({ url }: Pick<RunningRecorder, 'url'>): Upload {
  const session = connect(url);
  session.on('error', () => undefined);
  const stream = session.request({ ':method': 'POST', ':path': '/v2/record' });
  const { answered, push, closed, view } = createAnswer();
  stream.on('data', push);
  stream.on('response', (received) => answered.resolve(received));
  stream.on('error', (error) => answered.reject(error));
  stream.on('close', () => {
    closed();
    session.close();
  });
  return {
    ...view,
    stream,
    write: (text) => stream.write(text),
    end: () => stream.end(),
    close: () => session.destroy(),
    reset: () => stream.close(8),
  };
}

/** Opens `GET /v2/record` with an upgrade. Data that is written earlier is sent after the 101 response. */
function openUpgrade(
  { url }: Pick<RunningRecorder, 'url'>,
  headers: Record<string, string>,
  translate?: (written: Buffer) => Buffer,
): Upload {
  const { hostname, port } = new URL(url);
  const socket = tcpConnect(Number(port), hostname.replaceAll(/[[\]]/g, ''));
  const { answered, push, closed, view } = createAnswer(translate !== undefined);
  const records = createRecordReader(MAX_ACK_RECORD_BYTES, push);
  const asked = httpRequest({
    path: '/v2/record',
    headers: { connection: 'Upgrade', upgrade: 'tailcast-record/1', ...headers },
    createConnection: () => socket,
  });
  const accepted = new Promise<void>((resolve) => {
    asked.on('upgrade', (response, _socket, head) => {
      answered.resolve(headersOf(response));
      if (head.length > 0) records.push(head);
      socket.on('data', (chunk: Buffer) => records.push(chunk));
      resolve();
    });
  });
  asked.on('response', (response) => {
    answered.resolve(headersOf(response));
    response.resume();
  });
  asked.on('error', answered.reject);
  asked.end();
  const put = (bytes: Uint8Array, done: (error?: Error | null) => void): void => {
    void accepted.then(() => socket.write(bytes, done));
  };
  const stream = new Writable({
    write: (chunk: Buffer, _encoding, done) =>
      put(Buffer.concat(encodeRecords([translate?.(chunk) ?? chunk], MAX_UPLOAD_RECORD_BYTES)), done),
    final: (done) => put(endOfRecords(), done),
  });
  stream.on('error', () => undefined);
  socket.on('error', () => undefined);
  socket.on('close', () => {
    closed();
    stream.destroy();
  });
  return {
    ...view,
    stream,
    write: (text) => stream.write(text),
    end: () => stream.end(),
    close: () => socket.destroy(),
    reset: () => socket.resetAndDestroy(),
  };
}

function headersOf({ statusCode = 0, headers }: IncomingMessage): AnswerHeaders {
  return Object.assign({ ':status': statusCode }, headers);
}

/** Uploads a complete session and waits for the end of the response. */
export async function uploadWhole(recorder: Pick<RunningRecorder, 'url'>, body: string): Promise<Upload> {
  const upload = openUpload(recorder);
  upload.write(body);
  upload.end();
  await upload.over;
  return upload;
}

/** Polls every 5 ms until `probe` returns a value, see `eventually`. */
export function until<T>(probe: () => Promise<T | undefined>): Promise<T> {
  return eventually('the expected state', probe, UNTIL_MS, 5);
}

/** Returns a signer of legal holds and their releases, with the signing key of the rig's recorder. */
export async function holdSigner({ directory }: Pick<Rig, 'directory'>): Promise<HoldSigner> {
  const key = await loadSigningKey(join(`${directory}.spool`, 'evidence', 'key.pem'), false);
  return { key, trusted: new Map([[key.public.id, key.public]]), nowMs: Date.now() };
}
