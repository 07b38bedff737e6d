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
const ALICE = { address: '100.64.0.4', port: 40_000 };
const GATEWAY = { address: '100.64.0.5', port: 40_000 };

function identities(uploaders: readonly string[]): ReturnType<typeof openIdentities> {
  return openIdentities({
    identity: 'tailscale',
    listen: { host: '127.0.0.1', port: 0 },
    readListen: undefined,
    trustedGateways: [],
    socket: localApi.socketPath,
    viewers: ['*'],
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

  it('answer an uploader while any number of viewers waits for tailscaled', async () => {
    const { identify, identifyViewer } = identities(['tag:gateway']);
    const { promise, resolve } = Promise.withResolvers<void>();
    localApi.hold = promise;
    const viewers = Array.from({ length: 400 }, (_, index) =>
      identifyViewer({ address: `100.64.1.${index % 200}`, port: index }, signal).catch(() => undefined),
    );
    await expect.poll(() => localApi.requests.length).toBeGreaterThan(0);
    const uploader = identify(GATEWAY, signal);
    uploader.catch(() => undefined);
    // tailscaled is asked about the uploader although it has answered none of the viewers
    await expect.poll(() => localApi.requests.some(({ url }) => url.includes('100.64.0.5'))).toBe(true);
    resolve();
    expect(await uploader).toMatchObject({ kind: 'accepted' });
    await Promise.all(viewers);
  });
});
