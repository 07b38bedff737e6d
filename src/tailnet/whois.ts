/**
 * Identities from tailscaled. Responses are cached for a few seconds. Failures are not cached.
 *
 * If tailscaled does not know the port, a request needs 180 ms and blocks the main lock of tailscaled. Concurrent
 * requests are therefore limited, and the queue is short. The port is sent only for loopback addresses, where
 * tailscaled needs it to identify connections that it forwards itself.
 */
import { BoundedMap } from '../bounded-map.ts';
import { unlessAborted } from '../async/with-timeout.ts';
import { errorText, TailcastError } from '../errors.ts';
import { formatAddressPort, isLoopback } from './addresses.ts';
import { createLimiter } from '../async/limiter.ts';
import type { Identity, IdentitySource, Peer } from './identity.ts';
import type { LocalApi } from './local-api.ts';
import { parseWhoisAnswer } from './whois-answer.ts';

export interface WhoisOptions {
  readonly localApi: Pick<LocalApi, 'whois'>;
  /** Monotonic clock, in milliseconds. */
  readonly now?: () => number;
  /** Maximum age of a cached response, counted from its request. At most 10 s. */
  readonly ttlMs?: number;
  /** Maximum number of cached responses. The oldest response is removed first. */
  readonly maxEntries?: number;
  /** Maximum number of concurrent requests. */
  readonly maxConcurrent?: number;
  /** Maximum number of queued requests. Further requests are rejected with `IDENTITY_UNAVAILABLE`. */
  readonly maxQueued?: number;
  /** Maximum time of a request in milliseconds, including the time in the queue. */
  readonly timeoutMs?: number;
  /** True to accept nodes shared from other tailnets. */
  readonly allowShared?: boolean;
}

export interface Whois extends IdentitySource {
  /**
   * Drops all cached responses, and the responses of requests in progress. Called when nodes of the tailnet or the
   * state of tailscaled may have changed.
   */
  flush(): void;
}

const MAX_TTL_MS = 10_000;

interface Entry {
  readonly peer: Peer;
  readonly identity: Identity;
  readonly expiresAtMs: number;
}

interface Lookup {
  readonly peer: Peer;
  readonly answer: Promise<Identity>;
}

/**
 * @see IdentitySource for errors of `whois`. The response for a loopback port is reused only for the same `Peer`
 * object, because another client may get the port after the connection has closed.
 */
export function createWhois(options: WhoisOptions): Whois {
  const now = options.now ?? (() => performance.now());
  const ttlMs = Math.min(options.ttlMs ?? 5000, MAX_TTL_MS);
  const timeoutMs = options.timeoutMs ?? 5000;
  const allowShared = options.allowShared ?? false;
  const limiter = createLimiter({
    maxActive: options.maxConcurrent ?? 4,
    maxWaiting: options.maxQueued ?? 256,
    full: () => new TailcastError('IDENTITY_UNAVAILABLE', 'too many questions are waiting'),
  });
  const entries = new BoundedMap<Entry>(options.maxEntries ?? 10_000);
  let lookups = new Map<string, Lookup>();

  function remembered(question: string, peer: Peer): Identity | undefined {
    const entry = entries.get(question);
    if (entry === undefined) return undefined;
    if (entry.expiresAtMs > now() && samePeer(entry.peer, peer)) return entry.identity;
    entries.delete(question);
    return undefined;
  }

  async function ask(address: string, service: string | undefined): Promise<Identity> {
    const signal = AbortSignal.timeout(timeoutMs);
    const answer = await limiter.run(() => options.localApi.whois(address, signal, service), signal);
    if (answer.kind === 'unknown') throw new TailcastError('IDENTITY_UNKNOWN');
    return parseWhoisAnswer(answer.json, { allowShared });
  }

  function lookUp(question: string, peer: Peer, service: string | undefined): Promise<Identity> {
    const pending = lookups.get(question);
    if (pending !== undefined && samePeer(pending.peer, peer)) return pending.answer;
    const generation = lookups;
    const askedAtMs = now();
    const answer = ask(addressOf(peer), service).then(
      (identity) => {
        // If `flush` has replaced the map in the meantime, this response may be outdated and is not cached.
        if (generation === lookups) entries.set(question, { peer, identity, expiresAtMs: askedAtMs + ttlMs });
        return identity;
      },
      (error: unknown) => {
        throw unavailable(error);
      },
    );
    const lookup = { peer, answer };
    generation.set(question, lookup);
    void Promise.allSettled([answer]).then(() => {
      if (generation.get(question) === lookup) generation.delete(question);
    });
    return answer;
  }

  return {
    async whois(peer, signal, service) {
      signal.throwIfAborted();
      const address = addressOf(peer);
      const question = service === undefined ? address : `${service} ${address}`;
      // the request continues, because other callers may wait for it
      return remembered(question, peer) ?? (await unlessAborted(lookUp(question, peer, service), signal));
    },
    flush() {
      entries.clear();
      lookups = new Map();
    },
  };
}

function addressOf(peer: Peer): string {
  const byPort = peer.source === 'socket' && isLoopback(peer.address);
  return byPort ? formatAddressPort(peer.address, peer.port) : peer.address;
}

function samePeer(a: Peer, b: Peer): boolean {
  return a === b || !(b.source === 'socket' && isLoopback(b.address));
}

function unavailable(error: unknown): TailcastError {
  if (error instanceof TailcastError && error.code !== 'TAILNET_UNAVAILABLE') return error;
  const timedOut = error instanceof Error && error.name === 'TimeoutError';
  const detail = error instanceof TailcastError ? error.detail : errorText(error);
  return new TailcastError('IDENTITY_UNAVAILABLE', timedOut ? 'no response in time' : detail, {
    cause: error,
  });
}
