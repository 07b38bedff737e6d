/**
 * Live views: a WebSocket from a browser to a recorder. Both ends have spoken HTTP before the first byte is relayed, and
 * what is relayed is never read here; the recorder reads nothing from viewers but the signs of life of their browsers.
 */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { TailcastError } from '../errors.ts';
import { parseTarget } from '../kube/canonical-target.ts';
import { rawStatusResponse } from '../kube/status.ts';
import type { UpgradeAnswer } from '../proxy/session/dial.ts';
import { Account, type AccountDeps } from '../proxy/gate/account.ts';
import type { Caller, Gate, InboundRequest } from '../proxy/gate/gate.ts';
import type { Rechecks } from '../proxy/gate/recheck.ts';
import { prepareSocket } from '../proxy/session/session-socket.ts';
import { encodeUpgradeHead } from '../proxy/session/upgrade-head.ts';
import { headerLines, onlyLine } from '../kube/header-lines.ts';
import { parseUpgradeRequest } from '../proxy/session/upgrade-request.ts';
import { createDeadline } from '../async/deadline.ts';
import type { Peer } from '../tailnet/identity.ts';
import { LIVE_SUBPROTOCOL } from '../wire/recorder-api/live-view.ts';
import type { Places } from './places.ts';
import type { RecorderCalls } from './recorder-call.ts';
import { findRoute } from './routes.ts';
import { brokenBy, namedViewerOf, noRecorder } from './viewer.ts';

export interface LiveViewDeps extends AccountDeps {
  readonly gate: Pick<Gate, 'recognise'>;
  readonly calls: Pick<RecorderCalls, 'follow'>;
  readonly recordersFor: (caller: Caller) => Promise<readonly string[]>;
  readonly rechecks: Pick<Rechecks, 'watch'>;
  readonly places: Places;
  readonly limits: { readonly stallMs: number };
  readonly signal: AbortSignal;
}

export interface LiveView {
  /** Owns the socket from now on. Never rejects. */
  serve(request: IncomingMessage, socket: Duplex, head: Buffer, peer: Peer): Promise<void>;
}

const KEY = /^[A-Za-z0-9+/]{22}==$/;
const SWITCHING = 101;
/** How long one end may stay open after the other. */
const LINGER_MS = 5_000;
const ACCEPT = /^[A-Za-z0-9+/]{27}=$/;

export function createLiveView(deps: LiveViewDeps): LiveView {
  return {
    async serve(request, socket, head, peer) {
      const { method = '', url = '', rawHeaders } = request;
      const inbound: InboundRequest = { method, target: url, rawHeaders, peer, upgrade: true };
      const account = new Account('upgrade', inbound, deps);
      account.longRunning = true;
      const left = new AbortController();
      socket.once('close', () => left.abort(new Error('the client left')));
      socket.on('error', () => {}); // it is followed by `close`
      prepareSocket(socket);
      const signal = AbortSignal.any([deps.signal, left.signal]);
      try {
        await view(deps, { request, inbound, socket, head, account, signal });
      } catch (error) {
        if (account.begun || left.signal.aborted) {
          account.failed(left.signal.aborted ? 'client left' : brokenBy(error));
          socket.destroy();
        } else {
          account.refused(error, error instanceof TailcastError ? error.entry.status : 500);
          socket.end(rawStatusResponse(error));
        }
      } finally {
        account.close();
      }
    },
  };
}

interface Viewing {
  readonly request: IncomingMessage;
  readonly inbound: InboundRequest;
  readonly socket: Duplex;
  /** What the client sent behind its request. */
  readonly head: Buffer;
  readonly account: Account;
  readonly signal: AbortSignal;
}

async function view(deps: LiveViewDeps, viewing: Viewing): Promise<void> {
  const { request, inbound, account, signal } = viewing;
  const { method, rawHeaders } = inbound;
  const target = parseTarget(inbound.target);
  const caller = await deps.gate.recognise(inbound, false, signal);
  account.recognised(caller);
  const route = findRoute(target);
  if (route?.kind !== 'live') throw new TailcastError('NOT_FOUND');
  const upgrade = parseUpgradeRequest({ method, rawHeaders, httpVersion: request.httpVersion });
  const key = onlyLine(rawHeaders, 'sec-websocket-key') ?? '';
  if (upgrade.protocol !== 'websocket' || !KEY.test(key)) {
    throw new TailcastError('UPGRADE_REFUSED', 'a session is followed over a WebSocket');
  }
  const leave = deps.places.take(caller.identity.nodeId);
  try {
    const recorders = await deps.recordersFor(caller);
    if (recorders.length === 0) throw noRecorder();
    const offered = headerLines(rawHeaders, 'sec-websocket-protocol').join(',').split(',');
    const subprotocols = offered.some((name) => name.trim() === LIVE_SUBPROTOCOL) ? [LIVE_SUBPROTOCOL] : [];
    const question = { recorders, viewer: namedViewerOf(caller, inbound), target: route.path };
    const answer = await deps.calls.follow({ ...question, key, subprotocols }, signal);
    const switched = assertSwitched(answer);
    await relay(deps, viewing, caller, switched);
  } finally {
    leave();
  }
}

type Switched = Extract<UpgradeAnswer, { kind: 'switched' }>;

/** @throws TailcastError when the recorder does not show it, or its handshake is not one */
function assertSwitched(answer: UpgradeAnswer): Switched {
  if (answer.kind === 'switched') return answer;
  answer.body.destroy();
  if (answer.status === 404) throw new TailcastError('NOT_FOUND', 'there is no such recording for you');
  throw new TailcastError('RECORDER_UNAVAILABLE', `it answered ${answer.status}`);
}

/** Until either end closes, nothing moves for too long, or the viewer may not be here any more. */
async function relay(
  deps: LiveViewDeps,
  { inbound, socket, head, account, signal }: Viewing,
  caller: Caller,
  answer: Switched,
): Promise<void> {
  const [accept = ''] = headerLines(answer.rawHeaders, 'sec-websocket-accept');
  const recorder = answer.socket;
  if (!ACCEPT.test(accept)) {
    recorder.destroy();
    throw new TailcastError('RECORDER_UNAVAILABLE', 'its answer to the WebSocket cannot be used');
  }
  const stop = new AbortController();
  const over = AbortSignal.any([signal, stop.signal]);
  const cut = (why: string): void => stop.abort(new Error(why));
  const stall = createDeadline(deps.limits.stallMs, () => cut('nothing moved'));
  const unwatch = deps.rechecks.watch(caller, inbound.peer, (error) => {
    account.refused(error);
    stop.abort(error);
  });
  const chosen = answer.subprotocol === '' ? [] : ['Sec-WebSocket-Protocol', answer.subprotocol];
  const fields = ['Upgrade', 'websocket', 'Connection', 'Upgrade', 'Sec-WebSocket-Accept', accept, ...chosen];
  account.answered(SWITCHING);
  socket.write(encodeUpgradeHead('101 Switching Protocols', fields));
  if (answer.head.length > 0) socket.write(answer.head);
  if (head.length > 0) recorder.write(head);
  let linger: NodeJS.Timeout | undefined;
  // a sink that its own end has closed keeps `pipeline` waiting for ever
  const cutOff = Promise.withResolvers<never>();
  over.addEventListener('abort', () => cutOff.reject(over.reason), { once: true });
  const direction = async (from: Duplex, to: Duplex, count: (bytes: number) => void): Promise<void> => {
    try {
      await Promise.race([pipeline(from, watched(stall, count), to, { signal: over }), cutOff.promise]);
      linger ??= setTimeout(() => cut('one end is closed'), LINGER_MS);
    } catch (error) {
      stop.abort(error);
    }
  };
  await Promise.all([
    direction(recorder, socket, (bytes) => (account.responseBytes += bytes)),
    direction(socket, recorder, () => {}),
  ]);
  clearTimeout(linger);
  stall.clear();
  unwatch();
  recorder.destroy();
  socket.destroy();
}

/** Passes chunks on as they are, and shows that something moves. */
function watched(
  stall: { extend(): void },
  count: (bytes: number) => void,
): (chunks: AsyncIterable<Buffer>) => AsyncGenerator<Buffer> {
  return async function* pass(chunks) {
    for await (const chunk of chunks) {
      stall.extend();
      count(chunk.length);
      yield chunk;
    }
  };
}
