/**
 * Shutdown without interrupting requests: no new connections, GOAWAY and `Connection: close` on existing ones,
 * time for in-flight requests and late deliveries, a message to interactive sessions, then the end.
 *
 * A connection that was accepted shortly before may have its first request in flight. Closing it would be an
 * error that clients do not retry, so it gets time for one request.
 */
import type { ServerHttp2Session } from 'node:http2';
import type { RecorderClient } from '../../recording/recorder-client.ts';
import type { PlainConnection } from './plain.ts';
import type { SessionRegistry } from '../session/session-registry.ts';

export interface DrainResult {
  readonly cutRequests: number;
  readonly cutSessions: number;
}

/** Part of the limit that is reserved for sessions to end after the message. */
const FAREWELL_MS = 2000;
const POLL_MS = 25;
/** Time for handshakes in progress, and for the first request after them. */
const ARRIVAL_MS = 2000;

/** Resolves when no request is in flight, or when the limit is over; closes only idle connections. */
export async function drainConnections(options: {
  readonly plain: ReadonlySet<PlainConnection>;
  readonly sessions: ReadonlySet<ServerHttp2Session>;
  readonly load: { readonly inFlight: number };
  readonly interactive: Pick<SessionRegistry, 'size' | 'endAll'> | undefined;
  readonly late?: RecorderClient['late'] | undefined;
  /** Returns the number of connections in a handshake, which arrive soon. */
  readonly arriving?: (() => number) | undefined;
  readonly limitMs: number;
}): Promise<DrainResult> {
  const { plain, sessions, load, interactive, late, arriving, limitMs } = options;
  for (const connection of plain) connection.retire();
  for (const session of sessions) session.close();
  late?.hurry();
  const recorded = (): boolean => (interactive?.size ?? 0) === 0 && (late?.sessions ?? 0) === 0;
  const busy = (): boolean => load.inFlight > 0 || !recorded();
  const coming = (): boolean => (arriving?.() ?? 0) > 0 || [...plain].some((connection) => connection.fresh);
  const timeMs = Math.max(0, limitMs - FAREWELL_MS);
  const startedMs = performance.now();
  await waitWhile(coming, Math.min(ARRIVAL_MS, timeMs));
  // sessions that arrived in the meantime
  for (const session of sessions) session.close();
  await waitWhile(busy, Math.max(0, timeMs - (performance.now() - startedMs)));
  if (!recorded()) {
    void interactive?.endAll('the gateway is shutting down');
    await waitWhile(() => !recorded(), Math.min(FAREWELL_MS, limitMs));
  }
  return { cutRequests: load.inFlight, cutSessions: interactive?.size ?? 0 };
}

/** Polls, because the counters have several owners and this happens once per process. */
async function waitWhile(condition: () => boolean, limitMs: number): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const deadline = setTimeout(resolve, limitMs);
  const poll = setInterval(() => {
    if (!condition()) resolve();
  }, POLL_MS);
  if (!condition()) resolve();
  await promise;
  clearTimeout(deadline);
  clearInterval(poll);
}
