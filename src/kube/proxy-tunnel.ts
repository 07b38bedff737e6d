/**
 * Connections to an API server through the proxy that a kubeconfig names (`proxy-url`), of the kinds that client-go takes:
 * HTTP CONNECT (RFC 9110 section 9.3.6), the same over TLS, and SOCKS5 (RFC 1928, with the passwords of RFC 1929). Names are
 * resolved by the proxy.
 */
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { connect, isIP, type Socket } from 'node:net';
import { TailcastError, errorText } from '../errors.ts';

/** Opens a connection to the API server's host and port; TLS to it comes on top. */
export type OpenTunnel = (signal: AbortSignal) => Promise<Socket>;

export interface TunnelTarget {
  /** Name or address, IPv6 without brackets. */
  readonly host: string;
  readonly port: number;
}

const PORTS: Readonly<Record<string, number>> = {
  'http:': 80,
  'https:': 443,
  'socks5:': 1080,
  'socks5h:': 1080,
};

/**
 * @param text the value of `proxy-url`
 * @param where what to call it in an error
 * @throws TailcastError `CONFIG_INVALID`
 */
export function openProxyTunnel(text: string, where: string, target: TunnelTarget): OpenTunnel {
  const url = URL.parse(text);
  const port = url === null ? undefined : PORTS[url.protocol];
  const credentials = url === null ? undefined : credentialsOf(url);
  if (url === null || port === undefined || url.hostname === '' || credentials === undefined) {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${where} is no proxy that can be used; write http://host:port, https://host:port or socks5://host:port`,
    );
  }
  const proxy: Proxy = {
    host: url.hostname.replace(/^\[(.*)\]$/, '$1'),
    port: url.port === '' ? port : Number(url.port),
    isTls: url.protocol === 'https:',
    ...credentials,
  };
  const open = url.protocol.startsWith('socks5') ? openSocks : openConnect;
  return async (signal) => {
    try {
      const socket = await open(proxy, target, signal);
      // whoever uses it hears of errors in his own way; until he listens they must not end the process
      socket.on('error', () => undefined);
      return socket;
    } catch (error) {
      signal.throwIfAborted();
      // never the URL itself, which may hold a password
      const detail = `the proxy ${proxy.host}:${proxy.port}: ${errorText(error)}`;
      throw new TailcastError('UPSTREAM_UNAVAILABLE', detail, { cause: error });
    }
  };
}

/** Undefined when they are not written as a URL writes them. */
function credentialsOf({ username, password }: URL): Pick<Proxy, 'user' | 'password'> | undefined {
  try {
    return { user: decodeURIComponent(username), password: decodeURIComponent(password) };
  } catch {
    return undefined;
  }
}

interface Proxy {
  readonly host: string;
  readonly port: number;
  readonly isTls: boolean;
  readonly user: string;
  readonly password: string;
}

async function openConnect(proxy: Proxy, target: TunnelTarget, signal: AbortSignal): Promise<Socket> {
  const authority = `${isIP(target.host) === 6 ? `[${target.host}]` : target.host}:${target.port}`;
  const credentials = Buffer.from(`${proxy.user}:${proxy.password}`).toString('base64');
  const tunnel = Promise.withResolvers<Socket>();
  const asked = (proxy.isTls ? httpsRequest : httpRequest)({
    host: proxy.host,
    port: proxy.port,
    method: 'CONNECT',
    path: authority,
    headers: {
      host: authority,
      ...(proxy.user === '' ? {} : { 'proxy-authorization': `Basic ${credentials}` }),
    },
    agent: false,
    signal,
  });
  asked.once('connect', ({ statusCode = 0 }, socket: Socket, head: Buffer) => {
    if (statusCode >= 200 && statusCode < 300 && head.length === 0) {
      tunnel.resolve(socket);
      return;
    }
    socket.destroy();
    tunnel.reject(new Error(`it answered CONNECT with ${statusCode}`));
  });
  // some proxies answer a refusal as they answer any request
  asked.once('response', (response) => {
    response.destroy();
    tunnel.reject(new Error(`it answered CONNECT with ${response.statusCode ?? 0}`));
  });
  asked.on('error', tunnel.reject);
  asked.end();
  return tunnel.promise;
}

const VERSION = 5;
const NO_PASSWORD = 0;
const PASSWORD = 2;
const CONNECT = 1;
const ADDRESS_BYTES: Readonly<Record<number, number>> = { 1: 4, 4: 16 };
const REFUSALS = [
  'it failed',
  'it does not allow that',
  'the network cannot be reached',
  'the host cannot be reached',
  'the connection was refused',
  'it took too long',
  'it knows no CONNECT',
  'it knows no such address',
];

async function openSocks(proxy: Proxy, target: TunnelTarget, signal: AbortSignal): Promise<Socket> {
  const socket = connect({ host: proxy.host, port: proxy.port, noDelay: true });
  try {
    await once(socket, 'connect', { signal });
    await greet(socket, proxy, signal);
    socket.write(
      Buffer.from([VERSION, CONNECT, 0, ...addressOf(target.host), target.port >> 8, target.port & 255]),
    );
    const [, code = 0, , kind = 0] = await read(socket, 4, signal);
    if (code !== 0) throw new Error(REFUSALS[code - 1] ?? `it refused with ${code}`);
    const length = kind === 3 ? ((await read(socket, 1, signal))[0] ?? 0) : ADDRESS_BYTES[kind];
    if (length === undefined) throw new Error('it answered with an address of no known kind');
    await read(socket, length + 2, signal);
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  }
}

async function greet(socket: Socket, { user, password }: Proxy, signal: AbortSignal): Promise<void> {
  const method = user === '' ? NO_PASSWORD : PASSWORD;
  socket.write(Buffer.from([VERSION, 1, method]));
  const [version, chosen] = await read(socket, 2, signal);
  if (version !== VERSION) throw new Error('it does not speak SOCKS5');
  if (chosen !== method) throw new Error(user === '' ? 'it wants a password' : 'it takes no password');
  if (method === NO_PASSWORD) return;
  socket.write(Buffer.from([1, ...sized(user), ...sized(password)]));
  const [, failure] = await read(socket, 2, signal);
  if (failure !== 0) throw new Error('it refused user name and password');
}

function addressOf(host: string): readonly number[] {
  if (isIP(host) === 4) return [1, ...host.split('.').map(Number)];
  return [3, ...sized(host)];
}

function sized(text: string): readonly number[] {
  const bytes = Buffer.from(text);
  if (bytes.length > 255) throw new Error('a name or password is longer than SOCKS5 can say');
  return [bytes.length, ...bytes];
}

/** Exactly so many bytes: what follows is TLS and not ours. */
async function read(socket: Socket, bytes: number, signal: AbortSignal): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const take = (): void => {
    const found: unknown = socket.read(bytes);
    // at the end there may be fewer
    if (!Buffer.isBuffer(found) || found.length < bytes) return;
    socket.off('readable', take);
    resolve(found);
  };
  const lost = (): void => reject(new Error('it closed the connection'));
  const aborted = (): void => reject(signal.reason);
  socket.on('readable', take).once('end', lost).once('close', lost).once('error', reject);
  signal.addEventListener('abort', aborted, { once: true });
  try {
    return await promise;
  } finally {
    socket.off('readable', take).off('end', lost).off('close', lost).off('error', reject);
    signal.removeEventListener('abort', aborted);
  }
}
