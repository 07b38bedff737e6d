/**
 * Limits per user, so that others are served: requests, connections, and pending bytes in memory. Only the gate
 * knows the user, so a connection counts for a user after its first admitted request; before that it counts for
 * its address.
 */
import { TailcastError } from '../../errors.ts';
import { createKeyedCounter } from '../../keyed-counter.ts';
import { isLoopback } from '../../tailnet/addresses.ts';
import type { Peer } from '../../tailnet/identity.ts';

export interface UserLimitValues {
  readonly requests: number;
  readonly connections: number;
  /** Bytes of bodies, in both directions, above which no new request starts. */
  readonly bytes: number;
  /**
   * Maximum bytes of long request heads before the gate has admitted the requests. One address may use half of these
   * bytes.
   */
  readonly headBytes: number;
}

/** Request heads up to this size are not counted, neither for addresses nor for users. */
export const USUAL_HEAD_BYTES = 16 * 1024;

/** A request head that is being received, or whose request was not admitted yet. */
export interface HeadPlace {
  /**
   * Sets the size of the head, in bytes.
   * @throws TailcastError `OVERLOADED` if the heads of its address or of all addresses are too large together
   */
  hold(bytes: number): void;
  /** Ends the count. Can be called again. */
  leave(): void;
}

/** The limits of one request. */
export interface RequestPlace {
  /**
   * Like `hold`, for bytes that the gateway does not have to accept.
   * @throws TailcastError `OVERLOADED` if the user has too many bytes in memory
   */
  reserve(bytes: number): void;
  /** Sets the number of pending bytes. */
  hold(bytes: number): void;
  /** Ends the request. Can be called again. */
  leave(): void;
}

export interface UserLimits {
  /** Reports a new connection; returns false if its address has too many, so that it gets only a refusal. */
  connected(peer: Peer): boolean;
  /** Reports a closed connection. */
  disconnected(peer: Peer): void;
  /** Returns the count of one request head from this peer's address. */
  head(peer: Pick<Peer, 'address'>): HeadPlace;
  /** @throws TailcastError `OVERLOADED` that names the limit */
  enter(user: string, peer: Peer): RequestPlace;
}

/** @param peers compared by object: one per connection */
export function createUserLimits(limits: UserLimitValues): UserLimits {
  const requests = createKeyedCounter();
  const connections = createKeyedCounter();
  const addresses = createKeyedCounter();
  const waiting = new Map<string, number>();
  const open = new Map<Peer, { readonly address: () => void; user?: () => void }>();

  function takeConnection(user: string, peer: Peer): void {
    const connection = open.get(peer);
    if (connection === undefined || connection.user !== undefined) return;
    if (connections.usedBy(user) >= limits.connections)
      throw new TailcastError(
        'OVERLOADED',
        `you have ${limits.connections} connections open, which is the limit`,
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
      throw new TailcastError('OVERLOADED', 'too many response bytes wait for your clients');
  }

  return {
    connected(peer) {
      // many users may be behind an address of this machine
      if (isLoopback(peer.address)) open.set(peer, { address: () => undefined });
      else if (addresses.usedBy(peer.address) >= limits.connections) return false;
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
      if (requests.usedBy(user) >= limits.requests)
        throw new TailcastError(
          'OVERLOADED',
          `you have ${limits.requests} requests in flight, which is the limit`,
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
  const heads = createKeyedCounter();
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
        const isTooMuch = heads.usedBy(address) + bytes > limitBytes - heads.total - bytes;
        release = heads.take(address, bytes);
        if (isTooMuch)
          throw new TailcastError('OVERLOADED', 'too many bytes of request heads arrive at the same time');
      },
      leave,
    };
  };
}
