import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import { createUserLimits, USUAL_HEAD_BYTES, type UserLimits } from '../../../src/proxy/gate/user-limits.ts';
import type { Peer } from '../../../src/tailnet/identity.ts';

const ALICE = 'alice@example.com';
const BOB = 'bob@example.com';
const peerFrom = (address: string): Peer => ({ address, port: 1, source: 'socket' });
const limitsOf = (values: Partial<Parameters<typeof createUserLimits>[0]>): UserLimits =>
  createUserLimits({ requests: 100, connections: 100, bytes: 1000, headBytes: 100_000, ...values });

/** Opens a connection of a user. */
function connect(limits: UserLimits, address = '100.64.0.1'): Peer {
  const peer = peerFrom(address);
  expect(limits.connected(peer)).toBe(true);
  return peer;
}

function refusalOf(enter: () => unknown): string {
  try {
    enter();
  } catch (error) {
    if (error instanceof TailcastError && error.code === 'OVERLOADED') return error.message;
    throw error;
  }
  return '';
}

describe('the limit per user', () => {
  it('applies to concurrent requests, and each user has their own', () => {
    const limits = limitsOf({ requests: 2 });
    const peer = connect(limits);
    const first = limits.enter(ALICE, peer);
    limits.enter(ALICE, peer);
    expect(refusalOf(() => limits.enter(ALICE, peer))).toContain('2 requests in flight');
    limits.enter(BOB, connect(limits));
    first.leave();
    first.leave();
    limits.enter(ALICE, peer);
    expect(refusalOf(() => limits.enter(ALICE, peer))).not.toBe('');
  });

  it('applies to connections with requests, however many requests each connection has', () => {
    const limits = limitsOf({ connections: 2 });
    const peers = ['100.64.0.1', '100.64.0.2', '100.64.0.3'].map((address) => connect(limits, address));
    for (const peer of peers.slice(0, 2)) for (const _ of [1, 2, 3]) limits.enter(ALICE, peer);
    expect(refusalOf(() => limits.enter(ALICE, peers[2]!))).toContain('2 connections open');
    limits.enter(BOB, peers[2]!);
    limits.disconnected(peers[0]!);
    limits.disconnected(peers[0]!);
    limits.enter(ALICE, connect(limits, '100.64.0.4'));
    expect(refusalOf(() => limits.enter(ALICE, connect(limits, '100.64.0.5')))).not.toBe('');
  });

  it('applies to connections per address before the caller is identified, except for this machine', () => {
    const limits = limitsOf({ connections: 2 });
    const [first] = [connect(limits), connect(limits)];
    expect(limits.connected(peerFrom('100.64.0.1'))).toBe(false);
    connect(limits, '100.64.0.2');
    limits.disconnected(first);
    connect(limits);
    expect(limits.connected(peerFrom('100.64.0.1'))).toBe(false);
    for (const _ of [1, 2, 3]) connect(limits, '127.0.0.1');
  });

  it('applies to pending bytes: above it, new requests are refused until the bytes are released', () => {
    const limits = limitsOf({ bytes: 1000 });
    const peer = connect(limits);
    const place = limits.enter(ALICE, peer);
    place.hold(600);
    place.hold(1000);
    const other = limits.enter(ALICE, peer);
    other.hold(1);
    expect(refusalOf(() => limits.enter(ALICE, peer))).toContain('too much memory');
    limits.enter(BOB, peer);
    place.hold(999);
    limits.enter(ALICE, peer);
    place.hold(2000);
    expect(refusalOf(() => limits.enter(ALICE, peer))).not.toBe('');
    place.leave();
    // `hold` has no effect after `leave`
    place.hold(5000);
    limits.enter(ALICE, peer);
  });
});

it('the head of a request counts as pending bytes until the end of its session, which takes no slot', () => {
  const limits = limitsOf({ requests: 1, bytes: 1000 });
  const peer = connect(limits);
  const place = limits.enter(ALICE, peer, 600);
  expect(refusalOf(() => limits.enter(ALICE, peer))).toContain('1 requests in flight');
  place.becomeSession();
  const other = limits.enter(ALICE, peer);
  other.hold(401);
  other.becomeSession();
  expect(refusalOf(() => limits.enter(ALICE, peer))).toContain('too much memory');
  place.leave();
  limits.enter(ALICE, peer);
});

describe('request heads before admission', () => {
  const LONG = 30_000;

  it('may use half of the bytes for one address, and the rest for others', () => {
    const limits = limitsOf({});
    const greedy = peerFrom('100.64.0.1');
    const first = limits.head(greedy);
    first.hold(LONG);
    const second = limits.head(greedy);
    expect(refusalOf(() => second.hold(LONG))).toContain('request heads');
    second.leave();
    limits.head(peerFrom('100.64.0.2')).hold(LONG);
    first.leave();
    first.leave();
    limits.head(greedy).hold(LONG);
  });

  it('do not count up to the usual size', () => {
    const limits = limitsOf({ headBytes: 0 });
    limits.head(peerFrom('100.64.0.1')).hold(USUAL_HEAD_BYTES);
    expect(refusalOf(() => limits.head(peerFrom('100.64.0.1')).hold(USUAL_HEAD_BYTES + 1))).not.toBe('');
  });
});

it('a request cannot reserve more bytes than its user may have', () => {
  const limits = limitsOf({ bytes: 1000 });
  const place = limits.enter(ALICE, connect(limits));
  place.reserve(1000);
  expect(refusalOf(() => place.reserve(1001))).not.toBe('');
  place.leave();
  limits.enter(ALICE, connect(limits)).reserve(1000);
});
