/**
 * Ending without cutting anything that would end by itself: no new connections, GOAWAY and `Connection: close` on those
 * there are, time for what is under way and for recordings that wait for a recorder, a word to interactive sessions, then
 * the end.
 *
 * A connection that was accepted a moment before has its first request on the way: closing it would be an error that no
 * client repeats by itself, so it gets the time for one request.
 */
import type { ServerHttp2Session } from 'node:http2';
import type { RecorderClient } from '../../recording/recorder-client.ts';
import type { PlainConnection } from './plain.ts';
import type { SessionRegistry } from '../session/session-registry.ts';

export interface DrainResult {
  readonly cutRequests: number;
  readonly cutSessions: number;
}

/** Part of the limit that is kept for sessions to end after they have been told. */
const FAREWELL_MS = 2000;
const POLL_MS = 25;
/** For handshakes that had begun, and for the first request after one. */
const ARRIVAL_MS = 2000;

/** Resolves when nothing is under way any more, or when the limit is over; closes nothing that is busy. */
export async function drainConnections(options: {
  readonly plain: ReadonlySet<PlainConnection>;
  readonly sessions: ReadonlySet<ServerHttp2Session>;
  readonly load: { readonly inFlight: number };
  readonly interactive: Pick<SessionRegistry, 'size' | 'endAll'> | undefined;
  readonly late?: RecorderClient['late'] | undefined;
  /** Connections in a handshake: they are handed over soon. */
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
  // those that came meanwhile
  for (const session of sessions) session.close();
  await waitWhile(busy, Math.max(0, timeMs - (performance.now() - startedMs)));
  if (!recorded()) {
    void interactive?.endAll('the gateway is shutting down');
    await waitWhile(() => !recorded(), Math.min(FAREWELL_MS, limitMs));
  }
  return { cutRequests: load.inFlight, cutSessions: interactive?.size ?? 0 };
}

/** Polls: what is waited for are counters of several owners, and this happens once in the life of a process. */
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
