import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openIdentities } from '../../src/compose/recorder-identities.ts';
import {
  startLocalApiDouble,
  taggedNode,
  userNode,
  type LocalApiDouble,
} from '../support/local-api-double.ts';

let localApi: LocalApiDouble;
beforeEach(async () => {
  localApi = await startLocalApiDouble();
  localApi.whois.set('100.64.0.4', userNode());
  localApi.whois.set('100.64.0.5', taggedNode(['tag:gateway']));
});
afterEach(() => localApi.close());

const signal = new AbortController().signal;
const ALICE = { source: 'socket', address: '100.64.0.4', port: 40_000 } as const;
const GATEWAY = { source: 'socket', address: '100.64.0.5', port: 40_000 } as const;

function identities(
  uploaders: readonly string[],
  viewers: readonly string[] = ['*'],
): ReturnType<typeof openIdentities> {
  return openIdentities({
    identity: 'tailscale',
    listen: { host: '127.0.0.1', port: 0 },
    readListen: undefined,
    proxyProtocol: undefined,
    trustedGateways: [],
    socket: localApi.socketPath,
    viewers,
    uploaders,
  });
}

describe('the identities of a recorder', () => {
  it('let nobody upload who is not among the uploaders', async () => {
    for (const uploaders of [['tag:gateway'], ['nCi']]) {
      const { identify } = identities(uploaders);
      expect(await identify(GATEWAY, signal)).toMatchObject({ kind: 'accepted', nodeId: 'nCi' });
      expect(await identify(ALICE, signal)).toMatchObject({ kind: 'refused' });
    }
    const { identify } = identities(['tag:other', 'alice@example.com', 'alice.lab.ts.net']);
    expect(await identify(GATEWAY, signal)).toMatchObject({ kind: 'refused' });
    expect(await identify(ALICE, signal)).toMatchObject({ kind: 'refused' });
  });

  it('let every node upload when no uploaders are named', async () => {
    const { identify } = identities([]);
    expect(await identify(ALICE, signal)).toMatchObject({ kind: 'accepted', nodeId: 'nAlice' });
  });

  it('know viewers as tailscaled does', async () => {
    for (const viewers of [['*'], []]) {
      const { identifyViewer } = identities([], viewers);
      expect(await identifyViewer(ALICE, signal)).toEqual({
        node: 'alice.lab.ts.net',
        nodeId: 'nAlice',
        user: 'alice@example.com',
      });
      expect(await identifyViewer(GATEWAY, signal)).toEqual({
        node: 'ci.lab.ts.net',
        nodeId: 'nCi',
        tags: ['tag:gateway'],
      });
    }
  });

  it('refuse a viewer of whom nothing is known where viewers are named, and only there', async () => {
    const stranger = { ...ALICE, address: '100.64.0.99' };
    expect(await identities([], ['*']).identifyViewer(stranger, signal)).toBeUndefined();
    expect(await identities([], []).identifyViewer(stranger, signal)).toEqual({ node: '', nodeId: '' });
    localApi.failure = { status: 500, body: 'broken' };
    await expect(identities([], ['*']).identifyViewer(ALICE, signal)).rejects.toMatchObject({
      name: 'TailcastError',
    });
    expect(await identities([], []).identifyViewer(ALICE, signal)).toEqual({ node: '', nodeId: '' });
  });

  it('are ready when tailscaled answers', async () => {
    const [check] = identities([]).checks;
    await check!.check(signal);
    localApi.failure = { status: 500, body: 'broken' };
    await expect(check!.check(signal)).rejects.toMatchObject({ name: 'TailcastError' });
  });

  it('answer an uploader while any number of viewers waits for tailscaled', async () => {
    const { identify, identifyViewer } = identities(['tag:gateway']);
    const { promise, resolve } = Promise.withResolvers<void>();
    localApi.hold = promise;
    let answered = 0;
    const viewers = Array.from({ length: 400 }, async (_, index) => {
      await identifyViewer({ ...ALICE, address: `100.64.1.${index % 200}` }, signal).catch(() => undefined);
      answered += 1;
    });
    await expect.poll(() => localApi.requests.length).toBeGreaterThan(0);
    const uploader = identify(GATEWAY, signal);
    uploader.catch(() => undefined);
    // the recorder asks tailscaled who the uploader is, although its queries about the viewers are still pending
    await expect.poll(() => localApi.requests.some(({ url }) => url.includes('100.64.0.5'))).toBe(true);
    // no viewer's request has timed out: such a request would have freed a slot for the query about the uploader
    expect(answered).toBe(0);
    resolve();
    expect(await uploader).toMatchObject({ kind: 'accepted' });
    await Promise.all(viewers);
  });
});
