/**
 * What one user may have of a process at a time, so that the others are served: requests, connections, and bytes that wait
 * in memory. Who it is only the gate knows, so a connection counts for a user from its first admitted request on; before
 * that it counts for the address it came from.
 */
import { TailcastError } from '../../errors.ts';
import { createPlaceCount } from '../../place-count.ts';
import { isLoopback } from '../../tailnet/addresses.ts';
import type { Peer } from '../../tailnet/identity.ts';

export interface UserLimitValues {
  readonly requests: number;
  readonly connections: number;
  /** Bytes of bodies, in both directions, above which nothing new is begun. */
  readonly bytes: number;
}

/** The place of one request. */
export interface RequestPlace {
  /** So many bytes wait for it now. */
  hold(bytes: number): void;
  /** It is over. Can be called again. */
  leave(): void;
}

export interface UserLimits {
  /** A connection was accepted; false when there are too many from its address, and it is to get nothing but a refusal. */
  connected(peer: Peer): boolean;
  /** It is closed. */
  disconnected(peer: Peer): void;
  /** @throws TailcastError `OVERLOADED` saying which limit it is */
  enter(user: string, peer: Peer): RequestPlace;
}

/** @param peers are told apart as objects: one per connection */
export function createUserLimits(limits: UserLimitValues): UserLimits {
  const requests = createPlaceCount();
  const connections = createPlaceCount();
  const addresses = createPlaceCount();
  const waiting = new Map<string, number>();
  const open = new Map<Peer, { readonly address: () => void; user?: () => void }>();

  function takeConnection(user: string, peer: Peer): void {
    const connection = open.get(peer);
    if (connection === undefined || connection.user !== undefined) return;
    if (connections.takenBy(user) >= limits.connections)
      throw new TailcastError(
        'OVERLOADED',
        `you have ${limits.connections} connections open, and no more are served`,
      );
    connection.user = connections.take(user);
  }

  function add(user: string, bytes: number): void {
    const sum = (waiting.get(user) ?? 0) + bytes;
    if (sum === 0) waiting.delete(user);
    else waiting.set(user, sum);
  }

  return {
    connected(peer) {
      // many users may stand behind an address of this machine
      if (isLoopback(peer.address)) open.set(peer, { address: () => undefined });
      else if (addresses.takenBy(peer.address) >= limits.connections) return false;
      else open.set(peer, { address: addresses.take(peer.address) });
      return true;
    },
    disconnected(peer) {
      const connection = open.get(peer);
      open.delete(peer);
      connection?.address();
      connection?.user?.();
    },
    enter(user, peer) {
      if (requests.takenBy(user) >= limits.requests)
        throw new TailcastError(
          'OVERLOADED',
          `you have ${limits.requests} requests in flight, and no more are served`,
        );
      if ((waiting.get(user) ?? 0) > limits.bytes)
        throw new TailcastError('OVERLOADED', 'too much of what you have asked for waits for your clients');
      takeConnection(user, peer);
      const leave = requests.take(user);
      let held = 0;
      let left = false;
      const hold = (bytes: number): void => {
        if (left || bytes === held) return;
        add(user, bytes - held);
        held = bytes;
      };
      return {
        hold,
        leave() {
          hold(0);
          left = true;
          leave();
        },
      };
    },
  };
}
