/** Checks the ports of a port-forward against the policy. */
import { TailcastError } from '../../errors.ts';
import {
  createPortForwardTap,
  PORT_FORWARD_TUNNEL,
  type PortForwardTap,
} from '../../recording/tap-port-forward.ts';
import { headerLines } from '../../kube/header-lines.ts';
import { type UpgradeRequest } from './upgrade-request.ts';

/**
 * Creates a tap for the direction of the client. Undefined for the oldest WebSocket protocol, whose ports are in the
 * query and were checked by the gate.
 *
 * @param rawHeaders headers of the 101 response of the API server
 */
export function watchPorts(
  protocol: UpgradeRequest['protocol'],
  rawHeaders: readonly string[],
  isRefused: (port: number) => boolean,
): PortForwardTap | undefined {
  const tunnelled = headerLines(rawHeaders, 'sec-websocket-protocol').includes(PORT_FORWARD_TUNNEL);
  if (protocol !== 'spdy' && !tunnelled) return undefined;
  return createPortForwardTap(protocol === 'spdy' ? 'spdy' : 'tunnel', (port) => {
    if (isRefused(port)) throw new TailcastError('POLICY_REFUSED', `port ${port} may not be forwarded`);
  });
}
