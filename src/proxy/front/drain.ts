/**
 * Shutdown that lets requests finish. The gateway closes idle connections and announces the shutdown on busy
 * connections (GOAWAY or `Connection: close`). It waits for in-flight requests, sessions and late deliveries. When the
 * time is nearly over, it ends the remaining sessions with a message to their users.
 *
 * A connection that was accepted shortly before the shutdown may have its first request in flight. Clients do not retry
 * if the connection closes at this moment, so the gateway waits for one request on such a connection.
 */
import type { ServerHttp2Session } from 'node:http2';
import type { RecorderClient } from '../../recording/recorder-client.ts';
import type { PlainConnection } from './plain.ts';
import type { SessionRegistry } from '../session/session-registry.ts';

export interface DrainResult {
  readonly cutRequests: number;
  readonly cutSessions: number;
}

/** Time before the end of `limitMs` in which the remaining sessions end after their users got the message. */
const FAREWELL_MS = 2000;
const POLL_MS = 25;
/** Time for TLS handshakes in progress, and for the first request after such a handshake. */
const ARRIVAL_MS = 2000;

/**
 * Resolves when no request, session or late delivery is left, or after `limitMs`. Closes only idle connections, and
 * ends the remaining sessions shortly before `limitMs`.
 */
export async function drainConnections(options: {
  readonly plain: ReadonlySet<PlainConnection>;
  readonly sessions: ReadonlySet<ServerHttp2Session>;
  readonly load: { readonly inFlight: number };
  readonly interactive: Pick<SessionRegistry, 'size' | 'endAll'> | undefined;
  readonly late?: Pick<RecorderClient['late'], 'sessions' | 'hurry'> | undefined;
  /** Returns the number of connections whose TLS handshake is in progress. */
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
  // closes the HTTP/2 connections that were accepted during the wait
  for (const session of sessions) session.close();
  await waitWhile(busy, Math.max(0, timeMs - (performance.now() - startedMs)));
  if (!recorded()) {
    void interactive?.endAll('the gateway is shutting down');
    await waitWhile(() => !recorded(), Math.min(FAREWELL_MS, limitMs));
  }
  return { cutRequests: load.inFlight, cutSessions: interactive?.size ?? 0 };
}

/**
 * Waits until the condition is false. Polls, because several modules own the counters and a process shuts
 * down only once.
 */
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
