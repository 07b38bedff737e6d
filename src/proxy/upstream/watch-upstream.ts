/**
 * Which way watches go to the API server: each over a connection of its own while there are few, over shared HTTP/2 connections when there
 * are many. Own ones are quicker and nothing they meet ends another; shared ones take a third less memory.
 */
import { canShare, type SharedConnections } from './shared-connections.ts';
import { startExchange, type Exchange, type ExchangeOwner, type UpstreamRequest } from './upstream.ts';
import type { UpstreamPool } from './upstream-pool.ts';

export interface WatchUpstream {
  /**
   * Starts a watch as `startExchange` does, and counts it until `over` is called.
   * @throws TailcastError as `startExchange`
   */
  start(
    request: UpstreamRequest,
    owner: ExchangeOwner,
  ): { readonly exchange: Exchange; readonly over: () => void };
  /** Watches now open, those over shared connections among them, and these connections. */
  readonly size: { readonly watches: number; readonly shared: number; readonly connections: number };
  /** Takes no more over shared connections, which close with their last watch. */
  close(): void;
}

/** @param options.shareAfter watches with a connection of their own, above which new ones share */
export function createWatchUpstream(options: {
  readonly pool: UpstreamPool;
  readonly shared: SharedConnections;
  readonly shareAfter: number;
}): WatchUpstream {
  const { pool, shared, shareAfter } = options;
  let watches = 0;
  return {
    start(request, owner) {
      const elsewhere = (): Exchange => startExchange(request, owner, pool);
      const own = watches - shared.size.streams;
      const exchange =
        own >= shareAfter && shared.offered && canShare(request)
          ? shared.start(request, owner, elsewhere)
          : elsewhere();
      watches += 1;
      let isOver = false;
      return {
        exchange,
        over: () => {
          if (!isOver) watches -= 1;
          isOver = true;
        },
      };
    },
    get size() {
      const { connections, streams } = shared.size;
      return { watches, shared: streams, connections };
    },
    close: () => shared.close(),
  };
}
