/** Who looks, as a recorder is told; and what is said where no recorder shows anything. Pure. */
import { TailcastError, type ErrorCode } from '../errors.ts';
import type { Caller, InboundRequest } from '../proxy/gate/gate.ts';
import type { NamedViewer } from '../wire/recorder-api/named-viewer.ts';

/** From the tailnet's answer and from nothing that the request says. */
export function namedViewerOf(
  { identity }: Pick<Caller, 'identity'>,
  { peer }: Pick<InboundRequest, 'peer'>,
): NamedViewer {
  const { nodeName: node, nodeId } = identity;
  const common = { node, nodeId, address: peer.address };
  return identity.kind === 'user'
    ? { ...common, user: identity.login, tags: [] }
    : { ...common, user: undefined, tags: identity.tags };
}

export function noRecorder(): TailcastError {
  return new TailcastError('NOT_FOUND', 'no recorder is named for you, so there are no recordings to show');
}

/** For logs: why an answer that had begun did not come to its end. */
export function brokenBy(error: unknown): ErrorCode {
  return error instanceof TailcastError ? error.code : 'RECORDER_UNREACHABLE';
}
