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
  /** Maximum bytes of long request heads before the gate has admitted the requests. One address may use half of them. */
  readonly headBytes: number;
}

/** Request heads up to this size are not counted, neither for addresses nor for users. */
export const USUAL_HEAD_BYTES = 16 * 1024;

/** A request head that is being received, or whose request the gate has not admitted yet. */
export interface HeadPlace {
  /**
   * Sets the size of the head, in bytes.
   * @throws TailcastError `OVERLOADED` if the heads of its address or of all addresses are too large together
   */
  hold(bytes: number): void;
  /** Ends the count. Can be called again. */
  leave(): void;
}

/** The place of one request. */
export interface RequestPlace {
  /**
   * Like `hold`, for bytes that the gateway does not have to accept.
   * @throws TailcastError `OVERLOADED` if the user has too many bytes in memory
   */
  reserve(bytes: number): void;
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
  /** Returns the count of one request head from this peer's address. */
  head(peer: Pick<Peer, 'address'>): HeadPlace;
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

  function refuseTooMuch(user: string): void {
    if ((waiting.get(user) ?? 0) > limits.bytes)
      throw new TailcastError('OVERLOADED', 'too much of what you have asked for waits for your clients');
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
    head: createHeadLimit(limits.headBytes),
    enter(user, peer) {
      if (requests.takenBy(user) >= limits.requests)
        throw new TailcastError(
          'OVERLOADED',
          `you have ${limits.requests} requests in flight, and no more are served`,
        );
      refuseTooMuch(user);
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
        reserve(size) {
          hold(size);
          refuseTooMuch(user);
        },
        leave() {
          hold(0);
          left = true;
          leave();
        },
      };
    },
  };
}

function createHeadLimit(limitBytes: number): UserLimits['head'] {
  const heads = createPlaceCount();
  return ({ address }) => {
    let release: (() => void) | undefined;
    const leave = (): void => {
      release?.();
      release = undefined;
    };
    return {
      hold(bytes) {
        leave();
        if (bytes <= USUAL_HEAD_BYTES) return;
        const isTooMuch = heads.takenBy(address) + bytes > limitBytes - heads.total - bytes;
        release = heads.take(address, bytes);
        if (isTooMuch)
          throw new TailcastError('OVERLOADED', 'too many bytes of request heads arrive at the same time');
      },
      leave,
    };
  };
}
