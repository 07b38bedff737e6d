/**
 * The gateway's portal: recordings under the name that everybody's kubeconfig already holds.
 *
 * ```
 * browser ─► listener ─► server ─► portal ─┬─ page and its files: from memory
 *                                          ├─ data ─────────► recorder (GET), body streamed
 *                                          └─ live ─────────► recorder (WebSocket), bytes relayed
 * ```
 *
 * Each request is read once (`kube/canonical-target`), then the gate says who is calling, then the route is looked up in
 * a list of what may pass. The recorder is told who looks and decides what they may see; nothing else of the client's
 * request reaches it. Not here: who may see what, and the access events; both are the recorder's.
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { errorText, TailcastError } from '../errors.ts';
import { parseTarget } from '../kube/canonical-target.ts';
import type { AccessLog } from '../observe/access-log.ts';
import type { Events } from '../observe/events.ts';
import type { Metrics } from '../observe/metrics.ts';
import type { Caller, Gate } from '../proxy/gate/gate.ts';
import type { Rechecks } from '../proxy/gate/recheck.ts';
import type { OwnService } from '../proxy/front/server.ts';
import { headerLines, onlyLine } from '../kube/header-lines.ts';
import { createDeadline } from '../recording/deadline.ts';
import { openAccount, type Account } from './account.ts';
import { portalClient, type PortalClient } from './client.ts';
import { createLiveView } from './live-view.ts';
import { DATA_HEADERS, pageHeaders, type PageFiles } from './pages.ts';
import { createPlaces, type Places } from './places.ts';
import type { RecorderCalls } from './recorder-call.ts';
import { refusalOf } from './refusal.ts';
import { findRoute, PORTAL_PATH, type PortalRoute } from './routes.ts';
import { namedViewerOf, noRecorder } from './viewer.ts';

export interface PortalDeps {
  readonly gate: Pick<Gate, 'recognise'>;
  readonly calls: RecorderCalls;
  /** The recorders that may have something for this caller, as `ip:port`, in order. */
  readonly recordersFor: (caller: Caller) => Promise<readonly string[]>;
  readonly pages: PageFiles;
  readonly rechecks: Pick<Rechecks, 'watch'>;
  readonly metrics: Pick<Metrics, 'requestStarted' | 'requestFinished'>;
  readonly accessLog: Pick<AccessLog, 'write'>;
  readonly events: Pick<Events, 'requestRefused'>;
  readonly monotonicMs: () => number;
  /** Ends everything. */
  readonly signal: AbortSignal;
  readonly limits?: Partial<PortalLimits>;
}

export interface PortalLimits {
  /** Questions to recorders under way, live views included. */
  readonly total: number;
  readonly perNode: number;
  /** How long a body or a live view may stand still. Recorders show every 30 s that a live view lives. */
  readonly stallMs: number;
}

export const PORTAL_LIMITS: PortalLimits = { total: 256, perNode: 32, stallMs: 120_000 };

/** Fields of a request that the recorder is asked with as they are, when they look like this. */
const PASSED_ON: ReadonlyMap<string, RegExp> = new Map([
  ['range', /^bytes=[0-9, -]{1,100}$/],
  ['if-none-match', /^"[\u0021\u0023-\u007e]{1,200}"$/],
  ['if-range', /^"[\u0021\u0023-\u007e]{1,200}"$/],
]);
/** Fields of an answer that go to the client, when they look like this; all others are ours. */
const PASSED_BACK: ReadonlyMap<string, RegExp> = new Map([
  ['content-length', /^\d{1,15}$/],
  ['content-range', /^bytes [0-9*/-]{1,60}$/],
  ['accept-ranges', /^bytes$/],
  ['etag', /^"[\u0021\u0023-\u007e]{1,200}"$/],
]);

/** What a request is served with. */
interface Context {
  readonly deps: PortalDeps;
  readonly limits: PortalLimits;
  readonly places: Places;
}

/** One per gateway. */
export function createPortal(deps: PortalDeps): OwnService {
  const limits: PortalLimits = { ...PORTAL_LIMITS, ...deps.limits };
  const context: Context = { deps, limits, places: createPlaces(limits) };
  const live = createLiveView({ ...deps, limits, places: context.places });
  return {
    prefix: PORTAL_PATH,
    request(request, response, peer) {
      const client = portalClient(request, response, peer);
      // a client that leaves at the wrong moment must not take the process with it
      serve(context, client).catch(() => client.cut());
    },
    upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, peer) {
      void live.serve(request, socket, head, peer);
    },
  };
}

/** Rejects only when the client cannot be told any more. */
async function serve(context: Context, client: PortalClient): Promise<void> {
  const { deps } = context;
  const account = openAccount(client.protocol, client.inbound, deps);
  try {
    if (client.problem !== undefined) throw client.problem;
    const { inbound, signal } = client;
    const route = findRoute(parseTarget(inbound.target));
    const isPage = route?.kind === 'redirect' || (route?.kind === 'page' && route.file === 'index.html');
    const caller = await deps.gate.recognise(inbound, isPage, signal);
    account.recognised(caller);
    if (route === undefined) throw new TailcastError('NOT_FOUND');
    checkMethod(client, route);
    await answer(context, { client, route, caller, account });
  } catch (error) {
    if (client.signal.aborted) return;
    const refusal = refusalOf(error, client.inbound.rawHeaders);
    account.refused(error, refusal.status);
    client.send(refusal.status, refusal.fields, refusal.body);
  } finally {
    account.closed();
  }
}

function checkMethod({ inbound: { method }, hasBody }: PortalClient, route: PortalRoute): void {
  const allowed = route.kind === 'page' ? ['GET', 'HEAD'] : ['GET'];
  if (!allowed.includes(method)) throw new TailcastError('METHOD_REFUSED', 'recordings can only be read');
  if (hasBody) throw new TailcastError('REQUEST_MALFORMED', 'nothing here takes a body');
}

interface Turn {
  readonly client: PortalClient;
  readonly route: PortalRoute;
  readonly caller: Caller;
  readonly account: Account;
}

async function answer(context: Context, { client, route, caller, account }: Turn): Promise<void> {
  switch (route.kind) {
    case 'redirect': {
      account.answered(308);
      const fields = [
        ...DATA_HEADERS,
        'location',
        `${PORTAL_PATH}/${route.query}`,
        'cache-control',
        'no-store',
      ];
      return client.send(308, fields, Buffer.alloc(0));
    }
    case 'page':
      return sendFile(context, client, route.file, account);
    case 'data':
      return passOn(context, { client, route, caller, account });
    case 'live':
      throw new TailcastError('REQUEST_MALFORMED', 'a session is followed over a WebSocket');
  }
}

function sendFile({ deps }: Context, client: PortalClient, name: string, account: Account): void {
  const file = deps.pages.get(name);
  if (file === undefined) {
    const detail = name === 'index.html' ? 'this gateway was built without the page' : undefined;
    throw new TailcastError('NOT_FOUND', detail);
  }
  const { rawHeaders } = client.inbound;
  const host = headerLines(rawHeaders, 'host')[0] ?? '';
  // names of assets change with what is in them
  const keep = name.startsWith('assets/') ? 'private, max-age=86400, immutable' : 'no-cache';
  const fields = [...pageHeaders(host), 'content-type', file.type, 'etag', file.tag, 'cache-control', keep];
  const unchanged = headerLines(rawHeaders, 'if-none-match')[0] === file.tag;
  account.answered(unchanged ? 304 : 200, unchanged ? 0 : file.bytes.length);
  if (unchanged) client.begin(304, fields).end();
  else client.send(200, fields, file.bytes);
}

/** Asks the recorder and streams what it says. */
async function passOn(
  { deps, limits, places }: Context,
  turn: Turn & { readonly route: Extract<PortalRoute, { kind: 'data' }> },
): Promise<void> {
  const { client, route, caller, account } = turn;
  const { peer, rawHeaders } = client.inbound;
  const leave = places.take(caller.identity.nodeId);
  const stop = new AbortController();
  const signal = AbortSignal.any([client.signal, deps.signal, stop.signal]);
  let unwatch: (() => void) | undefined;
  try {
    const recorders = await deps.recordersFor(caller);
    if (recorders.length === 0) throw noRecorder();
    const viewer = namedViewerOf(caller, client.inbound);
    const fields = passed(rawHeaders, PASSED_ON);
    const response = await deps.calls.ask({ recorders, viewer, target: route.target, fields }, signal);
    response.on('error', () => {}); // the pipeline tells
    unwatch = deps.rechecks.watch(caller, peer, (error) => stop.abort(error));
    const status = response.statusCode ?? 502;
    account.answered(status);
    const sink = client.begin(status, answerFields(response, route));
    await pump(response, sink, { stallMs: limits.stallMs, follows: route.follows, signal, account });
  } catch (error) {
    // what was begun has been cut, and the client sees that
    if (!account.begun) throw error;
    account.broken(error);
  } finally {
    unwatch?.();
    leave();
  }
}

/** Those fields that are there once and look as they should. */
function passed(rawHeaders: readonly string[], shapes: ReadonlyMap<string, RegExp>): readonly string[] {
  return [...shapes].flatMap(([name, shape]) => {
    const value = onlyLine(rawHeaders, name);
    return value !== undefined && shape.test(value) ? [name, value] : [];
  });
}

function answerFields(
  { statusCode = 502, rawHeaders }: IncomingMessage,
  route: Extract<PortalRoute, { kind: 'data' }>,
): readonly string[] {
  const type = statusCode < 300 || statusCode === 304 ? route.type : 'application/json; charset=utf-8';
  const cache = route.cacheable ? 'private, no-cache' : 'no-store';
  const back = passed(rawHeaders, PASSED_BACK);
  return [...DATA_HEADERS, ...back, 'content-type', type, 'cache-control', cache];
}

/** Moves a body as fast as the client takes it; one that stands still is cut. */
async function pump(
  source: IncomingMessage,
  sink: Writable,
  options: {
    readonly stallMs: number;
    readonly follows: boolean;
    readonly signal: AbortSignal;
    readonly account: Account;
  },
): Promise<void> {
  const { stallMs, follows, account } = options;
  const stalled = new AbortController();
  const stall = createDeadline(stallMs, () => stalled.abort(new Error(`nothing moved for ${stallMs} ms`)));
  // a session that is followed may be silent for as long as it likes; whoever follows it may not
  let isClientsTurn = false;
  const patience = follows
    ? setInterval(() => {
        if (!isClientsTurn) stall.extend();
      }, stallMs / 4)
    : undefined;
  try {
    await pipeline(
      source,
      async function* watched(chunks: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
        for await (const chunk of chunks) {
          stall.extend();
          account.sent(chunk.length);
          isClientsTurn = true;
          yield chunk;
          isClientsTurn = false;
          stall.extend();
        }
      },
      sink,
      { signal: AbortSignal.any([options.signal, stalled.signal]) },
    );
  } catch (error) {
    throw new Error(stalled.signal.aborted ? errorText(stalled.signal.reason) : errorText(error), {
      cause: error,
    });
  } finally {
    clearInterval(patience);
    stall.clear();
  }
}
