/**
 * Finds recorder nodes by tag, for grants with a tag and without addresses. Only some control servers add the addresses
 * (`recorderAddrs`).
 */
import { isIP } from 'node:net';
import type { LocalApi } from './local-api.ts';
import { formatAddressPort, normaliseAddress, parseAddressPort } from './addresses.ts';
import { createRefreshing } from './refreshing.ts';
import type { TailnetStatus } from './tailnet-status.ts';

/** A recorder with its addresses, IPv4 first. */
export interface TaggedRecorder {
  readonly name: string;
  /** Addresses of the recorder (`ip:port` or `[ipv6]:port`); at least one. */
  readonly addresses: readonly string[];
}

/** Port of recorders on their tailnet addresses. */
const RECORDER_PORT = 80;

/**
 * Returns the online nodes with one of `tags`, sorted by address, without duplicates. Pure.
 * @param tags tags in the form `tag:…`
 */
export function resolveRecorderTags(
  status: TailnetStatus,
  tags: readonly string[],
): readonly TaggedRecorder[] {
  return status.peers
    .filter((peer) => peer.online && peer.tags.some((tag) => tags.includes(tag)))
    .map((peer) => ({
      name: peer.name,
      addresses: peer.addresses
        .toSorted((a, b) => isIP(a) - isIP(b))
        .map((address) => formatAddressPort(address, RECORDER_PORT)),
    }))
    .filter(({ addresses }) => addresses.length > 0)
    .toSorted((a, b) => (a.addresses[0] ?? '').localeCompare(b.addresses[0] ?? '', 'en', { numeric: true }));
}

/** True if the node at `address` (`ip:port`) has one of `tags`. That node may be this node itself. Pure. */
function nodeCarries(status: TailnetStatus, address: string, tags: readonly string[]): boolean {
  const wanted = normaliseAddress(parseAddressPort(address)?.address ?? '');
  if (wanted === undefined) return false;
  const nodes = status.self === undefined ? status.peers : [status.self, ...status.peers];
  const owner = nodes.find(({ addresses }) => addresses.some((own) => normaliseAddress(own) === wanted));
  return owner?.tags.some((tag) => tags.includes(tag)) === true;
}

/**
 * Creates a resolver that uses the status of tailscaled. The status is cached for `maxAgeMs`. Every method rejects with
 * a TailcastError `TAILNET_UNAVAILABLE` if the daemon does not respond.
 */
export function createTagResolver(options: {
  readonly localApi: Pick<LocalApi, 'status'>;
  /** Cancels a request. */
  readonly signal: AbortSignal;
  readonly maxAgeMs?: number;
  /** Monotonic clock, in milliseconds. */
  readonly now?: () => number;
}) {
  const now = options.now ?? (() => performance.now());
  const maxAgeMs = options.maxAgeMs ?? 3000;
  const status = createRefreshing<{ readonly status: TailnetStatus; readonly untilMs: number }>({
    async load() {
      const untilMs = now() + maxAgeMs;
      return { status: await options.localApi.status(options.signal), untilMs };
    },
    usable: ({ untilMs }) => now() < untilMs,
    refreshAfterMs: maxAgeMs,
    retryAfterMs: 0,
    now,
    // Never called, because no background reload starts: a cached value becomes unusable before a reload is due.
    onBackgroundFailure: () => undefined,
  });
  return {
    async resolve(tags: readonly string[]): Promise<readonly TaggedRecorder[]> {
      if (tags.length === 0) return [];
      return resolveRecorderTags((await status.get()).status, tags);
    },
    /** See {@link nodeCarries}. */
    async carries(address: string, tags: readonly string[]): Promise<boolean> {
      return nodeCarries((await status.get()).status, address, tags);
    },
  };
}
