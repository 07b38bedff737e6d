/**
 * Limits requests, connections and pending bytes in memory per user, so that no single user can block the others. A
 * connection always counts for its address, unless this is a loopback address. It also counts for its user as soon as
 * the gate has identified the user of its first request. Plain requests and upgrades have the same limits until a
 * session begins.
 */
import { TailcastError } from '../../errors.ts';
import { createKeyedCounter } from '../../keyed-counter.ts';
import { isLoopback } from '../../tailnet/addresses.ts';
import { callerName, type Peer } from '../../tailnet/identity.ts';
import type { Account } from './account.ts';
import { headBytes, type Admission, type Gate, type InboundRequest } from './gate.ts';

export interface UserLimitValues {
  readonly requests: number;
  readonly connections: number;
  /** Pending bytes of request and response bodies above which the user cannot start a new request. */
  readonly bytes: number;
  /**
   * Maximum number of bytes of the long heads of all requests that the gate has not admitted yet. One address may use
   * half of the bytes that other addresses leave free.
   */
  readonly headBytes: number;
}

/** Maximum size of an ordinary request head, in bytes. Only larger heads, the *long* heads, count for the limits. */
export const USUAL_HEAD_BYTES = 16 * 1024;

/** Counter for the bytes of one request head, from its first byte until the gate has admitted its request. */
export interface HeadPlace {
  /**
   * Sets the size of the head, in bytes.
   * @throws TailcastError `OVERLOADED` if the heads of this address, or of all addresses, are too large in
   * total
   */
  hold(bytes: number): void;
  /** Ends the count. Can be called more than once. */
  leave(): void;
}

/** The limits of one request. The bytes of a long head count until `leave`, in addition to the pending bytes. */
export interface RequestPlace {
  /**
   * Sets the number of pending bytes like `hold`, but throws if the user has too many of them. Use `reserve` for bytes
   * that the gateway may refuse to read.
   * @throws TailcastError `OVERLOADED` if the user has too many bytes in memory
   */
  reserve(bytes: number): void;
  /** Sets the number of pending bytes. */
  hold(bytes: number): void;
  /**
   * Frees the slot of a request that became a session. The bytes of its head still count, because the session keeps the
   * head in memory.
   */
  becomeSession(): void;
  /** Ends the request. Can be called more than once. */
  leave(): void;
}

export interface UserLimits {
  /**
   * Counts a new connection. Returns false if the address of the client has too many connections. The caller must then
   * reject the requests on this connection.
   */
  connected(peer: Peer): boolean;
  /** Stops counting a closed connection. */
  disconnected(peer: Peer): void;
  /** Returns a counter for one request head from this peer's address. */
  head(peer: Pick<Peer, 'address'>): HeadPlace;
  /**
   * @param headBytes size of the request head if it is long, in bytes. Default 0
   * @throws TailcastError `OVERLOADED` that names the limit
   */
  enter(user: string, peer: Peer, headBytes?: number): RequestPlace;
}

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
      throw new TailcastError('OVERLOADED', 'your requests, sessions and responses use too much memory');
  }

  return {
    connected(peer) {
      // connections of many users may come from a loopback address, through a local proxy
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
    enter(user, peer, headBytes = 0) {
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
      const set = (bytes: number): void => {
        if (left || bytes === held) return;
        add(user, bytes - held);
        held = bytes;
      };
      const hold = (bytes: number): void => set(headBytes + bytes);
      hold(0);
      return {
        hold,
        reserve(size) {
          hold(size);
          refuseTooMuch(user);
        },
        becomeSession: leave,
        leave() {
          set(0);
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

/** An admitted request that counts for the limits of its user. */
export interface CountedAdmission {
  readonly admission: Admission;
  /** The request counts for its user until `place.leave` is called. Undefined without limits. */
  readonly place: RequestPlace | undefined;
}

/**
 * Admits a request like `Gate.admit`. During the admission, the head counts for the address of the client. As soon as
 * the user is known, the request and its head also count for the user, because access reviews may take seconds.
 *
 * @param request.isOver returns true if the client has disconnected
 */
export async function admitCounted(
  { gate, users }: { readonly gate: Pick<Gate, 'admit'>; readonly users?: Counters | undefined },
  { inbound, account, isOver }: CountedRequest,
  signal: AbortSignal,
): Promise<CountedAdmission> {
  const bytes = headBytes(inbound);
  const longBytes = bytes > USUAL_HEAD_BYTES ? bytes : 0;
  const head = users?.head(inbound.peer);
  let place: RequestPlace | undefined;
  try {
    head?.hold(longBytes);
    const admission = await gate.admit(inbound, signal, (caller) => {
      if (isOver()) throw new Error('the client left');
      try {
        place = users?.enter(callerName(caller.identity), inbound.peer, longBytes);
      } catch (error) {
        account.recognised(caller);
        throw error;
      }
    });
    account.recognised(admission);
    return { admission, place };
  } catch (error) {
    // an access review continues after its client has left, and counts for the user until its end
    place?.leave();
    throw error;
  } finally {
    head?.leave();
  }
}

type Counters = Pick<UserLimits, 'enter' | 'head'>;

/** A request before its admission. */
export interface CountedRequest {
  readonly inbound: InboundRequest;
  readonly account: Pick<Account, 'recognised'>;
  readonly isOver: () => boolean;
}

/** Calls {@link admitCounted} with the gate and the limits of one gateway. */
export type AdmitCounted = (request: CountedRequest, signal: AbortSignal) => Promise<CountedAdmission>;
