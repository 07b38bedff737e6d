/** Unrecorded connections. */
import type { Readable } from 'node:stream';
import { TailcastError } from '../../errors.ts';
import {
  BLIND_TAP,
  createReceiveOnlyInput,
  createUnrecordedSessionTap,
  createWebSocketEndTap,
} from '../../recording/tap-unrecorded.ts';
import type { Tap } from '../../recording/tap.ts';
import {
  createPortForwardInput,
  PORT_FORWARD_TUNNEL,
  type PortForwardInput,
} from '../../recording/tap-port-forward.ts';
import type { KeyedRate } from '../../keyed-rate.ts';
import type { Admission } from '../gate/gate.ts';
import { headerLines } from '../../kube/headers.ts';
import type { UpgradeRequest } from './upgrade-http.ts';

/** Limits of port-forwards. */
export interface PortForwardLimits {
  /** Returns true if a port-forward must not open the port. */
  readonly isPortRefused?: (port: number) => boolean;
  /** Limits the rate at which each caller sends header frames, in bytes; see `tap-port-forward.ts`. */
  readonly rate?: KeyedRate;
}

/** An unrecorded connection. */
export interface Tunnel {
  readonly tap: Tap;
  /**
   * Returns the ports that a port-forward has opened so far. Absent if the gateway cannot read them from the
   * connection.
   */
  readonly ports?: () => readonly number[];
}

/**
 * Checks the protocol of a watch or log upgrade. Such connections are not recorded, because clients only receive data
 * on them. But an aggregated API server might accept input on them. If recording is enforced, the gateway therefore
 * rejects input. The gateway can reject input only over WebSocket, so it refuses other protocols.
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

/**
 * Refuses a success response without an upgrade if the session must be recorded. An aggregated API server may run a
 * command and send its output in such a response, which the gateway cannot record.
 *
 * @throws TailcastError `UPSTREAM_BROKEN`
 */
export function refuseUnrecorded(
  { record, recording }: Pick<Admission, 'record' | 'recording'>,
  { status, body }: { readonly status: number; readonly body: Readable },
): void {
  if (!record || recording.mode !== 'failClosed' || status >= 300) return;
  body.destroy();
  throw new TailcastError('UPSTREAM_BROKEN', `status ${status} instead of an upgrade`);
}

/** Maximum size of a refusal's body for a session that must be recorded, in bytes. A Status is far smaller. */
const MAX_REFUSAL_BYTES = 64 * 1024;

/**
 * Returns the stage of a stream pipeline that relays the body of a refusal. An aggregated API server could send the
 * unrecorded output of a command in this body. The body is therefore limited if the session must be recorded.
 *
 * @throws TailcastError `UPSTREAM_BROKEN` while it relays a longer body
 */
export function limitRefusal({ record, recording }: Pick<Admission, 'record' | 'recording'>) {
  let left = record && recording.mode === 'failClosed' ? MAX_REFUSAL_BYTES : Infinity;
  return async function* (body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const piece of body) {
      left -= piece.length;
      if (left < 0) throw new TailcastError('UPSTREAM_BROKEN', 'a refusal over 64 KiB');
      yield piece;
    }
  };
}

/** Returns true for a watch or a log. An upgrade with the policy class `secretRead` is a watch of Secrets. */
function isStream(policyClass: Admission['policyClass']): boolean {
  return policyClass === 'streamUpgrade' || policyClass === 'secretRead';
}

/** Creates the tap for an unrecorded connection. @param rawHeaders headers of the 101 response of the API server */
export function createTunnel(
  { user, policyClass, recording }: Pick<Admission, 'user' | 'policyClass' | 'recording'>,
  protocol: UpgradeRequest['protocol'],
  rawHeaders: readonly string[],
  limits: PortForwardLimits = {},
): Tunnel {
  if (protocol !== 'other' && (policyClass === 'exec' || policyClass === 'attach')) {
    const name = protocol === 'spdy' ? 'x-stream-protocol-version' : 'sec-websocket-protocol';
    const tap = createUnrecordedSessionTap(protocol, headerLines(rawHeaders, name)[0] ?? '');
    if (tap !== undefined) return { tap };
  }
  const tap = protocol === 'websocket' ? createWebSocketEndTap() : BLIND_TAP;
  if (isStream(policyClass) && recording.mode === 'failClosed') {
    return { tap: { ...tap, input: createReceiveOnlyInput() } };
  }
  const forward = policyClass === 'portForward' ? watchPorts(protocol, rawHeaders, user, limits) : undefined;
  if (forward === undefined) return { tap };
  return { tap: { ...tap, input: forward.input.bind(forward) }, ports: () => forward.ports };
}

/**
 * Creates the parser that finds the ports in the client's input. Returns undefined for the oldest WebSocket
 * protocol, which names its ports in the query; the gate has checked them.
 *
 * @param rawHeaders headers of the 101 response of the API server
 */
function watchPorts(
  protocol: UpgradeRequest['protocol'],
  rawHeaders: readonly string[],
  caller: string,
  { isPortRefused, rate }: PortForwardLimits,
): PortForwardInput | undefined {
  const tunnelled = headerLines(rawHeaders, 'sec-websocket-protocol').includes(PORT_FORWARD_TUNNEL);
  if (protocol !== 'spdy' && !tunnelled) return undefined;
  return createPortForwardInput(
    protocol === 'spdy' ? 'spdy' : 'tunnel',
    (port) => {
      if (isPortRefused?.(port) === true)
        throw new TailcastError('POLICY_REFUSED', `port ${port} may not be forwarded`);
    },
    (bytes) => rate?.(caller, bytes) ?? 0,
  );
}
