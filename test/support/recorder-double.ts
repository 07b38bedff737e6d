/**
 * A recorder on loopback that speaks HTTP/1.1 and prior-knowledge HTTP/2 on one port, keeps every upload in memory, and
 * misbehaves on request. The double shares no code with tailcast's recorder.
 */
import { isUtf8 } from 'node:buffer';
import { once } from 'node:events';
import { createServer as createHttpServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { createServer as createHttp2Server, type ServerHttp2Stream } from 'node:http2';
import { createServer, type AddressInfo, type Socket } from 'node:net';

export interface RecorderBehaviour {
  /** True if the recorder supports HTTP/2. Default true. */
  readonly v2?: boolean;
  /** True if the recorder supports the v1 path `/record`. Default true. */
  readonly v1?: boolean;
  /** `auto`: acknowledges received data immediately. `alive`: sends only `{}`, every 10 ms. `none`: sends nothing. */
  readonly acks?: 'auto' | 'alive' | 'none';
  /** Status of the POST that opens an upload. Default 200. */
  readonly uploadStatus?: number;
  /** True to accept connections but send no response. */
  readonly silent?: boolean;
  /** True to stop reading the body of uploads, so that TCP flow control stops the client. */
  readonly stalled?: boolean;
  /**
   * True to offer upgrades with a header in the response to the probe. Tailscale's recorders do not offer upgrades.
   * Default true.
   */
  readonly upgradeOffered?: boolean;
  /**
   * Response to an upgrade. `take`: accept it. A number: an error status. `close`: close the connection. `silent`: no
   * response. Bytes: send them, and close the connection. Default: `take`, or 404 if upgrades are not offered.
   */
  readonly upgrade?: 'take' | 'close' | 'silent' | number | Buffer;
  readonly eventProbeStatus?: number;
  readonly eventStatus?: number;
  /** True to send no response to the POST of an event. */
  readonly eventSilent?: boolean;
  /** True to store the event, and close the connection in the middle of the response. */
  readonly eventBreaksOff?: boolean;
}

export interface DoubleUpload {
  readonly protocol: 'v1' | 'v2' | 'upgraded';
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly body: Buffer;
  readonly size: number;
  push(chunk: Buffer): void;
  /** True if the client has sent the end of the body. */
  ended: boolean;
  /** True if the client disconnected early. */
  aborted: boolean;
  /** Complete lines that were received. */
  lines(): string[];
  /** Sends an acknowledgement. */
  ack(bytes: number): void;
  /** Sends an error frame and ends the response. */
  fail(text: string): void;
  /** Ends the response without an error frame. */
  endEarly(): void;
  /** Resets the connection. */
  cut(): void;
  /** Lengths of the received records of an upgraded upload, including the last record. */
  readonly records?: readonly number[];
  /** Sends these bytes on an upgraded connection. */
  say?(bytes: Buffer): void;
}

export interface RecorderDouble {
  readonly address: string;
  readonly port: number;
  readonly uploads: DoubleUpload[];
  readonly events: string[];
  readonly probes: string[];
  /** Number of TCP connections so far. */
  readonly connections: number;
  set(behaviour: RecorderBehaviour): void;
  /** Closes every connection, as a server does with idle connections. */
  cutIdle(): void;
  /** Resolves when `test` returns true. Calls `test` again after each event. */
  until(test: () => boolean): Promise<void>;
  close(): Promise<void>;
}

export async function startRecorderDouble(
  initial: RecorderBehaviour = {},
  port = 0,
): Promise<RecorderDouble> {
  let behaviour = initial;
  const uploads: DoubleUpload[] = [];
  const events: string[] = [];
  const probes: string[] = [];
  const sockets = new Set<Socket>();
  const waiters = new Set<() => void>();
  let connections = 0;
  const changed = (): void => {
    for (const waiter of waiters) waiter();
  };

  const track = (
    upload: DoubleUpload,
    body: NodeJS.ReadableStream,
    received: (bytes: number) => void,
  ): void => {
    uploads.push(upload);
    body.on('data', (chunk: Buffer) => {
      upload.push(chunk);
      received(upload.size);
      changed();
    });
    body.once('end', () => {
      // Node.js also emits `end` for a stream that was reset
      upload.ended = !upload.aborted;
      changed();
    });
    if (behaviour.stalled === true) body.pause();
    changed();
  };

  const h2 = createHttp2Server();
  h2.on('session', (session) => session.on('error', () => {}));
  h2.on('stream', (stream: ServerHttp2Stream, headers) => {
    stream.on('error', () => {});
    const method = headers[':method'];
    if (headers[':path'] !== '/v2/record') {
      stream.respond({ ':status': 404 }, { endStream: true });
      return;
    }
    if (method === 'HEAD') {
      probes.push('v2');
      stream.respond(
        {
          ':status': 200,
          ...(behaviour.upgradeOffered === false ? {} : { 'tailcast-upgrade': '1' }),
        },
        { endStream: true },
      );
      return;
    }
    const status = behaviour.uploadStatus ?? 200;
    stream.respond({ ':status': status }, { endStream: status !== 200 });
    if (status !== 200) return;
    const say = (frame: object): void => {
      if (!stream.destroyed && !stream.writableEnded) stream.write(`${JSON.stringify(frame)}\n`);
    };
    const acks = behaviour.acks ?? 'auto';
    const upload = newUpload('v2', headers, {
      ack: (bytes) => say(bytes === 0 ? {} : { ack: bytes }),
      fail: (text) => {
        say({ error: text });
        stream.end();
      },
      endEarly: () => stream.end(),
      cut: () => stream.session?.destroy(),
    });
    const alive = setInterval(() => {
      if (acks !== 'none') say(acks === 'auto' ? { ack: upload.size } : {});
    }, 10);
    stream.once('close', () => {
      clearInterval(alive);
      if (!upload.ended) upload.aborted = true;
      changed();
    });
    stream.on('aborted', () => {
      upload.aborted = true;
      changed();
    });
    track(upload, stream, (bytes) => {
      if (acks === 'auto') say({ ack: bytes });
    });
    stream.once('end', () => {
      if (stream.aborted || acks === 'none') return;
      say(acks === 'auto' ? { ack: upload.size } : {});
      stream.end();
    });
  });

  const handle = (request: IncomingMessage, response: ServerResponse): void => {
    request.on('error', () => {});
    if (request.url === '/record' && request.method === 'POST' && behaviour.v1 !== false) {
      const upload = newUpload('v1', request.headers, {
        ack: () => {},
        fail: () => response.writeHead(500).end(),
        endEarly: () => response.writeHead(200).end(),
        cut: () => request.socket.destroy(),
      });
      request.once('close', () => {
        if (!request.complete) upload.aborted = true;
        changed();
      });
      track(upload, request, () => {});
      request.once('end', () => {
        if (!response.headersSent) response.writeHead(200).end();
      });
      return;
    }
    if (request.url === '/v2/event') {
      if (request.method === 'HEAD') {
        probes.push('event');
        response.writeHead(behaviour.eventProbeStatus ?? 200).end();
        return;
      }
      const parts: Buffer[] = [];
      request.on('data', (chunk: Buffer) => parts.push(chunk));
      request.once('end', () => {
        if (behaviour.eventSilent === true) return;
        const status = behaviour.eventStatus ?? 200;
        if (status === 200) events.push(Buffer.concat(parts).toString());
        if (behaviour.eventBreaksOff === true) {
          response.writeHead(status, { 'content-length': '2' }).write('{', () => request.socket.destroy());
          return;
        }
        response.writeHead(status).end(status === 200 ? '' : 'no space left');
        changed();
      });
      return;
    }
    response.writeHead(404).end();
  };
  const h1 = createHttpServer(handle);
  h1.requestTimeout = 0;
  h1.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    const status = behaviour.uploadStatus ?? 200;
    if (status !== 200) return void response.writeHead(status).end();
    response.writeContinue();
    handle(request, response);
  });

  h1.on('upgrade', (request: IncomingMessage, socket: Socket) => {
    probes.push('upgrade');
    socket.on('error', () => {});
    const { upgrade = behaviour.upgradeOffered === false ? 404 : 'take' } = behaviour;
    changed();
    if (upgrade === 'silent') return;
    if (upgrade === 'close') return void socket.destroy();
    if (upgrade instanceof Buffer) return void socket.end(upgrade);
    if (typeof upgrade === 'number')
      return void socket.end(`HTTP/1.1 ${upgrade} No\r\nContent-Length: 0\r\n\r\n`);
    const upload = takeUpgraded(request, socket, () => behaviour.acks ?? 'auto', changed);
    if (behaviour.stalled === true) socket.pause();
    uploads.push(upload);
    changed();
  });

  const server = createServer((socket) => {
    connections += 1;
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    socket.on('error', () => {});
    changed();
    if (behaviour.silent === true) return;
    socket.once('data', (chunk: Buffer) => {
      socket.pause();
      socket.unshift(chunk);
      const isH2 = chunk.toString('latin1').startsWith('PRI * HTTP/2.0');
      if (isH2 && behaviour.v2 === false) return void socket.end('HTTP/1.1 400 Bad Request\r\n\r\n');
      (isH2 ? h2 : h1).emit('connection', socket);
      // HTTP/2 reads from the socket directly; HTTP/1.1 needs a stream that flows.
      if (!isH2) socket.resume();
    });
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening');
  const bound = (server.address() as AddressInfo).port;

  return {
    address: `127.0.0.1:${bound}`,
    port: bound,
    uploads,
    events,
    probes,
    get connections() {
      return connections;
    },
    set(next) {
      behaviour = next;
    },
    cutIdle() {
      for (const socket of sockets) socket.destroy();
    },
    async until(test) {
      if (test()) return;
      const held = Promise.withResolvers<void>();
      const waiter = (): void => {
        if (test()) held.resolve();
      };
      waiters.add(waiter);
      await held.promise.finally(() => waiters.delete(waiter));
    },
    async close() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

const YES = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tailcast-record/1\r\n\r\n';

/** Encodes each text, which contains complete lines, as one frame. */
export function framed(...texts: readonly (string | Buffer)[]): Buffer {
  return Buffer.concat(
    texts.map((text) => {
      const lines = Buffer.from(text);
      const lead = Buffer.alloc(5, 1);
      lead.writeUInt32BE(lines.length, 1);
      return Buffer.concat([lead, lines]);
    }),
  );
}

/** Encodes a text, such as an acknowledgement, as a record. */
export function recordOf(text: string): Buffer {
  const bytes = Buffer.from(text);
  const lead = Buffer.alloc(4);
  lead.writeUInt32BE(bytes.length);
  return Buffer.concat([lead, bytes]);
}

/**
 * Handles an upload over an upgraded connection. The body is the joined content of the records. Acknowledgements
 * contain the number of bytes in frames.
 */
function takeUpgraded(
  { headers }: IncomingMessage,
  socket: Socket,
  acks: () => 'auto' | 'alive' | 'none',
  changed: () => void,
): DoubleUpload {
  const records: number[] = [];
  const before = Number(headers['tailcast-frames'] ?? 0) - Number(headers['tailcast-preamble'] ?? 0);
  const say = (bytes: Buffer): void => {
    if (!socket.destroyed && !socket.writableEnded) socket.write(bytes);
  };
  const acknowledge = (bytes: number): void => say(recordOf(`{"ack":${bytes},"frames":${bytes}}\n`));
  const upload = newUpload('upgraded', headers, {
    ack: acknowledge,
    fail: (text) => {
      say(recordOf(JSON.stringify({ error: text })));
      socket.end();
    },
    endEarly: () => void socket.end(Buffer.alloc(4)),
    cut: () => socket.resetAndDestroy(),
  });
  say(Buffer.from(YES));
  const alive = setInterval(() => {
    if (acks() === 'alive') say(recordOf('{}\n'));
    if (acks() === 'auto' && before + upload.size > 0) acknowledge(before + upload.size);
  }, 10);
  let seen = Buffer.alloc(0);
  socket.on('data', (chunk: Buffer) => {
    seen = Buffer.concat([seen, chunk]);
    while (seen.length >= 4) {
      const length = seen.readUInt32BE();
      if (seen.length < 4 + length) break;
      records.push(length);
      upload.push(seen.subarray(4, 4 + length));
      seen = seen.subarray(4 + length);
      if (length > 0) continue;
      upload.ended = true;
      clearInterval(alive);
      if (acks() === 'none') continue;
      if (acks() === 'auto') acknowledge(before + upload.size);
      say(Buffer.alloc(4));
    }
    changed();
  });
  socket.once('close', () => {
    clearInterval(alive);
    if (!upload.ended) upload.aborted = true;
    changed();
  });
  const preambleBytes = Number(headers['tailcast-preamble'] ?? 0);
  return Object.assign(upload, {
    records,
    say,
    lines: () =>
      upload.body
        .toString('utf8', 0, preambleBytes)
        .split('\n')
        .slice(0, -1)
        .concat(linesOfFrames(upload.body.subarray(preambleBytes))),
  });
}

/** Returns the lines of the complete frames, as a recorder would store them. */
function linesOfFrames(frames: Buffer): string[] {
  const lines: string[] = [];
  for (let at = 0; at + 5 <= frames.length;) {
    const end = at + 5 + frames.readUInt32BE(at + 1);
    if (end > frames.length) break;
    const kind = frames[at];
    const content = frames.subarray(at + 5, end);
    at = end;
    if (kind === 1) {
      lines.push(...content.toString().split('\n').slice(0, -1));
      continue;
    }
    const seconds = Number(content.readBigUInt64BE()) / 1e6;
    const output = content.subarray(8);
    if (!isUtf8(output)) lines.push(JSON.stringify({ kind: 'raw', base64: output.toString('base64') }));
    const text = kind === 3 ? `[not text: ${output.length} B]\r\n` : output.toString();
    lines.push(JSON.stringify([seconds, 'o', text]));
  }
  return lines;
}

function newUpload(
  protocol: DoubleUpload['protocol'],
  headers: DoubleUpload['headers'],
  actions: Pick<DoubleUpload, 'ack' | 'fail' | 'endEarly' | 'cut'>,
): DoubleUpload {
  let parts: Buffer[] = [];
  let size = 0;
  return {
    protocol,
    headers,
    get body() {
      if (parts.length > 1) parts = [Buffer.concat(parts)];
      return parts[0] ?? Buffer.alloc(0);
    },
    get size() {
      return size;
    },
    push(chunk) {
      parts.push(chunk);
      size += chunk.length;
    },
    ended: false,
    aborted: false,
    lines() {
      return this.body.toString().split('\n').slice(0, -1);
    },
    ...actions,
  };
}
