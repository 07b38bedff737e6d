/**
 * One fixed identity for everybody, for the demo and for tests. Whoever can connect *is* that identity, so it is only
 * given to connections from this machine and must only stand behind a listener that nobody else can reach.
 */
import { TailcastError } from '../errors.ts';
import { isLoopback } from './addresses.ts';
import type { Identity, IdentitySource } from './identity.ts';

/** @throws TailcastError (from `whois`) `IDENTITY_UNKNOWN` for a peer that is not on this machine */
export function createStaticIdentity(options: { readonly identity: Identity }): IdentitySource {
  const { identity } = options;
  return {
    whois(peer, signal) {
      if (signal.aborted) return Promise.reject(toError(signal.reason));
      if (!isLoopback(peer.address)) {
        const detail = 'the static identity is only for connections from this machine';
        return Promise.reject(new TailcastError('IDENTITY_UNKNOWN', detail));
      }
      return Promise.resolve(identity);
    },
  };
}

/**
 * To be called with the host every listener in front of a static identity listens on.
 * @throws TailcastError `CONFIG_INVALID` when others than this machine could connect
 */
export function assertLoopbackListener(listenHost: string): void {
  if (isLoopback(listenHost)) return;
  throw new TailcastError(
    'CONFIG_INVALID',
    `a static identity answers for everybody, so the listener must be on 127.0.0.1, ::1 or localhost, not on ${listenHost === '' ? 'every address' : listenHost}`,
  );
}

function toError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error('aborted', { cause: reason });
}
