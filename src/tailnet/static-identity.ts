/**
 * One fixed identity for every client, for the demo and for tests. The identity applies only to connections from this
 * machine. Use it only with a listener that other machines cannot reach.
 */
import { TailcastError } from '../errors.ts';
import { isLoopback } from './addresses.ts';
import type { Identity, IdentitySource } from './identity.ts';

/** @throws TailcastError (from `whois`) `IDENTITY_UNKNOWN` for a peer on another machine */
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
 * Checks the host of a listener with a static identity.
 * @throws TailcastError `CONFIG_INVALID` if other machines could connect
 */
export function assertLoopbackListener(listenHost: string): void {
  if (isLoopback(listenHost)) return;
  throw new TailcastError(
    'CONFIG_INVALID',
    [
      'a static identity applies to every client, so the listener must be on 127.0.0.1, ::1 or localhost,',
      `not on ${listenHost === '' ? 'every address' : listenHost}`,
    ].join(' '),
  );
}

function toError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error('aborted', { cause: reason });
}
