import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { TailcastError } from '../../src/errors.ts';
import type { Peer } from '../../src/tailnet/identity.ts';
import { createLocalApi, type LocalApi, type WhoisAnswer } from '../../src/tailnet/local-api.ts';
import { createWhois, type WhoisOptions } from '../../src/tailnet/whois.ts';
import {
  startLocalApiDouble,
  taggedNode,
  userNode,
  type LocalApiDouble,
} from '../support/local-api-double.ts';
import { codeOf } from '../support/error-code.ts';

const never = new AbortController().signal;

let daemon: LocalApiDouble;
let localApi: LocalApi;
let nowMs = 0;

beforeEach(async () => {
  daemon = await startLocalApiDouble();
  localApi = createLocalApi({ socketPath: daemon.socketPath });
  nowMs = 1000;
});

afterEach(async () => {
  localApi.close();
  await daemon.close();
});

function whoisOver(options: Partial<WhoisOptions> = {}): ReturnType<typeof createWhois> {
  return createWhois({ localApi, now: () => nowMs, ...options });
}

/** Delays the responses of tailscaled until the test resolves the returned promise. */
function hold(): PromiseWithResolvers<void> {
  const gate = Promise.withResolvers<void>();
  daemon.hold = gate.promise;
  return gate;
}

const loopback = (port = 40_000): Peer => ({ address: '127.0.0.1', port, source: 'socket' });
const proxied = (port = 33_664): Peer => ({ address: '100.64.0.4', port, source: 'proxy-protocol' });

const askedAddresses = (): (string | null)[] =>
  daemon.requests.map(({ url }) => new URL(url, 'http://x').searchParams.get('addr'));

describe('whois', () => {
  it('says which user is behind a forwarded loopback connection, by its port', async () => {
    daemon.whois.set('127.0.0.1:40000', userNode());
    expect(await whoisOver().whois(loopback(), never)).toEqual({
      kind: 'user',
      nodeId: 'nAlice',
      nodeName: 'alice.lab.ts.net',
      addresses: ['100.64.0.4', 'fd7a:115c:a1e0::4'],
      userId: 1n,
      login: 'alice@example.com',
      displayName: 'Alice',
      capabilities: new Map([['tailscale.com/cap/kubernetes', [{ impersonate: { groups: ['readers'] } }]]]),
    });
  });

  it('asks once for each Service and once for the node, and keeps the responses apart', async () => {
    daemon.whois.set('100.64.0.4', userNode());
    const whois = whoisOver();
    for (const service of ['svc:a', 'svc:b', undefined, 'svc:a', undefined])
      await whois.whois(proxied(), never, service);
    const services = daemon.requests.map(({ url }) => new URL(url, 'http://x').searchParams.get('svc_name'));
    expect(services).toEqual(['svc:a', 'svc:b', null]);
  });

  it('asks by address alone for a peer named by a PROXY header or seen with its tailnet address', async () => {
    daemon.whois.set('100.64.0.5', taggedNode());
    const whois = whoisOver();
    const peer = { address: '100.64.0.5', port: 1 };
    expect(await whois.whois({ ...peer, source: 'proxy-protocol' }, never)).toMatchObject({
      tags: ['tag:ci'],
    });
    whois.flush();
    expect(await whois.whois({ ...peer, source: 'socket' }, never)).toMatchObject({ kind: 'tagged' });
    expect(askedAddresses()).toEqual(['100.64.0.5', '100.64.0.5']);
  });

  it('does not know a peer that tailscaled does not know', async () => {
    expect(await codeOf(whoisOver().whois(loopback(), never))).toBe('IDENTITY_UNKNOWN');
  });

  it('never remembers a failure', async () => {
    const whois = whoisOver();
    expect(await codeOf(whois.whois(proxied(), never))).toBe('IDENTITY_UNKNOWN');
    daemon.whois.set('100.64.0.4', userNode());
    expect((await whois.whois(proxied(), never)).nodeId).toBe('nAlice');
  });

  it('says so when tailscaled cannot be asked, naming the socket', async () => {
    const gone = createLocalApi({ socketPath: '/nonexistent/sock' });
    const error = await createWhois({ localApi: gone })
      .whois(proxied(), never)
      .catch((thrown: unknown) => thrown as TailcastError);
    expect(error).toMatchObject({ code: 'IDENTITY_UNAVAILABLE' });
    expect((error as TailcastError).message).toContain('/nonexistent/sock');
  });
});

describe('remembering identities', () => {
  it('asks once within the time to live, counted from the question', async () => {
    daemon.whois.set('100.64.0.4', userNode());
    const whois = whoisOver({ ttlMs: 5000 });
    await whois.whois(proxied(), never);
    nowMs += 4999;
    await whois.whois(proxied(9), never);
    expect(daemon.requests).toHaveLength(1);
    nowMs += 1;
    await whois.whois(proxied(), never);
    expect(daemon.requests).toHaveLength(2);
  });

  it('caps the time to live at ten seconds', async () => {
    daemon.whois.set('100.64.0.4', userNode());
    const whois = whoisOver({ ttlMs: 3_600_000 });
    await whois.whois(proxied(), never);
    nowMs += 10_000;
    daemon.whois.delete('100.64.0.4');
    expect(await codeOf(whois.whois(proxied(), never))).toBe('IDENTITY_UNKNOWN');
  });

  it('gives the next request on a connection the new answer after a change', async () => {
    const peer = loopback();
    daemon.whois.set('127.0.0.1:40000', userNode());
    const whois = whoisOver();
    expect((await whois.whois(peer, never)).kind).toBe('user');
    daemon.whois.set('127.0.0.1:40000', taggedNode());
    expect((await whois.whois(peer, never)).kind).toBe('user');
    whois.flush();
    expect((await whois.whois(peer, never)).kind).toBe('tagged');
  });

  it('never takes a new connection from a reused loopback port for the old one', async () => {
    daemon.whois.set('127.0.0.1:40000', userNode());
    const whois = whoisOver();
    const first = loopback();
    await whois.whois(first, never);
    await whois.whois(first, never);
    expect(daemon.requests).toHaveLength(1);
    daemon.whois.set('127.0.0.1:40000', taggedNode());
    expect((await whois.whois(loopback(), never)).kind).toBe('tagged');
  });

  it('does not let a new loopback connection join the question of an old one', async () => {
    daemon.whois.set('127.0.0.1:40000', userNode());
    const gate = hold();
    const whois = whoisOver();
    const answers = [loopback(), loopback()].map((peer) => whois.whois(peer, never));
    gate.resolve();
    await Promise.all(answers);
    expect(daemon.requests).toHaveLength(2);
  });

  it('does not remember an answer that a change has overtaken', async () => {
    daemon.whois.set('100.64.0.4', userNode());
    const gate = hold();
    const whois = whoisOver();
    const before = whois.whois(proxied(), never);
    whois.flush();
    gate.resolve();
    expect((await before).kind).toBe('user');
    daemon.whois.set('100.64.0.4', taggedNode());
    expect((await whois.whois(proxied(), never)).kind).toBe('tagged');
  });

  it('does not let those who ask after a change join a question from before', async () => {
    daemon.whois.set('100.64.0.4', userNode());
    const gate = hold();
    const whois = whoisOver();
    const before = whois.whois(proxied(), never);
    whois.flush();
    const after = whois.whois(proxied(), never);
    gate.resolve();
    await Promise.all([before, after]);
    expect(daemon.requests).toHaveLength(2);
    await whois.whois(proxied(), never);
    expect(daemon.requests).toHaveLength(2);
  });

  it('forgets the oldest when there is no room', async () => {
    for (const last of [1, 2, 3]) daemon.whois.set(`100.64.0.${last}`, userNode());
    const whois = whoisOver({ maxEntries: 2 });
    const ask = (last: number) =>
      whois.whois({ address: `100.64.0.${last}`, port: 1, source: 'proxy-protocol' }, never);
    for (const last of [1, 2, 3, 2, 3, 1]) await ask(last);
    expect(askedAddresses()).toEqual(['100.64.0.1', '100.64.0.2', '100.64.0.3', '100.64.0.1']);
  });
});

describe('questions under way', () => {
  it('are shared by those who ask the same', async () => {
    daemon.whois.set('100.64.0.4', userNode());
    const whois = whoisOver();
    await Promise.all(Array.from({ length: 20 }, () => whois.whois(proxied(), never)));
    expect(daemon.requests).toHaveLength(1);
  });

  it('go on for the others when one withdraws', async () => {
    daemon.whois.set('100.64.0.4', userNode());
    const gate = hold();
    const whois = whoisOver();
    const withdrawing = new AbortController();
    const lost = whois.whois(proxied(), withdrawing.signal);
    const kept = whois.whois(proxied(), never);
    withdrawing.abort(new Error('client gone'));
    await expect(lost).rejects.toThrow('client gone');
    gate.resolve();
    expect((await kept).nodeId).toBe('nAlice');
  });

  it('are few at once, wait in a short line, and are refused beyond it', async () => {
    const asked: string[] = [];
    const gate = Promise.withResolvers<WhoisAnswer>();
    const slow = {
      whois: (address: string) => {
        asked.push(address);
        return gate.promise;
      },
    };
    const whois = createWhois({ localApi: slow, maxConcurrent: 2, maxQueued: 3 });
    const answers = [1, 2, 3, 4, 5].map((port) => whois.whois(loopback(port), never));
    const settled = Promise.allSettled(answers);
    expect(await codeOf(whois.whois(loopback(6), never))).toBe('IDENTITY_UNAVAILABLE');
    expect(asked).toHaveLength(2);
    gate.resolve({ kind: 'found', json: JSON.stringify(userNode()) });
    expect((await settled).map(({ status }) => status)).toEqual(Array(5).fill('fulfilled'));
    expect(asked).toEqual(['127.0.0.1:1', '127.0.0.1:2', '127.0.0.1:3', '127.0.0.1:4', '127.0.0.1:5']);
  });

  it('are given up when tailscaled is too slow, the time in line included', async () => {
    const gate = Promise.withResolvers<WhoisAnswer>();
    const stuck = {
      whois: (_address: string, signal: AbortSignal) =>
        Promise.race([
          gate.promise,
          new Promise<never>((_, reject) => {
            signal.addEventListener('abort', () => reject(signal.reason as Error));
          }),
        ]),
    };
    const whois = createWhois({ localApi: stuck, timeoutMs: 30, maxConcurrent: 1 });
    const answers = [1, 2].map((port) => codeOf(whois.whois(loopback(port), never)));
    expect(await Promise.all(answers)).toEqual(['IDENTITY_UNAVAILABLE', 'IDENTITY_UNAVAILABLE']);
  });
});
