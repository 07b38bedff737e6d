/**
 * Sends an upgrade request to the API server. The HTTP client of Node.js parses the response. After a valid 101
 * response, the result contains the raw connection. Any other response is returned as a refusal for the client.
 */
import { request, type ClientRequest, type IncomingMessage } from 'node:http';
import type { Duplex, Readable } from 'node:stream';
import { errorText, TailcastError } from '../../errors.ts';

/** Opens a connection to the API server with its own timeout; see `upstream-connect.ts`. */
export type ConnectUpstream = () => Promise<Duplex>;

/** An upgrade request to the API server. */
export interface UpgradeDial {
  readonly connect: ConnectUpstream;
  readonly method: string;
  /** Raw request target, with the base path of the server. */
  readonly target: string;
  /** Flat list of headers, without `Connection`, `Upgrade` and framing headers. */
  readonly headers: readonly string[];
  /** Value of `Upgrade` in the request and in the response. */
  readonly protocol: string;
  /**
   * `header` is the name of the response header with the chosen subprotocol. `offered` lists the subprotocols that this
   * request offers. The server may also choose no subprotocol.
   */
  readonly subprotocol?: { readonly header: string; readonly offered: readonly string[] };
  readonly responseTimeoutMs: number;
}

/** Response of the API server. */
export type UpgradeAnswer =
  | {
      readonly kind: 'switched';
      readonly socket: Duplex;
      /** Bytes that arrived with the response head. */
      readonly head: Buffer;
      readonly statusMessage: string;
      /** Flat list of headers, as received. */
      readonly rawHeaders: readonly string[];
      /** Chosen subprotocol; empty if there is none. */
      readonly subprotocol: string;
      /**
       * True if the end of the stream proves that the output is complete, even if the API server had to wait for the
       * gateway.
       */
      readonly provesEnd?: boolean;
    }
  | {
      readonly kind: 'refused';
      readonly status: number;
      readonly statusMessage: string;
      readonly rawHeaders: readonly string[];
      /** Unread body. The caller must read the body to its end or destroy it. Both also close the connection. */
      readonly body: Readable;
    };

const MAX_RESPONSE_HEAD_BYTES = 64 * 1024;

/**
 * Sends the request and waits for the response.
 * @param signal if it aborts, the connection attempt ends
 * @param sent if it aborts, the wait for the response ends; the API server may already be executing the request
 * @throws TailcastError `UPSTREAM_UNAVAILABLE` if there is no response, `UPSTREAM_BROKEN` for an invalid 101 response
 */
export async function dialUpgrade(
  dial: UpgradeDial,
  signal: AbortSignal,
  sent: AbortSignal = signal,
): Promise<UpgradeAnswer> {
  const socket = await connectUnless(signal, dial.connect);
  const late = AbortSignal.timeout(dial.responseTimeoutMs);
  try {
    return await shake(dial, socket, AbortSignal.any([sent, late]));
  } catch (error) {
    socket.destroy();
    sent.throwIfAborted();
    if (error instanceof TailcastError) throw error;
    const detail = late.aborted
      ? `no response to the upgrade in ${dial.responseTimeoutMs} ms`
      : errorText(error);
    throw new TailcastError('UPSTREAM_UNAVAILABLE', detail, { cause: error });
  }
}

/**
 * Opens a connection to the API server in advance and sends nothing on it. This saves the time of the TCP and
 * TLS handshakes later.
 */
export function connectEarly(connect: ConnectUpstream) {
  let early: Promise<Duplex> | undefined = connect();
  // Both kinds of failure are handled elsewhere: `connect` throws if the connection failed, and the caller adds its own
  // listener to the socket.
  early.then(
    (socket) => socket.on('error', () => {}),
    () => {},
  );
  return {
    /**
     * The first call returns the early connection if it is still open. Every other call opens a new connection.
     */
    connect: async () => {
      const opened = early;
      early = undefined;
      if (opened === undefined) return connect();
      const socket = await opened;
      return socket.destroyed || socket.readableEnded ? connect() : socket;
    },
    /** Closes the early connection unless `connect` has returned it. */
    discard() {
      early?.then(
        (socket) => socket.destroy(),
        () => {},
      );
      early = undefined;
    },
  };
}

/**
 * Opens a connection. If `signal` aborts first, this function throws, and the connection is closed after it
 * has opened.
 */
export async function connectUnless(signal: AbortSignal, connect: ConnectUpstream): Promise<Duplex> {
  signal.throwIfAborted();
  const left = Promise.withResolvers<never>();
  const onAbort = (): void => left.reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  const connecting = connect();
  try {
    return await Promise.race([connecting, left.promise]);
  } catch (error) {
    connecting.then(
      (socket) => socket.destroy(),
      () => {},
    );
    throw error;
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

async function shake(dial: UpgradeDial, socket: Duplex, signal: AbortSignal): Promise<UpgradeAnswer> {
  const handshake = request({
    method: dial.method,
    path: dial.target,
    headers: [
      ...dial.headers,
      'Connection',
      'Upgrade',
      'Upgrade',
      dial.protocol,
      ...(dial.method === 'GET' ? [] : ['Content-Length', '0']),
    ],
    setHost: false,
    maxHeaderSize: MAX_RESPONSE_HEAD_BYTES,
    createConnection: () => socket,
  });
  const answer = Promise.withResolvers<UpgradeAnswer>();
  const onAbort = (): void => answer.reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  // This listener is never removed, because the connection may also break while the body of a refusal is
  // relayed.
  handshake.on('error', answer.reject);
  handshake.once('close', () => answer.reject(new Error('the connection was closed before a response')));
  listen(handshake, dial, answer);
  handshake.end();
  try {
    return await answer.promise;
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

function listen(
  handshake: ClientRequest,
  dial: UpgradeDial,
  answer: PromiseWithResolvers<UpgradeAnswer>,
): void {
  handshake.once('upgrade', (response, socket, head) => {
    // Node.js has already removed its own listeners from the socket. This listener ignores an error before the relay
    // starts: the relay then finds the socket closed.
    socket.on('error', () => {});
    const fault = findFault(response, dial);
    if (fault !== undefined) return answer.reject(new TailcastError('UPSTREAM_BROKEN', fault));
    answer.resolve({
      kind: 'switched',
      socket,
      head,
      statusMessage: response.statusMessage ?? '',
      rawHeaders: response.rawHeaders,
      subprotocol: chosenSubprotocol(response, dial),
    });
  });
  handshake.once('response', (response) => {
    const status = response.statusCode ?? 0;
    const fault = findFaultOfRefusal(response);
    if (fault !== undefined) {
      response.destroy();
      return answer.reject(new TailcastError('UPSTREAM_BROKEN', fault));
    }
    answer.resolve({
      kind: 'refused',
      status,
      statusMessage: response.statusMessage ?? '',
      rawHeaders: response.rawHeaders,
      body: response,
    });
  });
}

/**
 * Returns the fault of a 101 response, if any. The response must name the requested protocol. If it names a
 * subprotocol, the client must have offered this subprotocol.
 */
function findFault(response: IncomingMessage, dial: UpgradeDial): string | undefined {
  if (response.statusCode !== 101) return `an upgrade with status ${response.statusCode}`;
  if (response.headers.upgrade?.toLowerCase() !== dial.protocol.toLowerCase()) {
    return 'it switched to a protocol that was not requested';
  }
  const chosen = chosenSubprotocol(response, dial);
  if (chosen !== '' && dial.subprotocol?.offered.includes(chosen) === false) {
    return 'it chose a subprotocol that was not offered';
  }
  return undefined;
}

/**
 * Returns the fault of a response that refuses the upgrade, if any. The parser of Node.js accepts such faults, but
 * clients should not get them.
 */
function findFaultOfRefusal(response: IncomingMessage): string | undefined {
  const { statusCode = 0, httpVersion, headers } = response;
  if (statusCode === 101) return 'a 101 without an upgrade';
  if (statusCode < 200 || statusCode > 599) return `status ${statusCode}`;
  if (httpVersion !== '1.1' && httpVersion !== '1.0') return `HTTP/${httpVersion}`;
  const coding = headers['transfer-encoding']?.toLowerCase();
  return coding === undefined || coding === 'chunked' ? undefined : 'an unknown Transfer-Encoding';
}

function chosenSubprotocol(response: IncomingMessage, dial: UpgradeDial): string {
  if (dial.subprotocol === undefined) return '';
  const value = response.headers[dial.subprotocol.header];
  return (Array.isArray(value) ? value.join(', ') : (value ?? '')).trim();
}
