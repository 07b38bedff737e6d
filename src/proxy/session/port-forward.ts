/** Which ports of a port-forward are looked at, and which are refused. */
import { TailcastError } from '../../errors.ts';
import {
  createPortForwardTap,
  PORT_FORWARD_TUNNEL,
  type PortForwardTap,
} from '../../recording/tap-port-forward.ts';
import { refusedPort, type PortRange } from '../gate/policy.ts';
import { headerLines } from '../../kube/header-lines.ts';
import { type UpgradeRequest } from './upgrade-request.ts';

/**
 * A tap for the client's direction; `undefined` for the oldest WebSocket protocol, which names its ports in the query,
 * where the gate has judged them.
 *
 * @param rawHeaders of the API server's 101
 */
export function watchPorts(
  protocol: UpgradeRequest['protocol'],
  rawHeaders: readonly string[],
  refused: readonly PortRange[],
): PortForwardTap | undefined {
  const tunnelled = headerLines(rawHeaders, 'sec-websocket-protocol').includes(PORT_FORWARD_TUNNEL);
  if (protocol !== 'spdy' && !tunnelled) return undefined;
  return createPortForwardTap(protocol === 'spdy' ? 'spdy' : 'tunnel', (port) => {
    if (refusedPort({ refusedPorts: refused }, [port]) !== undefined) {
      throw new TailcastError('POLICY_REFUSED', `port ${port} may not be forwarded`);
    }
  });
}
