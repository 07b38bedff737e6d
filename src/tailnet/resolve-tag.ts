/**
 * Recorder nodes by tag, for grants that name a tag and no addresses: some control servers fill in `recorderAddrs`,
 * others leave it to us.
 */
import { isIP } from 'node:net';
import type { LocalApi } from './local-api.ts';
import { formatAddressPort, normaliseAddress, parseAddressPort } from './addresses.ts';
import { createRefreshing } from './refreshing.ts';
import type { TailnetStatus } from './tailnet-status.ts';

/** One recorder: its addresses lead to the same place, IPv4 first. */
export interface TaggedRecorder {
  readonly name: string;
  /** `ip:port` or `[ipv6]:port`; at least one. */
  readonly addresses: readonly string[];
}

/** Recorders listen on port 80 of their tailnet addresses. */
const RECORDER_PORT = 80;

/**
 * The nodes that carry one of `tags` and are online, in the order of their addresses, each once. Pure.
 * @param tags `tag:…`
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

/** Whether the node that has the address of `address`, an `ip:port`, carries one of `tags`; this node is one too. Pure. */
function nodeCarries(status: TailnetStatus, address: string, tags: readonly string[]): boolean {
  const wanted = normaliseAddress(parseAddressPort(address)?.address ?? '');
  if (wanted === undefined) return false;
  const nodes = status.self === undefined ? status.peers : [status.self, ...status.peers];
  const owner = nodes.find(({ addresses }) => addresses.some((own) => normaliseAddress(own) === wanted));
  return owner?.tags.some((tag) => tags.includes(tag)) === true;
}

/** Every method rejects with a TailcastError `TAILNET_UNAVAILABLE` when the daemon does not answer. */
export interface TagResolver {
  resolve(tags: readonly string[]): Promise<readonly TaggedRecorder[]>;
  /** See {@link nodeCarries}. */
  carries(address: string, tags: readonly string[]): Promise<boolean>;
}

/**
 * Answers from the daemon's status, which is kept for a moment.
 */
export function createTagResolver(options: {
  readonly localApi: Pick<LocalApi, 'status'>;
  /** Ends a question under way. */
  readonly signal: AbortSignal;
  readonly maxAgeMs?: number;
  /** Monotonic milliseconds. */
  readonly now?: () => number;
}): TagResolver {
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
    // Never reached: a value is unusable before it is due for a refresh.
    onBackgroundFailure: () => undefined,
  });
  return {
    async resolve(tags) {
      if (tags.length === 0) return [];
      return resolveRecorderTags((await status.get()).status, tags);
    },
    async carries(address, tags) {
      return nodeCarries((await status.get()).status, address, tags);
    },
  };
}
