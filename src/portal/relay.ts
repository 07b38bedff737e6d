/**
 * Wraps each request to a recorder: takes a slot, names the viewer, rechecks the viewer's access, and writes
 * the access-log entry.
 */
import { TailcastError } from '../errors.ts';
import type { Caller, InboundRequest } from '../proxy/gate/gate.ts';
import type { Rechecks } from '../proxy/gate/recheck.ts';
import type { NamedViewer } from '../wire/recorder-api/named-viewer.ts';
import type { Places } from './places.ts';
import type { PortalRequest } from './portal-request.ts';

export interface RelayDeps {
  /** Returns the recorders that may have recordings for this caller, as `ip:port`, in order of preference. */
  readonly recordersFor: (caller: Caller) => Promise<readonly string[]>;
  readonly rechecks: Pick<Rechecks, 'watch'>;
  readonly places: Places;
  /** Maximum time without progress of a body or a live view, in milliseconds. */
  readonly stallMs: number;
  /** Aborts when the gateway shuts down. */
  readonly signal: AbortSignal;
}

export interface RelayContext {
  readonly recorders: readonly string[];
  readonly viewer: NamedViewer;
  /** Aborts when the client disconnects, the gateway shuts down, or the viewer's access ends. */
  readonly signal: AbortSignal;
}

/**
 * Runs `work`. If a response has started or the client has left, also closes the access-log entry.
 * @throws TailcastError for the client, if no response has started and the client has not left
 */
export async function relay(
  deps: RelayDeps,
  portal: PortalRequest,
  work: (context: RelayContext) => Promise<void>,
): Promise<void> {
  const { account, caller, inbound, signal: left } = portal;
  if (caller === undefined) throw new TailcastError('INTERNAL', 'the gate has not admitted the request');
  const leave = deps.places.take(caller.identity.nodeId);
  const access = new AbortController();
  const unwatch = deps.rechecks.watch(caller, inbound.peer, (error) => access.abort(error));
  portal.isRelayed = true;
  try {
    const recorders = await deps.recordersFor(caller);
    if (recorders.length === 0)
      throw new TailcastError(
        'NOT_FOUND',
        'no recorder is named for you, so there are no recordings to show',
      );
    const signal = AbortSignal.any([left, deps.signal, access.signal]);
    await work({ recorders, viewer: namedViewerOf(caller, inbound), signal });
    access.signal.throwIfAborted();
  } catch (error) {
    const cause: unknown = access.signal.aborted ? access.signal.reason : error;
    if (!account.begun && !left.aborted) throw cause;
    if (access.signal.aborted) account.refused(cause);
    else if (left.aborted) account.failed('client left');
    else account.failed(error instanceof TailcastError ? error.code : 'RECORDER_UNREACHABLE');
    portal.refuse(cause);
  } finally {
    unwatch();
    leave();
    portal.isRelayed = false;
    if (account.begun || left.aborted) account.close();
  }
}

/** Returns the viewer's identity in the tailnet. Does not use headers of the request. */
function namedViewerOf(
  { identity }: Pick<Caller, 'identity'>,
  { peer }: Pick<InboundRequest, 'peer'>,
): NamedViewer {
  const { nodeName: node, nodeId } = identity;
  const common = { node, nodeId, address: peer.address };
  return identity.kind === 'user'
    ? { ...common, user: identity.login, tags: [] }
    : { ...common, user: undefined, tags: identity.tags };
}
