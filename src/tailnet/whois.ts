/**
 * Who is calling, asked of tailscaled. Answers are kept for a few seconds, failures never.
 *
 * A question with a port that tailscaled does not know costs it 180 ms under its main lock. So at most a few questions are
 * under way, and the line is short. A port is sent for a loopback address only, where tailscaled tells its own forwards
 * apart by it; everyone else is asked for by address.
 */
import { unlessAborted } from '../async/within.ts';
import { errorText, TailcastError } from '../errors.ts';
import { formatAddressPort, isLoopback } from './addresses.ts';
import { createGatekeeper } from '../async/gatekeeper.ts';
import type { Identity, IdentitySource, Peer } from './identity.ts';
import type { LocalApi } from './local-api.ts';
import { parseWhoisAnswer } from './whois-answer.ts';

export interface WhoisOptions {
  readonly localApi: Pick<LocalApi, 'whois'>;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
  /** How long an answer is used, counted from the moment the question was put. At most 10 s. */
  readonly ttlMs?: number;
  /** Answers kept; the oldest goes when there is no room. */
  readonly maxEntries?: number;
  /** Questions under way at once. */
  readonly maxConcurrent?: number;
  /** Questions in line; one more is refused with `IDENTITY_UNAVAILABLE`. */
  readonly maxQueued?: number;
  /** For one question, the time in line included. */
  readonly timeoutMs?: number;
  /** Accept nodes shared in from other tailnets. */
  readonly allowShared?: boolean;
}

export interface Whois extends IdentitySource {
  /** Forgets every answer, those still on their way included: the tailnet has changed. */
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
 * @see IdentitySource for what `whois` throws. An answer about a loopback port is only reused for the very same `Peer`
 * object, because the port may belong to somebody else as soon as the connection is gone.
 */
export function createWhois(options: WhoisOptions): Whois {
  const now = options.now ?? (() => performance.now());
  const ttlMs = Math.min(options.ttlMs ?? 5000, MAX_TTL_MS);
  const maxEntries = options.maxEntries ?? 10_000;
  const timeoutMs = options.timeoutMs ?? 5000;
  const allowShared = options.allowShared ?? false;
  const gatekeeper = createGatekeeper({
    maxActive: options.maxConcurrent ?? 4,
    maxWaiting: options.maxQueued ?? 256,
    full: () => new TailcastError('IDENTITY_UNAVAILABLE', 'too many questions are waiting'),
  });
  const entries = new Map<string, Entry>();
  let lookups = new Map<string, Lookup>();

  function remembered(question: string, peer: Peer): Identity | undefined {
    const entry = entries.get(question);
    if (entry === undefined) return undefined;
    if (entry.expiresAtMs > now() && samePeer(entry.peer, peer)) return entry.identity;
    entries.delete(question);
    return undefined;
  }

  function remember(question: string, entry: Entry): void {
    entries.delete(question);
    entries.set(question, entry);
    if (entries.size <= maxEntries) return;
    const [oldest] = entries.keys();
    if (oldest !== undefined) entries.delete(oldest);
  }

  async function ask(question: string): Promise<Identity> {
    const signal = AbortSignal.timeout(timeoutMs);
    const answer = await gatekeeper.run(() => options.localApi.whois(question, signal), signal);
    if (answer.kind === 'unknown') throw new TailcastError('IDENTITY_UNKNOWN');
    return parseWhoisAnswer(answer.json, { allowShared });
  }

  function lookUp(question: string, peer: Peer): Promise<Identity> {
    const underWay = lookups.get(question);
    if (underWay !== undefined && samePeer(underWay.peer, peer)) return underWay.answer;
    const generation = lookups;
    const askedAtMs = now();
    const answer = ask(question).then(
      (identity) => {
        // A flush has replaced the map: this answer may be from before the change.
        if (generation === lookups) remember(question, { peer, identity, expiresAtMs: askedAtMs + ttlMs });
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
    async whois(peer, signal) {
      signal.throwIfAborted();
      const question = questionFor(peer);
      // the look-up itself goes on for the others who wait
      return remembered(question, peer) ?? (await unlessAborted(lookUp(question, peer), signal));
    },
    flush() {
      entries.clear();
      lookups = new Map();
    },
  };
}

function questionFor(peer: Peer): string {
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
  return new TailcastError('IDENTITY_UNAVAILABLE', timedOut ? 'no answer in time' : detail, { cause: error });
}
