/** Taps for unrecorded connections. */
import { TailcastError } from '../../errors.ts';
import {
  createReceiveOnlyTap,
  createUnrecordedSessionTaps,
  createWebSocketEndTaps,
  UNSEEN,
} from '../../recording/tap-unrecorded.ts';
import type { SessionTaps } from '../../recording/tap.ts';
import type { Admission } from '../gate/gate.ts';
import { watchPorts } from './port-forward.ts';
import { headerLines } from '../../kube/header-lines.ts';
import { type UpgradeRequest } from './upgrade-request.ts';

/** An unrecorded connection. */
export interface Tunnel {
  readonly taps: SessionTaps;
  /** Returns the ports that a port-forward opened so far, if they are visible. */
  readonly ports?: () => readonly number[];
}

/**
 * Checks the protocol of a watch or log upgrade. They are not recorded because the client sends nothing. An aggregated
 * API server might behave differently, so under enforced recording the gateway enforces that the client sends nothing,
 * which it can do over WebSocket only.
 *
 * @throws TailcastError `UPGRADE_REFUSED` for other protocols
 */
export function checkStream(
  { policyClass, recording }: Pick<Admission, 'policyClass' | 'recording'>,
  protocol: UpgradeRequest['protocol'],
): void {
  if (!isStream(policyClass) || recording.mode !== 'failClosed' || protocol === 'websocket') return;
  throw new TailcastError('UPGRADE_REFUSED', 'a stream is read over WebSocket only');
}

/** Returns true for a watch or a log. An upgrade of class `secretRead` is a watch of Secrets. */
function isStream(policyClass: Admission['policyClass']): boolean {
  return policyClass === 'streamUpgrade' || policyClass === 'secretRead';
}

/** Creates the taps for an unrecorded connection. @param rawHeaders headers of the 101 response of the API server */
export function createTunnel(
  { policyClass, recording }: Pick<Admission, 'policyClass' | 'recording'>,
  protocol: UpgradeRequest['protocol'],
  rawHeaders: readonly string[],
  isPortRefused: (port: number) => boolean = () => false,
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
  const forward = policyClass === 'portForward' ? watchPorts(protocol, rawHeaders, isPortRefused) : undefined;
  if (forward === undefined) return { taps: ends };
  return { taps: { ...ends, clientToServer: forward }, ports: () => forward.ports };
}

const WORDLESS: SessionTaps = {
  unproved: () => undefined,
  clientToServer: UNSEEN,
  serverToClient: UNSEEN,
  farewell: () => undefined,
};
