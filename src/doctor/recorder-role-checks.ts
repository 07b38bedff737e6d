/** Checks of a recorder that need its settings: uploaders, trusted gateways, and listen address. */
import type { Duplex } from 'node:stream';
import type { TailnetNode, TailnetStatus } from '../tailnet/tailnet-status.ts';
import { errorText } from '../errors.ts';
import { failed, ok, skipped, warning, type Check } from './checks.ts';
import { probeRecorder } from './recorder-checks.ts';

/** Returns a check that the tailnet contains at least one node with a tag or a stable node ID in `uploaders`. */
export function uploadersCheck(uploaders: readonly string[], status: () => Promise<TailnetStatus>): Check {
  return {
    id: 'uploaders',
    title: 'uploaders',
    needs: ['connected'],
    remedy: 'check that tailscaled is connected',
    async run() {
      if (uploaders.length === 0) {
        return warning(
          'every node that the tailnet policy allows may upload recordings',
          'limit uploads to the gateways: --uploaders tag:<gateway>',
        );
      }
      const { peers } = await status();
      const missing = uploaders.filter((name) => !peers.some((peer) => isNamed(peer, name)));
      if (missing.length === uploaders.length) {
        return failed(
          `no node of the tailnet is ${missing.join(' or ')}`,
          'add this tag to the gateway’s node, or set --uploaders tag:<gateway>',
        );
      }
      return ok(uploaders.filter((name) => !missing.includes(name)).join(', '));
    },
  };
}

/**
 * Returns a check that the tailnet contains at least one node with a tag or a stable node ID in `gateways`, which must
 * not be empty.
 */
export function trustedGatewaysCheck(
  gateways: readonly string[],
  status: () => Promise<TailnetStatus>,
): Check {
  return {
    id: 'trusted-gateways',
    title: 'portals',
    needs: ['connected'],
    remedy: 'check that tailscaled is connected',
    async run() {
      const { peers } = await status();
      const trusted = peers.filter((peer) => gateways.some((name) => isNamed(peer, name)));
      if (trusted.length > 0) return ok(`shown by ${trusted.map(({ name }) => name).join(', ')}`);
      return failed(
        `no node of the tailnet is ${gateways.join(' or ')}, so no portal shows recordings`,
        'add this tag to the gateway’s node, or set --trusted-gateways tag:<gateway>',
      );
    },
  };
}

/** @param name a tag or a stable node ID */
function isNamed({ nodeId, tags }: TailnetNode, name: string): boolean {
  return nodeId === name || tags.includes(name);
}

/** Returns a check that the recorder responds. @param dial connects to the listen address of the recorder */
export function answersCheck(address: string, dial: (signal: AbortSignal) => Promise<Duplex>): Check {
  return {
    id: 'answers',
    title: 'recorder',
    remedy: 'stop the program at this address, or use another address: --listen <host:port>',
    async run(signal) {
      const socket = await dial(signal).catch((error: unknown) => errorText(error));
      if (typeof socket === 'string') return skipped(`not running on ${address} (${socket})`);
      const { status } = await probeRecorder(socket, signal);
      // A recorder that identifies callers with tailscaled rejects this request with 403, because a local address has
      // no tailnet identity.
      return status === 200 || status === 403
        ? ok(`running on ${address}`)
        : failed(`the program on ${address} responds with ${status}`, this.remedy);
    },
  };
}
