/**
 * Connections to an API server through the `proxy-url` of a kubeconfig. The supported protocols are those of
 * client-go: HTTP CONNECT (RFC 9110 section 9.3.6), HTTP CONNECT over TLS, and SOCKS5 (with the `socks` package). The
 * proxy resolves host names.
 */
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { connect, isIP, type Socket } from 'node:net';
import { TailcastError, errorText } from '../errors.ts';

/** Opens a connection to the API server's host and port, without TLS. */
export type OpenTunnel = (signal: AbortSignal) => Promise<Socket>;

export interface TunnelTarget {
  /** Hostname or address; IPv6 without brackets. */
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
 * @param text value of `proxy-url`
 * @param where name with which errors refer to the setting
 * @throws TailcastError `CONFIG_INVALID`
 */
export function openProxyTunnel(text: string, where: string, target: TunnelTarget): OpenTunnel {
  const url = URL.parse(text);
  const port = url === null ? undefined : PORTS[url.protocol];
  const credentials = url === null ? undefined : credentialsOf(url);
  const isUsable =
    url !== null &&
    url.hostname !== '' &&
    [target.host, ...Object.values(credentials ?? {})].every(fitsSocks);
  if (!isUsable || port === undefined || credentials === undefined) {
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
      // Without an `error` listener, an error would terminate the process before the caller adds its own listener.
      socket.on('error', () => undefined);
      return socket;
    } catch (error) {
      signal.throwIfAborted();
      // The message does not contain the URL, because a URL may contain a password.
      const detail = `the proxy ${proxy.host}:${proxy.port}: ${errorText(error)}`;
      throw new TailcastError('UPSTREAM_UNAVAILABLE', detail, { cause: error });
    }
  };
}

/** True if SOCKS5 can send `text`. The protocol stores the length of a text in one byte. */
function fitsSocks(text: string): boolean {
  return Buffer.byteLength(text) <= 255;
}

/** Returns undefined if the credentials contain an invalid percent-encoding. */
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
  // Some proxies refuse CONNECT with a normal response.
  asked.once('response', (response) => {
    response.destroy();
    tunnel.reject(new Error(`it answered CONNECT with ${response.statusCode ?? 0}`));
  });
  asked.on('error', tunnel.reject);
  asked.end();
  return tunnel.promise;
}

async function openSocks(proxy: Proxy, target: TunnelTarget, signal: AbortSignal): Promise<Socket> {
  const { SocksClient } = await import('socks');
  signal.throwIfAborted();
  const socket = connect({ host: proxy.host, port: proxy.port, noDelay: true });
  const abort = (): void => void socket.destroy();
  signal.addEventListener('abort', abort, { once: true });
  try {
    await once(socket, 'connect', { signal });
    await SocksClient.createConnection({
      command: 'connect',
      proxy: { host: proxy.host, port: proxy.port, type: 5, userId: proxy.user, password: proxy.password },
      destination: target,
      existing_socket: socket,
    });
    return socket;
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
