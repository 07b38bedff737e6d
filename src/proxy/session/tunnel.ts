/** What is looked at on a connection that is passed on without a recording. */
import { TailcastError } from '../../errors.ts';
import {
  createReceiveOnlyTap,
  createUnrecordedSessionTaps,
  createWebSocketEndTaps,
  UNSEEN,
} from '../../recording/tap-unrecorded.ts';
import type { SessionTaps } from '../../recording/tap.ts';
import type { Admission } from '../gate/gate.ts';
import type { PortRange } from '../gate/policy.ts';
import { watchPorts } from './port-forward.ts';
import { headerLines } from '../../kube/header-lines.ts';
import { type UpgradeRequest } from './upgrade-request.ts';

export interface Tunnel {
  readonly taps: SessionTaps;
  /** Of a port-forward whose ports can be seen: those opened so far. */
  readonly ports?: () => readonly number[];
}

/**
 * A watch or a log is let through because nothing can be said on it, which holds for the API server itself. What an
 * aggregated API server does with a path of that form nobody knows, so for those who must be recorded it is seen to.
 *
 * @throws TailcastError `UPGRADE_REFUSED` for a protocol in which it cannot be seen
 */
export function checkStream(
  { policyClass, recording }: Pick<Admission, 'policyClass' | 'recording'>,
  protocol: UpgradeRequest['protocol'],
): void {
  if (!isStream(policyClass) || recording.mode !== 'failClosed' || protocol === 'websocket') return;
  throw new TailcastError('UPGRADE_REFUSED', 'a stream is read over WebSocket only');
}

/** An upgrade of class `secretRead` is a watch of Secrets. */
function isStream(policyClass: Admission['policyClass']): boolean {
  return policyClass === 'streamUpgrade' || policyClass === 'secretRead';
}

/** @param rawHeaders of the API server's 101 */
export function createTunnel(
  { policyClass, recording }: Pick<Admission, 'policyClass' | 'recording'>,
  protocol: UpgradeRequest['protocol'],
  rawHeaders: readonly string[],
  refusedPorts: readonly PortRange[],
): Tunnel {
  if (protocol !== 'other' && (policyClass === 'exec' || policyClass === 'attach')) {
    const name = protocol === 'spdy' ? 'x-stream-protocol-version' : 'sec-websocket-protocol';
    const taps = createUnrecordedSessionTaps(protocol, headerLines(rawHeaders, name)[0] ?? '');
    if (taps !== undefined) return { taps };
  }
  const ends = protocol === 'websocket' ? createWebSocketEndTaps() : WORDLESS;
  if (isStream(policyClass) && recording.mode === 'failClosed') {
    return { taps: { ...ends, clientToServer: createReceiveOnlyTap() } };
  }
  const forward = policyClass === 'portForward' ? watchPorts(protocol, rawHeaders, refusedPorts) : undefined;
  if (forward === undefined) return { taps: ends };
  return { taps: { ...ends, clientToServer: forward }, ports: () => forward.ports };
}

const WORDLESS: SessionTaps = {
  unproved: () => undefined,
  clientToServer: UNSEEN,
  serverToClient: UNSEEN,
  farewell: () => undefined,
};
