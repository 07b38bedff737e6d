/** Checks that tailscaled runs and is connected, and checks the properties of this tailnet node. */
import type { TailnetStatus } from '../tailnet/tailnet-status.ts';
import { failed, ok, warning, type Check } from './checks.ts';

export interface TailnetFacts {
  readonly socketPath: string;
  /** Status of tailscaled with all peers. Requested only once, for all checks. */
  readonly status: () => Promise<TailnetStatus>;
  /** True if the gateway or the recorder expects PROXY headers from `tailscale serve`. */
  readonly proxyProtocol: boolean;
}

const UP = 'connect it: tailscale up --advertise-tags=tag:<tag>';
const STATE_REMEDIES: ReadonlyMap<string, string> = new Map([
  ['NeedsLogin', `${UP}, or give the tailscale container an auth key (TS_AUTHKEY)`],
  ['NeedsMachineAuth', 'approve this node in the admin console of the tailnet'],
  ['Stopped', UP],
  ['Starting', 'wait until tailscaled reaches its control server; if it does not, read its log'],
  ['NoState', 'wait; if the state does not change, read the log of tailscaled'],
]);

/** First version of tailscaled whose `tailscale serve` writes PROXY headers. */
const PROXY_PROTOCOL_SINCE = { major: 1, minor: 92 };

export function tailnetChecks(facts: TailnetFacts): readonly Check[] {
  return [daemonCheck(facts), stateCheck(facts), nodeCheck(facts), magicDnsCheck(facts)];
}

function daemonCheck({ socketPath, status, proxyProtocol }: TailnetFacts): Check {
  return {
    id: 'tailscaled',
    title: 'tailscaled',
    remedy:
      'start tailscaled, or name its LocalAPI socket with --socket; in a pod, mount the volume with the tailscale ' +
      'container’s TS_SOCKET into this container and run both with the same user ID',
    async run() {
      const { version } = await status();
      if (proxyProtocol && olderThan(version, PROXY_PROTOCOL_SINCE)) {
        return warning(
          `version ${version} on ${socketPath} does not write PROXY headers`,
          'upgrade tailscaled to 1.92 or newer: without PROXY headers, callers through tailscale serve have ' +
            'no identity',
        );
      }
      return ok(`version ${version} on ${socketPath}`);
    },
  };
}

function stateCheck({ status }: TailnetFacts): Check {
  return {
    id: 'connected',
    title: 'tailnet',
    needs: ['tailscaled'],
    remedy: UP,
    async run() {
      const { backendState, health } = await status();
      if (backendState !== 'Running') {
        const remedy = STATE_REMEDIES.get(backendState) ?? 'read the log of tailscaled';
        return failed(`tailscaled is in state ${backendState}`, remedy);
      }
      if (health.length > 0) {
        return warning(`connected, but tailscaled reports: ${health.join('; ')}`, 'run: tailscale status');
      }
      return ok('connected');
    },
  };
}

function nodeCheck({ status }: TailnetFacts): Check {
  return {
    id: 'node',
    title: 'this node',
    needs: ['connected'],
    remedy: UP,
    async run() {
      const { self } = await status();
      if (self === undefined || self.name === '' || self.addresses.length === 0) {
        return failed('the node has no name or no address in the tailnet', UP);
      }
      const where = `${self.name} (${self.addresses.join(', ')})`;
      if (self.tags.length === 0) {
        return warning(
          `${where} has no tag, so the node belongs to a person and its key expires`,
          'tag it: tailscale up --advertise-tags=tag:<tag>, with the tag in tagOwners of the policy; grants then ' +
            'name the tag as dst',
        );
      }
      return ok(`${where} is ${self.tags.join(', ')}`);
    },
  };
}

function magicDnsCheck({ status }: TailnetFacts): Check {
  const remedy = 'enable MagicDNS in the DNS settings of the tailnet';
  return {
    id: 'magic-dns',
    title: 'MagicDNS',
    needs: ['node'],
    remedy,
    async run() {
      const { magicDnsSuffix, self } = await status();
      if (magicDnsSuffix === '') return failed('the tailnet has no MagicDNS domain', remedy);
      if (self?.name.endsWith(`.${magicDnsSuffix}`) !== true) {
        return warning(
          `this node is ${self?.name ?? ''}, which is not in ${magicDnsSuffix}`,
          'use the name in the certificate for clients',
        );
      }
      return ok(`names end in ${magicDnsSuffix}`);
    },
  };
}

function olderThan(version: string, limit: { readonly major: number; readonly minor: number }): boolean {
  const match = /^(\d+)\.(\d+)/.exec(version);
  if (match === null) return false;
  const [major, minor] = [Number(match[1]), Number(match[2])];
  return major < limit.major || (major === limit.major && minor < limit.minor);
}
