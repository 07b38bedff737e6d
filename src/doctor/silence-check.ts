/**
 * Checks that a TCP proxy in front of the gateway keeps silent connections open. The check measures one connection
 * through the proxy, and reads no configuration of the proxy.
 */
import { once } from 'node:events';
import { isIP } from 'node:net';
import { setTimeout as wait } from 'node:timers/promises';
import { connect, type TLSSocket } from 'node:tls';
import { errorText } from '../errors.ts';
import { failed, ok, warning, type Check, type CheckVerdict } from './checks.ts';

export interface SilenceFacts {
  /** URL of the gateway for clients. */
  readonly through: URL;
  readonly monotonicMs: () => number;
  /** Duration of the silence. Default 80 s, because the gateway closes an idle connection after 90 s. */
  readonly silentMs?: number;
}

const SILENT_MS = 80_000;
/** Time for connection, handshake and response, in addition to the silence, in milliseconds. */
const RESPONSE_MS = 15_000;

const UNREACHABLE =
  'run the command on a machine that may use the gateway, with the address that kubectl uses';
const CUT =
  'raise the timeout of the proxy for silent connections to hours; for haproxy, set `timeout tunnel 24h` as in ' +
  'deploy/routers/haproxy.cfg';

/** Returns the check that the proxy keeps connections open while the connections carry no data. */
export function silenceCheck(facts: SilenceFacts): Check {
  return {
    id: 'silence',
    title: 'silent connections',
    timeoutMs: (facts.silentMs ?? SILENT_MS) + RESPONSE_MS,
    remedy: UNREACHABLE,
    run: (signal) => measure(facts, signal),
  };
}

async function measure(facts: SilenceFacts, signal: AbortSignal): Promise<CheckVerdict> {
  const { hostname, host, port } = facts.through;
  const silentMs = facts.silentMs ?? SILENT_MS;
  const address = hostname.replace(/^\[(.*)\]$/, '$1');
  const socket = connect({
    host: address,
    port: Number(port || '443'),
    servername: isIP(address) === 0 ? address : '',
    // The certificate is not verified, because the request contains no secret, and another check examines the
    // certificate.
    rejectUnauthorized: false,
  });
  try {
    await once(socket, 'secureConnect', { signal });
    socket.write(`GET /-/clusters HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
    const received: readonly unknown[] = await once(socket, 'data', { signal });
    if (/^connection: close\r$/im.test(String(received[0]))) {
      return failed(`${host} closes the connection after its response`, UNREACHABLE);
    }
    const silence = await silenceOf(socket, { ...facts, silentMs }, signal);
    if (silence === undefined) {
      return ok(
        `${host} kept a connection for ${silentMs / 1000} s without data; longer timeouts are not measured`,
      );
    }
    return warning(`${host} closed a connection after ${Math.round(silence / 1000)} s without data`, CUT);
  } catch (error) {
    signal.throwIfAborted();
    return failed(`${host} did not respond: ${errorText(error)}`, UNREACHABLE);
  } finally {
    socket.destroy();
  }
}

/** Returns the time from the last data to the end of the connection; undefined if it stays open. */
async function silenceOf(
  socket: TLSSocket,
  { silentMs, monotonicMs }: Required<Pick<SilenceFacts, 'silentMs' | 'monotonicMs'>>,
  signal: AbortSignal,
): Promise<number | undefined> {
  let lastMs = monotonicMs();
  socket.on('data', () => (lastMs = monotonicMs()));
  const elapsed = (): number => monotonicMs() - lastMs;
  // a reset ends the connection as well
  const closed = Promise.race([once(socket, 'end'), once(socket, 'close')]).then(elapsed, elapsed);
  const over = new AbortController();
  try {
    return await Promise.race([
      closed,
      wait(silentMs, undefined, { signal: AbortSignal.any([signal, over.signal]) }),
    ]);
  } finally {
    over.abort();
  }
}
