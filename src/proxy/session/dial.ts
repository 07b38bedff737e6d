/**
 * Asks the API server to switch protocols. The answer is its: a verified 101 gives a raw connection, anything else is
 * handed back to be relayed as it came. The handshake itself goes through Node's HTTP client; nothing is parsed here.
 */
import { request, type ClientRequest, type IncomingMessage } from 'node:http';
import type { Duplex, Readable } from 'node:stream';
import { errorText, TailcastError } from '../../errors.ts';

/** Opens a connection to the API server, with its own time limit; see `upstream-connect.ts`. */
export type ConnectUpstream = () => Promise<Duplex>;

export interface UpgradeDial {
  readonly connect: ConnectUpstream;
  readonly method: string;
  /** Raw target, with the base path of the server. */
  readonly target: string;
  /** Flat list with everything but `Connection`, `Upgrade` and framing. */
  readonly headers: readonly string[];
  /** The value of `Upgrade` to send and to expect. */
  readonly protocol: string;
  /** Which response header names the chosen subprotocol, and which were offered; the empty choice is always allowed. */
  readonly subprotocol?: { readonly header: string; readonly offered: readonly string[] };
  readonly responseTimeoutMs: number;
}

export type UpgradeAnswer =
  | {
      readonly kind: 'switched';
      readonly socket: Duplex;
      /** Bytes that came with the response head. */
      readonly head: Buffer;
      readonly statusMessage: string;
      /** Flat, as received. */
      readonly rawHeaders: readonly string[];
      /** The chosen subprotocol, empty if none was named. */
      readonly subprotocol: string;
    }
  | {
      readonly kind: 'refused';
      readonly status: number;
      readonly statusMessage: string;
      readonly rawHeaders: readonly string[];
      /** The body, unread. The receiver reads or destroys it, which ends the connection. */
      readonly body: Readable;
    };

const MAX_RESPONSE_HEAD_BYTES = 64 * 1024;

/**
 * Sends the upgrade and waits for the answer.
 * @throws TailcastError `UPSTREAM_UNAVAILABLE` when there is no answer, `UPSTREAM_BROKEN` for a 101 that does not fit
 */
export async function dialUpgrade(dial: UpgradeDial, signal: AbortSignal): Promise<UpgradeAnswer> {
  const socket = await connectUnless(signal, dial.connect);
  const late = AbortSignal.timeout(dial.responseTimeoutMs);
  try {
    return await shake(dial, socket, AbortSignal.any([signal, late]));
  } catch (error) {
    socket.destroy();
    signal.throwIfAborted();
    if (error instanceof TailcastError) throw error;
    const detail = late.aborted
      ? `no answer to the upgrade in ${dial.responseTimeoutMs} ms`
      : errorText(error);
    throw new TailcastError('UPSTREAM_UNAVAILABLE', detail, { cause: error });
  }
}

/** A connection that is opened before it is known whether it will be used. */
export interface EarlyConnection {
  /** Returns the connection that was opened early, once. Later calls, and a call after it was closed, open another. */
  readonly connect: ConnectUpstream;
  /** Closes the connection unless `connect` returned it. */
  discard(): void;
}

/** Opens a connection to the API server and sends nothing on it, so that its handshakes need no time later. */
export function connectEarly(connect: ConnectUpstream): EarlyConnection {
  let early: Promise<Duplex> | undefined = connect();
  // The failure is reported to the caller of `connect`; the socket has a listener of its own as soon as it is used.
  early.then(
    (socket) => socket.on('error', () => {}),
    () => {},
  );
  return {
    async connect() {
      const opened = early;
      early = undefined;
      if (opened === undefined) return connect();
      const socket = await opened;
      return socket.destroyed || socket.readableEnded ? connect() : socket;
    },
    discard() {
      early?.then(
        (socket) => socket.destroy(),
        () => {},
      );
      early = undefined;
    },
  };
}

/** A connection that comes after the client has left is closed. */
async function connectUnless(signal: AbortSignal, connect: ConnectUpstream): Promise<Duplex> {
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
  // Stays on: a refusal's body may still break off while it is relayed.
  handshake.on('error', answer.reject);
  handshake.once('close', () => answer.reject(new Error('the connection was closed before an answer')));
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
    // Node has taken its own listeners off; a break before the relay listens is seen there as a closed end.
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

/** What is wrong with a 101, if anything is: it must switch to what was asked and choose what was offered. */
function findFault(response: IncomingMessage, dial: UpgradeDial): string | undefined {
  if (response.statusCode !== 101) return `an upgrade with status ${response.statusCode}`;
  if (response.headers.upgrade?.toLowerCase() !== dial.protocol.toLowerCase()) {
    return 'it switched to another protocol than was asked';
  }
  const chosen = chosenSubprotocol(response, dial);
  if (chosen !== '' && dial.subprotocol?.offered.includes(chosen) === false) {
    return 'it chose a subprotocol that was not offered';
  }
  return undefined;
}

/** What Node's parser lets pass and no client should get. */
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
