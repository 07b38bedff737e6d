import { PassThrough } from 'node:stream';
import { describe, expect, it, onTestFinished } from 'vitest';
import { Pump, type ClientSide, type PumpDeps } from '../../../src/proxy/front/pump.ts';
import { createEvents } from '../../../src/observe/events.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { createMetrics } from '../../../src/observe/metrics.ts';
import type { AccessEntry } from '../../../src/observe/access-log.ts';
import { TailcastError } from '../../../src/errors.ts';
import { createClient, openRig, person, rawClient, rigWith, type Rig, type RigOptions } from '../rig.ts';

async function ask(path: string, options: RigOptions): Promise<Rig> {
  const rig = await openRig(options);
  onTestFinished(() => rig.close());
  const client = createClient('h1', rig);
  onTestFinished(() => client.close());
  await client.ask({ path });
  await expect.poll(() => rig.access.length).toBe(1);
  return rig;
}

const answering: RigOptions['upstream'] = ({ socket }) =>
  socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'));

describe('the metrics of a request', () => {
  it.each([
    ['/api/v1/pods', 1],
    ['/api/v1/pods?watch=1', 0],
    ['/api/v1/namespaces/n/pods/p/log?follow=true', 0],
  ])('contain its duration, except for requests that may last forever: %s', async (path, count) => {
    const { metrics } = await ask(path, { upstream: answering });
    const line = /^tailcast_request_duration_seconds_count\{protocol="h1"\} (\d+)$/m.exec(
      await metrics.registry.metrics(),
    );
    expect(Number(line?.[1] ?? 0)).toBe(count);
  });

  it('count by code why the API server did not respond', async () => {
    const { metrics } = await ask('/api', { upstream: answering, upstreamPort: 1 });
    const lines = (await metrics.registry.metrics()).match(
      /^tailcast_upstream_failures_total\{.*\} [1-9].*$/gm,
    );
    expect(lines).toEqual(['tailcast_upstream_failures_total{code="UPSTREAM_UNAVAILABLE"} 1']);
  });
});

describe('a client that cannot be sent an error response', () => {
  it('is disconnected, counted and logged, and no error is thrown', async () => {
    const metrics = createMetrics();
    const access: AccessEntry[] = [];
    const load = { inFlight: 0 };
    let cuts = 0;
    const unused = (): never => {
      throw new Error('not to be called');
    };
    const client: ClientSide = {
      protocol: 'h2',
      needsPayload: true,
      begun: false,
      unsentBytes: 0,
      informational: unused,
      sendContinue: unused,
      head: unused,
      write: unused,
      flush: unused,
      end: unused,
      refuse: () => {
        throw new Error('the stream is of no use');
      },
      cut: () => (cuts += 1),
    };
    const deps = {
      gate: { admit: () => Promise.reject(new TailcastError('NOT_FOUND')) },
      events: createEvents(metrics, createSilentLogger()),
      metrics,
      accessLog: { write: (entry: AccessEntry) => access.push(entry) },
      monotonicMs: () => performance.now(),
      load,
      maxInFlight: 1,
    } as unknown as PumpDeps;
    const inbound = {
      method: 'GET',
      target: '/api',
      rawHeaders: [],
      peer: { address: '100.64.0.1', port: 1, source: 'socket' },
      upgrade: false,
    } as const;
    const body = { framing: { kind: 'none' }, stream: new PassThrough(), expectsContinue: false } as const;
    await new Pump(deps, client, inbound, body).run(new AbortController().signal);
    expect([cuts, load.inFlight]).toEqual([1, 0]);
    expect(access).toMatchObject([{ status: 404, error: 'NOT_FOUND' }]);
    expect(await metrics.registry.metrics()).toContain('tailcast_upstream_failures_total{code="INTERNAL"} 1');
  });
});

describe('a caller who loses access while the gateway reads the body for the event', () => {
  it('gets 403, and the API server gets no request', async () => {
    let revoke: ((error: TailcastError) => void) | undefined;
    let isWatched = false;
    const rig = await rigWith(answering, {
      identity: person([
        { impersonate: { groups: ['devs'] }, recorderAddrs: ['127.0.0.1:1'], enforceRecorder: true },
      ]),
      rechecks: {
        watch(_admission, _peer, end) {
          revoke = end;
          isWatched = true;
          return () => (isWatched = false);
        },
      },
    });
    const pod = '{"kind":"Pod","spec":{"containers":[]}}';
    const client = await rawClient(rig);
    client.socket.write(
      `POST /api/v1/namespaces/n/pods HTTP/1.1\r\nHost: gateway\r\nContent-Length: ${pod.length}\r\n\r\n{`,
    );
    await expect.poll(() => rig.proxy.inFlight).toBe(1);
    await expect.poll(() => revoke !== undefined).toBe(true);
    revoke?.(new TailcastError('ACCESS_ENDED', 'the grant of devs is gone'));
    client.socket.write(pod.slice(1));
    expect(await client.until((text) => text.includes('\r\n\r\n{'))).toContain('HTTP/1.1 403');
    await expect.poll(() => rig.proxy.inFlight).toBe(0);
    expect([rig.upstreams.length, rig.records.length, isWatched]).toEqual([0, 0, false]);
  });
});

describe('a client that leaves while the event of its request is stored', () => {
  it('counts as a request until the event is stored', async () => {
    const stored = Promise.withResolvers<void>();
    let isStoring = false;
    const rig = await rigWith(answering, {
      identity: person([{ recorderAddrs: ['100.64.0.9:80'], enableEvents: true }]),
      recordApiRequest: () => {
        isStoring = true;
        return stored.promise;
      },
    });
    const client = await rawClient(rig);
    client.socket.write('DELETE /api/v1/namespaces/n/pods/p HTTP/1.1\r\nHost: gateway\r\n\r\n');
    await expect.poll(() => isStoring).toBe(true);
    client.socket.destroy();
    await expect.poll(() => rig.access.length).toBe(1);
    expect(rig.proxy.inFlight).toBe(1);
    stored.resolve();
    await expect.poll(() => rig.proxy.inFlight).toBe(0);
    expect(rig.upstreams.length).toBe(0);
  });
});
