import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createLocalApi, type LocalApi } from '../../src/tailnet/local-api.ts';
import { createTagResolver } from '../../src/tailnet/resolve-tag.ts';
import { startLocalApiDouble, type LocalApiDouble } from '../support/local-api-double.ts';

let daemon: LocalApiDouble;
let localApi: LocalApi;
let nowMs = 0;

function peer(name: string, ip: string, tags: readonly string[] | undefined, online = true): unknown {
  return {
    ID: name,
    DNSName: `${name}.lab.ts.net.`,
    TailscaleIPs: [`fd7a::${ip.split('.')[3]}`, ip],
    Tags: tags,
    Online: online,
  };
}

beforeEach(async () => {
  daemon = await startLocalApiDouble();
  localApi = createLocalApi({ socketPath: daemon.socketPath });
  daemon.status = {
    BackendState: 'Running',
    Peer: {
      a: peer('rec-10', '100.64.0.10', ['tag:rec', 'tag:other']),
      b: peer('rec-9', '100.64.0.9', ['tag:rec']),
      c: peer('rec-off', '100.64.0.1', ['tag:rec'], false),
      d: peer('alice', '100.64.0.2', undefined),
      e: peer('recorder-like', '100.64.0.3', ['tag:rec2']),
      f: { ID: 'f', DNSName: 'bare.', Tags: ['tag:rec'], Online: true },
    },
  };
});

afterEach(async () => {
  localApi.close();
  await daemon.close();
});

function resolver(): ReturnType<typeof createTagResolver> {
  return createTagResolver({
    localApi,
    signal: new AbortController().signal,
    maxAgeMs: 3000,
    now: () => nowMs,
  });
}

describe('recorders by tag', () => {
  it('are the nodes that carry it and are online, lowest address first, IPv4 before IPv6', async () => {
    expect(await resolver().resolve(['tag:rec'])).toEqual([
      { name: 'rec-9.lab.ts.net', addresses: ['100.64.0.9:80', '[fd7a::9]:80'] },
      { name: 'rec-10.lab.ts.net', addresses: ['100.64.0.10:80', '[fd7a::10]:80'] },
    ]);
  });

  it('come once each when several tags fit', async () => {
    expect(await resolver().resolve(['tag:other', 'tag:rec', 'tag:rec'])).toHaveLength(2);
  });

  it('are none without a tag, without asking', async () => {
    expect(await resolver().resolve([])).toEqual([]);
    expect(daemon.requests).toHaveLength(0);
  });

  it.each([
    ['100.64.0.9:80', ['tag:rec'], true],
    ['[fd7a::9]:80', ['tag:rec'], true],
    ['[FD7A:0::9]:8080', ['tag:none', 'tag:rec'], true],
    // an offline node
    ['100.64.0.1:80', ['tag:rec'], true],
    // this node
    ['100.64.0.77:80', ['tag:rec'], true],
    ['100.64.0.2:80', ['tag:rec'], false],
    ['100.64.0.3:80', ['tag:rec'], false],
    ['100.64.0.99:80', ['tag:rec'], false],
    ['127.0.0.1:80', ['tag:rec'], false],
    ['100.64.0.9:80', [], false],
    ['recorder.lab.ts.net:80', ['tag:rec'], false],
  ])('%s is of a node with %j: %s', async (address, tags, expected) => {
    const Self = peer('gateway', '100.64.0.77', ['tag:rec']);
    daemon.status = { ...(daemon.status as object), Self };
    expect(await resolver().carries(address, tags)).toBe(expected);
  });

  it('does not say of a node what it does not know', async () => {
    daemon.failure = { status: 500, body: 'x' };
    await expect(resolver().carries('100.64.0.9:80', ['tag:rec'])).rejects.toMatchObject({
      code: 'TAILNET_UNAVAILABLE',
    });
  });

  it('are asked for again after a moment, and a failure is not remembered', async () => {
    const tags = resolver();
    await tags.resolve(['tag:rec']);
    await tags.resolve(['tag:rec']);
    expect(daemon.requests).toHaveLength(1);
    nowMs += 3000;
    daemon.failure = { status: 500, body: 'x' };
    await expect(tags.resolve(['tag:rec'])).rejects.toMatchObject({ code: 'TAILNET_UNAVAILABLE' });
    daemon.failure = undefined;
    expect(await tags.resolve(['tag:rec'])).toHaveLength(2);
  });
});
