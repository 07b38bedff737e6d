/**
 * Asks who reads, holds that against the rules, and writes down what was read before it is given out.
 *
 * Who reads is who is behind the connection. Only a gateway that the settings trust may name somebody else, for whom
 * its portal asks; what all others say about themselves is not even read.
 */
import { TailcastError, errorText } from '../../errors.ts';
import { decodeNamedViewer, type NamedViewer } from '../../wire/recorder-api/named-viewer.ts';
import type { CatalogEntry } from '../library/catalog-entry.ts';
import type { Scope } from '../library/scope.ts';
import { createViewings } from './viewings.ts';
import { mayNameViewers, scopeOf, type ViewRule, type Viewer } from './viewing.ts';

/** What somebody did with the archive. */
export type AccessAction = 'list' | 'show' | 'play' | 'download' | 'events' | 'search' | 'index';

/** The far end of a viewer's connection. */
export interface ViewerSocket {
  readonly remoteAddress?: string | undefined;
  readonly remotePort?: number | undefined;
}

/** What of a request says who asks. */
export interface ViewerRequest {
  readonly socket: ViewerSocket;
  /** Flat, as received. */
  readonly rawHeaders: readonly string[];
}

/** Asks who is behind an address; undefined: nobody who may see anything. */
export type IdentifyViewer = (
  from: { readonly address: string; readonly port: number },
  signal: AbortSignal,
) => Promise<Viewer | undefined>;

export interface ViewerAccessOptions {
  readonly identify: IdentifyViewer;
  readonly rules: readonly ViewRule[];
  /** Tags and stable node IDs of gateways that may say who looks. */
  readonly trustedGateways: readonly string[];
  /** Keeps an event durably. @throws TailcastError `STORE_FAILED` */
  readonly record: (event: string) => Promise<void>;
  /** Milliseconds since the epoch. */
  readonly nowMs: () => number;
  readonly timeoutMs: number;
}

export interface ViewerAccess {
  /** @throws TailcastError `IDENTITY_UNAVAILABLE`, `VIEW_REFUSED` */
  viewer(request: ViewerRequest): Promise<Viewer>;
  /** What the viewer may see. Only who may see everything may see what is about no single recording, e.g. events. */
  scope(viewer: Viewer): Scope;
  /** Resolves when it is written down. @throws TailcastError `STORE_FAILED`: then nothing may be given out */
  saw(viewer: Viewer, action: AccessAction, path: string, recording?: CatalogEntry): Promise<void>;
}

/** One per recorder. */
export function createViewerAccess(options: ViewerAccessOptions): ViewerAccess {
  const { rules, nowMs } = options;
  const viewings = createViewings(nowMs);
  /** Who is behind a connection does not change while it lasts. */
  const known = new WeakMap<ViewerSocket, Viewer>();
  async function behind(socket: ViewerSocket): Promise<Viewer> {
    const asked = known.get(socket);
    if (asked !== undefined) return asked;
    const { remoteAddress = '', remotePort = 0 } = socket;
    const [plain = ''] = remoteAddress.split('%');
    const address = plain.replace(/^::ffff:(?=\d+\.)/i, '');
    let viewer: Viewer | undefined;
    try {
      viewer = await options.identify({ address, port: remotePort }, AbortSignal.timeout(options.timeoutMs));
    } catch (error) {
      throw new TailcastError('IDENTITY_UNAVAILABLE', errorText(error), { cause: error });
    }
    if (viewer === undefined) throw new TailcastError('VIEW_REFUSED');
    const found = { ...viewer, address };
    known.set(socket, found);
    return found;
  }
  return {
    async viewer({ socket, rawHeaders }) {
      const caller = await behind(socket);
      if (!mayNameViewers(options.trustedGateways, caller)) return caller;
      const named = decodeNamedViewer(rawHeaders);
      if (named === 'malformed') {
        throw new TailcastError('VIEW_REFUSED', 'the gateway does not say clearly who you are');
      }
      return named === undefined ? caller : throughGateway(named, caller);
    },
    scope: (viewer) => scopeOf(rules, viewer),
    saw(viewer, action, path, entry) {
      const record = (): Promise<void> =>
        options.record(describeAccess(viewer, action, path, entry, nowMs()));
      const key = viewingOf(viewer, action, path, entry);
      return key === undefined ? record() : viewings.once(key, record);
    },
  };
}

/** Equal for the questions of one viewing; undefined for what is an event each time. */
function viewingOf(
  { node, nodeId, address, user, tags, gateway }: Viewer,
  action: AccessAction,
  path: string,
  entry: CatalogEntry | undefined,
): string | undefined {
  if (action === 'download' || action === 'events') return undefined;
  if (action === 'search' && !/[?&]view=1(?:&|$)/.test(path)) return undefined;
  return JSON.stringify([
    [node, nodeId, address, user, tags, gateway?.nodeId],
    action,
    // whoever goes on in a list looks at the same one
    // and each query is a search of its own, also within one recording
    action === 'search' || entry === undefined
      ? path.replace(/([?&])cursor=[^&]*&?/, '$1')
      : entry.recording.id,
  ]);
}

function throughGateway({ user, tags, ...named }: NamedViewer, gateway: Viewer): Viewer {
  const { node, nodeId, address = '' } = gateway;
  return { ...named, ...(user === undefined ? { tags } : { user }), gateway: { node, nodeId, address } };
}

/** In the shape of the other events, so that one query finds both. */
function describeAccess(
  { node, nodeId, address = '', user, tags, gateway }: Viewer,
  action: AccessAction,
  path: string,
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
    request: { method: 'GET', path },
    source,
    ...(gateway === undefined
      ? {}
      : { gateway: { node: gateway.node, nodeID: gateway.nodeId, address: gateway.address } }),
  };
  return JSON.stringify({ event });
}
