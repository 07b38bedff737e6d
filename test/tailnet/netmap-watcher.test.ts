import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { createLocalApi, type LocalApi } from '../../src/tailnet/local-api.ts';
import { watchNetmap } from '../../src/tailnet/netmap-watcher.ts';
import { createWhois } from '../../src/tailnet/whois.ts';
import {
  startLocalApiDouble,
  taggedNode,
  userNode,
  type LocalApiDouble,
} from '../support/local-api-double.ts';

let daemon: LocalApiDouble;
let localApi: LocalApi;
let stop: AbortController;
let watching: Promise<void>;
const sleeps: number[] = [];
const changes = { count: 0, next: Promise.withResolvers<void>() };

function onChange(): void {
  changes.count += 1;
  changes.next.resolve();
  changes.next = Promise.withResolvers();
}

beforeEach(async () => {
  daemon = await startLocalApiDouble();
  localApi = createLocalApi({ socketPath: daemon.socketPath });
  stop = new AbortController();
  sleeps.length = 0;
  changes.count = 0;
});

afterEach(async () => {
  stop.abort();
  await watching;
  localApi.close();
  await daemon.close();
});

function watch(callback: () => void = onChange): void {
  watching = watchNetmap(
    {
      localApi,
      log: createSilentLogger(),
      onChange: callback,
      minBackoffMs: 100,
      maxBackoffMs: 400,
      random: () => 0,
      timer: {
        schedule(ms, action) {
          sleeps.push(ms);
          if (sleeps.length === 5) stop.abort();
          queueMicrotask(action);
          return () => undefined;
        },
      },
    },
    stop.signal,
  );
}

describe('watching the tailnet', () => {
  it.each([
    { SelfChange: { ID: 1 } },
    { PeersChanged: [{}] },
    { PeersRemoved: [7] },
    { State: 4 },
    { NetMap: {} },
  ])('tells of %o', async (message) => {
    const begun = changes.next.promise;
    watch();
    await begun;
    const changed = changes.next.promise;
    daemon.notify({ Version: '1', SelfChange: null });
    daemon.notify(message);
    await changed;
    expect(changes.count).toBe(2);
  });

  it('lets a changed identity through at once', async () => {
    daemon.whois.set('100.64.0.4', userNode());
    const whois = createWhois({ localApi });
    const peer = { address: '100.64.0.4', port: 1, source: 'proxy-protocol' } as const;
    const { signal } = new AbortController();
    const begun = changes.next.promise;
    watch(() => {
      whois.flush();
      onChange();
    });
    await begun;
    expect((await whois.whois(peer, signal)).kind).toBe('user');
    daemon.whois.set('100.64.0.4', taggedNode());
    const changed = changes.next.promise;
    daemon.notify({ PeersChanged: [{}] });
    await changed;
    expect((await whois.whois(peer, signal)).kind).toBe('tagged');
  });

  it('takes a lost bus for a change, and so the beginning of the next one', async () => {
    const first = changes.next.promise;
    watch();
    await first;
    const arrived = daemon.nextWatcher();
    const changed = changes.next.promise;
    daemon.dropWatchers();
    await changed;
    const back = changes.next.promise;
    // Waits for the check after the new bus is open, because only this check finds changes between the old bus and the
    // new one.
    await Promise.all([arrived, back]);
    const again = changes.next.promise;
    daemon.notify({ SelfChange: {} });
    await again;
    expect(changes.count).toBe(4);
  });

  it('waits longer and longer for a daemon that is away, up to a limit', async () => {
    daemon.failure = { status: 500, body: 'starting' };
    watch();
    await watching;
    expect(sleeps).toEqual([100, 200, 400, 400, 400]);
  });
});
