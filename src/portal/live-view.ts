/**
 * Live views: a WebSocket between a browser and a recorder. The gateway relays bytes only after both HTTP handshakes
 * are complete, and does not parse these bytes. The recorder accepts only pongs from viewers.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';
import { createDeadline } from '../async/deadline.ts';
import { TailcastError } from '../errors.ts';
import { headerLines, onlyLine } from '../kube/headers.ts';
import type { UpgradeAnswer } from '../proxy/session/dial.ts';
import { startRelay } from '../proxy/session/relay.ts';
import { encodeUpgradeHead, parseUpgradeRequest } from '../proxy/session/upgrade-http.ts';
import { BLIND_TAP } from '../recording/tap-unrecorded.ts';
import { urgentInput, type Tap } from '../recording/tap.ts';
import { LIVE_SUBPROTOCOL } from '../wire/recorder-api/live-view.ts';
import type { PortalRequest, UpgradeSocket } from './portal-request.ts';
import { recorderPath, type RecorderCalls } from './recorder-call.ts';
import { relay, type RelayDeps } from './relay.ts';

export interface LiveViewDeps extends RelayDeps {
  readonly calls: Pick<RecorderCalls, 'follow'>;
}

const KEY = /^[A-Za-z0-9+/]{22}==$/;
const SWITCHING = 101;
/** Maximum time for which one end stays open after the other has closed, in milliseconds. */
const LINGER_MS = 5_000;
const ACCEPT = /^[A-Za-z0-9+/]{27}=$/;

/** Handles the live view of one recording. Rejects if an error occurs before the response to the client. */
export async function relayLiveView(
  deps: LiveViewDeps,
  { portal, raw: { httpVersion } }: FastifyRequest,
  reply: FastifyReply,
): Promise<void> {
  const { method, rawHeaders } = portal.inbound;
  if (portal.target.rawQuery !== '') throw new TailcastError('NOT_FOUND');
  if (portal.upgrade === undefined)
    throw new TailcastError('REQUEST_MALFORMED', 'a live view needs a WebSocket');
  const upgrade = parseUpgradeRequest({ method, rawHeaders, httpVersion });
  const key = onlyLine(rawHeaders, 'sec-websocket-key') ?? '';
  if (upgrade.protocol !== 'websocket' || !KEY.test(key)) {
    throw new TailcastError('UPGRADE_REFUSED', 'a live view needs a WebSocket');
  }
  const offered = headerLines(rawHeaders, 'sec-websocket-protocol').join(',').split(',');
  const subprotocols = offered.some((name) => name.trim() === LIVE_SUBPROTOCOL) ? [LIVE_SUBPROTOCOL] : [];
  const target = recorderPath(portal.target);
  const client = portal.upgrade;
  await relay(deps, portal, async ({ recorders, viewer, signal }) => {
    const answer = await deps.calls.follow({ recorders, viewer, target, key, subprotocols }, signal);
    const switched = assertSwitched(answer);
    reply.hijack();
    await splice(portal, client, switched, { signal, stallMs: deps.stallMs });
  });
}

type Switched = Extract<UpgradeAnswer, { kind: 'switched' }> & { readonly accept: string };

/** @throws TailcastError if the recorder refuses, or its handshake is malformed */
function assertSwitched(answer: UpgradeAnswer): Switched {
  if (answer.kind !== 'switched') {
    answer.body.destroy();
    if (answer.status === 404)
      throw new TailcastError('NOT_FOUND', 'there is no such recording, or you may not see it');
    throw new TailcastError('RECORDER_UNAVAILABLE', `it answered ${answer.status}`);
  }
  const [accept = ''] = headerLines(answer.rawHeaders, 'sec-websocket-accept');
  if (ACCEPT.test(accept)) return { ...answer, accept };
  answer.socket.destroy();
  throw new TailcastError('RECORDER_UNAVAILABLE', 'its response to the WebSocket is invalid');
}

/** Relays until either end closes, no bytes arrive for too long, or `signal` aborts. */
async function splice(
  { account }: PortalRequest,
  { socket, head }: UpgradeSocket,
  answer: Switched,
  { signal, stallMs }: { readonly signal: AbortSignal; readonly stallMs: number },
): Promise<void> {
  const stalled = new AbortController();
  const stall = createDeadline(stallMs, () => stalled.abort());
  const tap: Tap = {
    ...BLIND_TAP,
    output: () => stall.extend(),
    input(chunk, kept) {
      stall.extend();
      return urgentInput(chunk, kept);
    },
  };
  const fields = ['Upgrade', 'websocket', 'Connection', 'Upgrade', 'Sec-WebSocket-Accept', answer.accept];
  if (answer.subprotocol !== '') fields.push('Sec-WebSocket-Protocol', answer.subprotocol);
  account.answered(SWITCHING);
  socket.write(encodeUpgradeHead('101 Switching Protocols', fields));
  const relayed = startRelay({
    client: socket,
    clientHead: head,
    upstream: answer.socket,
    upstreamHead: answer.head,
    tap,
    lingerMs: LINGER_MS,
    signal: AbortSignal.any([signal, stalled.signal]),
  });
  await relayed.done;
  stall.clear();
  account.responseBytes = relayed.totals.fromUpstream;
  answer.socket.destroy();
  socket.destroy();
}
