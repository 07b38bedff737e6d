/**
 * Identifies viewers, checks the viewer rules, and stores an event of each access before the response.
 *
 * The viewer is usually the peer of the connection. Only a trusted gateway may name another viewer: the user of its
 * portal. If any other peer sends headers that name a viewer, the recorder ignores these headers.
 */
import { hash } from 'node:crypto';
import { BoundedMap } from '../../bounded-map.ts';
import { TailcastError, errorText } from '../../errors.ts';
import { createKeyedCounter } from '../../keyed-counter.ts';
import { decodeNamedViewer, type NamedViewer } from '../../wire/recorder-api/named-viewer.ts';
import type { CatalogEntry } from '../library/catalog-entry.ts';
import { isWithin, type Scope } from '../library/scope.ts';
import type { OrderAction } from '../../wire/recorder-api/session-order.ts';
import type { ReviewChange } from '../../wire/recorder-api/review.ts';
import type { SearchChange } from '../../wire/recorder-api/saved-search.ts';
import { connectionPeer, type ConnectionPeer, type PeerSocket } from './connection-peer.ts';
import { createViewings } from './viewings.ts';
import {
  mayEnd,
  mayNameViewers,
  mayReview,
  ownerOf,
  scopeOf,
  type ViewRule,
  type Viewer,
} from './viewing.ts';

/** Kind of access. */
export type AccessAction =
  | `review-${ReviewChange['kind']}`
  | `order-${OrderAction}`
  | `searches-${SearchChange['kind']}`
  | 'list'
  | 'thumbnails'
  | 'show'
  | 'play'
  | 'download'
  | 'events'
  | 'search'
  | 'index';

/** Parts of a request that identify the viewer. */
export interface ViewerRequest {
  readonly socket: PeerSocket;
  /** Names and values of the headers, alternating, as received. */
  readonly rawHeaders: readonly string[];
}

/** Parts of a request that an access event contains. */
export interface ViewedRequest {
  readonly url: string;
  /** Decoded query parameters, as the handler of the request reads them. */
  readonly query?: unknown;
}

/** Identifies the peer of a connection. Returns undefined for a peer that may see nothing. */
export type IdentifyViewer = (from: ConnectionPeer, signal: AbortSignal) => Promise<Viewer | undefined>;

export interface ViewerAccessOptions {
  readonly identify: IdentifyViewer;
  readonly rules: readonly ViewRule[];
  /** Tags and stable node IDs of gateways that may name viewers. */
  readonly trustedGateways: readonly string[];
  /** Stores an event durably. @throws TailcastError `STORE_FAILED` */
  readonly record: (event: string) => Promise<void>;
  /** Returns the time in milliseconds since the epoch. */
  readonly nowMs: () => number;
  /** Returns the time of a monotonic clock, in milliseconds. */
  readonly monotonicMs?: () => number;
  readonly timeoutMs: number;
  /** Interval of the checks of a running view, in milliseconds. */
  readonly recheckMs: number;
}

/** Identification, rules and access events of viewers. */
export type ViewerAccess = ReturnType<typeof createViewerAccess>;

/**
 * Maximum age of the identity of a connection, in milliseconds. `tailnet/whois` caches responses for another 5 s, so a
 * removed viewer loses access within 15 s.
 */
const MAX_IDENTITY_AGE_MS = 10_000;

/**
 * Maximum number of requests in progress. Each request may use an open file and a buffer. Each viewer may use at most
 * half of the request slots that other viewers leave free.
 */
const MAX_REQUESTS = 512;

/**
 * Maximum length of the path in an access event, in characters. The rest of a longer path is omitted. The event also
 * contains all query parameters, because a viewer could put other text before the text of a search.
 */
const MAX_PATH = 1024;
/**
 * Allowance of one viewer: the maximum size of the access events that the viewer can cause at once, in bytes, and the
 * bytes that are added every second. A usual event has about 500 bytes.
 */
const MAX_EVENT_BYTES = 2 * 1024 ** 2;
const EVENT_BYTES_PER_SECOND = 1024;
/** Maximum number of viewers whose used allowance is remembered. */
const MAX_VIEWERS = 10_000;

/** Creates the access control of a recorder. */
export function createViewerAccess(options: ViewerAccessOptions) {
  const { rules, nowMs, monotonicMs = () => performance.now() } = options;
  const viewings = createViewings(nowMs);
  const running = createKeyedCounter();
  const spend = createAllowance(monotonicMs);
  /** Cached viewer of each connection. */
  const known = new WeakMap<PeerSocket, { readonly viewer: Viewer; readonly untilMs: number }>();
  async function identifyPeer(socket: PeerSocket): Promise<Viewer> {
    const cached = known.get(socket);
    const startMs = monotonicMs();
    if (cached !== undefined && startMs < cached.untilMs) return cached.viewer;
    const peer = connectionPeer(socket);
    const { address } = peer;
    let viewer: Viewer | undefined;
    try {
      viewer = await options.identify(peer, AbortSignal.timeout(options.timeoutMs));
    } catch (error) {
      throw new TailcastError('IDENTITY_UNAVAILABLE', errorText(error), { cause: error });
    }
    if (viewer === undefined)
      throw new TailcastError('VIEW_REFUSED', `the tailnet does not know who you are (address ${address})`);
    const found = { ...viewer, address };
    known.set(socket, { viewer: found, untilMs: startMs + MAX_IDENTITY_AGE_MS });
    return found;
  }
  async function identify({ socket, rawHeaders }: ViewerRequest): Promise<Viewer> {
    const caller = await identifyPeer(socket);
    if (!mayNameViewers(options.trustedGateways, caller)) return caller;
    const named = decodeNamedViewer(rawHeaders);
    if (named === 'malformed') {
      throw new TailcastError('VIEW_REFUSED', 'the gateway sent an invalid identity');
    }
    return named === undefined ? caller : throughGateway(named, caller);
  }
  return {
    /** Identifies the viewer. @throws TailcastError `IDENTITY_UNAVAILABLE`, `VIEW_REFUSED` */
    viewer: identify,
    /**
     * Counts a request in progress. The returned function must be called when the request ends.
     * @throws TailcastError `RECORDER_BUSY` if the viewer has too many requests in progress
     */
    admit(viewer: Viewer): () => void {
      const leave = running.takeShare(ownerOf(viewer), MAX_REQUESTS);
      if (leave !== undefined) return leave;
      throw new TailcastError(
        'RECORDER_BUSY',
        'you have too many requests in progress; try again in a moment',
      );
    },
    /**
     * Returns the recordings that the viewer may see. For data that belongs to no recording, such as events, the viewer
     * needs the scope `everything`.
     */
    scope: (viewer: Viewer): Scope => scopeOf(rules, viewer),
    /** True if the viewer may write comments and tags. */
    mayReview: (viewer: Viewer): boolean => mayReview(rules, viewer),
    /** True if the viewer may end, pause and resume sessions. */
    mayEnd: (viewer: Viewer): boolean => mayEnd(rules, viewer),
    /**
     * Checks regularly that a viewer may still see a recording, while a view runs. Calls `onLost` once if the viewer
     * must not see it any more or cannot be identified.
     * @returns a function that ends the checks
     */
    watch(request: ViewerRequest, { recording }: CatalogEntry, onLost: () => void): () => void {
      const check = async (): Promise<void> => {
        const viewer = await identify(request).catch(() => undefined);
        if (viewer !== undefined && isWithin(scopeOf(rules, viewer), recording)) return;
        clearInterval(timer);
        onLost();
      };
      const timer = setInterval(() => void check(), options.recheckMs);
      return () => clearInterval(timer);
    },
    /**
     * Records an access. Resolves when the event is durable. @throws TailcastError `STORE_FAILED`, or `RECORDER_BUSY`
     * if the viewer causes too many events. After an error, the caller must not send data
     */
    saw(viewer: Viewer, action: AccessAction, request: ViewedRequest, entry?: CatalogEntry): Promise<void> {
      const record = async (): Promise<void> => {
        const event = describeAccess(viewer, action, request, entry, nowMs());
        spend(ownerOf(viewer), event.length);
        await options.record(event);
      };
      const key = viewingOf(viewer, action, request.url, entry);
      return key === undefined ? record() : viewings.once(key, record);
    },
  };
}

/** Returns a function that takes bytes from a viewer's allowance. @throws TailcastError `RECORDER_BUSY` */
function createAllowance(monotonicMs: () => number): (owner: string, bytes: number) => void {
  const spent = new BoundedMap<{ readonly bytes: number; readonly atMs: number }>(MAX_VIEWERS);
  return (owner, bytes) => {
    const atMs = monotonicMs();
    const last = spent.get(owner);
    const regained = ((atMs - (last?.atMs ?? atMs)) / 1000) * EVENT_BYTES_PER_SECOND;
    const sum = Math.max(0, (last?.bytes ?? 0) - regained) + bytes;
    if (sum > MAX_EVENT_BYTES)
      throw new TailcastError('RECORDER_BUSY', 'you cause too many access events; try again in a moment');
    spent.set(owner, { bytes: sum, atMs });
  };
}

/** Returns true if the action changes data or a session. */
function isChange(action: AccessAction): boolean {
  return /^(?:review|searches|order)-/.test(action);
}

/** Returns a key that all requests of one viewing share. Returns undefined if each request gets its own event. */
function viewingOf(
  { node, nodeId, address, user, tags, gateway }: Viewer,
  action: AccessAction,
  path: string,
  entry: CatalogEntry | undefined,
): string | undefined {
  if (action === 'download' || action === 'events') return undefined;
  // A page that watches a session repeats its `order-watch` request, so these requests are one viewing.
  if (isChange(action) && action !== 'order-watch') return undefined;
  if (action === 'search' && !/[?&]view=1(?:&|$)/.test(path)) return undefined;
  const key = JSON.stringify([
    [node, nodeId, address, user, tags, gateway?.nodeId],
    action,
    // Requests for further pages of a list belong to the same viewing. Each search query is a separate viewing, even
    // within one recording.
    action === 'search' || entry === undefined
      ? path.replace(/([?&])cursor=[^&]*&?/, '$1')
      : entry.recording.id,
  ]);
  // Return a hash, because a path may be long and the keys stay in memory.
  return hash('sha256', key, 'base64');
}

function throughGateway({ user, tags, ...named }: NamedViewer, gateway: Viewer): Viewer {
  const { node, nodeId, address = '' } = gateway;
  return { ...named, ...(user === undefined ? { tags } : { user }), gateway: { node, nodeId, address } };
}

/**
 * Returns the access event in the format of uploaded events, so that one query finds access events and uploaded events.
 */
function describeAccess(
  { node, nodeId, address = '', user, tags, gateway }: Viewer,
  action: AccessAction,
  { url, query }: ViewedRequest,
  entry: CatalogEntry | undefined,
  nowMs: number,
): string {
  const source = {
    node,
    nodeID: nodeId,
    address,
    ...(user === undefined ? {} : { nodeUser: user }),
    ...(tags === undefined ? {} : { nodeTags: tags }),
  };
  const event = {
    type: 'tailcast-recording-access',
    timestamp: Math.floor(nowMs / 1000),
    action,
    ...(entry === undefined ? {} : { recording: entry.recording.id }),
    request: {
      method: isChange(action) ? 'POST' : 'GET',
      path: url.slice(0, MAX_PATH),
      ...(url.length > MAX_PATH ? { pathTruncatedFrom: url.length } : {}),
      ...(url.includes('?') ? { queryParameters: valuesByName(query) } : {}),
    },
    source,
    ...(gateway === undefined
      ? {}
      : { gateway: { node: gateway.node, nodeID: gateway.nodeId, address: gateway.address } }),
  };
  return JSON.stringify({ event });
}

function valuesByName(query: unknown): Readonly<Record<string, readonly unknown[]>> {
  const pairs: readonly [string, unknown][] = Object.entries(query ?? {});
  return Object.fromEntries(pairs.map(([name, value]) => [name, [value].flat()]));
}
