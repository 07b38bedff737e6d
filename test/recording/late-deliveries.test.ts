import { describe, expect, it, onTestFinished } from 'vitest';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { LateDeliveries, type LateDeps } from '../../src/recording/late-deliveries.ts';
import type { LateEvents } from '../../src/recording/late-end.ts';
import { Preamble } from '../../src/recording/preamble.ts';
import { createRecorderClient, type RecorderClient } from '../../src/recording/recorder-client.ts';
import type { RecorderConnection } from '../../src/recording/recorder-connection.ts';
import type { RecorderUpload } from '../../src/recording/recorder-upload.ts';
import { openRecorder } from '../support/recorded-rig.ts';
import { dialLoopback } from '../support/recorder-dial.ts';
import {
  framed,
  startRecorderDouble,
  type RecorderBehaviour,
  type RecorderDouble,
} from '../support/recorder-double.ts';

type Told = readonly [event: keyof LateEvents, about: unknown];

/** Creates listeners of late deliveries that store their calls in `reported`. */
function listener() {
  const reported: Told[] = [];
  const waiters = new Set<() => void>();
  const report = (event: keyof LateEvents, about: unknown): void => {
    reported.push([event, about]);
    for (const wake of waiters) wake();
  };
  const events: LateEvents = {
    left: (bytes) => report('left', bytes),
    delivered: ({ bytes, recorder: address }) => report('delivered', { bytes, recorder: address }),
    dropped: (end) => report('dropped', end),
    kept: (end) => report('kept', end),
  };
  return {
    reported,
    events,
    async until(event: keyof LateEvents): Promise<unknown> {
      for (;;) {
        const found = reported.find(([name]) => name === event);
        if (found !== undefined) return found[1];
        const changed = Promise.withResolvers<void>();
        waiters.add(changed.resolve);
        await changed.promise;
        waiters.delete(changed.resolve);
      }
    },
  };
}

const HEADER = '{"version":2}\n';
const SESSION = '{"kind":"session"}\n';
const END = '{"kind":"end"}\n';
const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

describe('an upload whose recorder is lost permanently', () => {
  function createClient(
    options: Parameters<typeof createRecorderClient>[0]['lateLimits'] = {},
  ): RecorderClient {
    const client = createRecorderClient({
      dial: dialLoopback,
      nowMs: () => performance.now(),
      log: createSilentLogger(),
      limits: { moveTimeoutMs: 60, moveRetryMs: 10, maxFruitlessMoves: 1 },
      lateLimits: { retryMs: 10, maxRetryMs: 20, ...options },
    });
    onTestFinished(() => client.close());
    return client;
  }

  /** Opens an upload to a new recorder. */
  async function openUpload(
    client: RecorderClient,
    events: LateEvents,
    behaviour: RecorderBehaviour = {},
    user = 'alice',
  ): Promise<{ readonly first: RecorderDouble; readonly upload: RecorderUpload }> {
    const first = await startRecorderDouble({ acks: 'alive', ...behaviour });
    const upload = await client.open(
      { recorders: [first.address], sessionId: 's1', about: { user }, late: events },
      new AbortController().signal,
    );
    return { first, upload };
  }

  /** Uploads the start of a session. The recorder acknowledges `acknowledged` bytes, and then is lost. */
  async function lostUpload(
    client: RecorderClient,
    acknowledged: number,
    events: LateEvents,
    user?: string,
  ): Promise<{ readonly upload: RecorderUpload; readonly port: number; readonly body: Buffer }> {
    const { first, upload } = await openUpload(client, events, {}, user);
    const lines = '[1,"o","a"]\n';
    const body = framed(HEADER + SESSION, lines);
    void upload.write(HEADER + SESSION);
    void upload.write(lines);
    await first.until(() => first.uploads[0]?.size === body.length);
    first.uploads[0]!.ack(acknowledged);
    while (upload.pendingBytes !== body.length - acknowledged) await new Promise((go) => setImmediate(go));
    await first.close();
    await upload.lost;
    return { upload, port: first.port, body };
  }

  it('is delivered from the last acknowledgement on, with its first and its last lines', async () => {
    const client = createClient();
    const { events, reported, until } = listener();
    const acknowledged = framed(HEADER + SESSION).length;
    const { upload, port, body } = await lostUpload(client, acknowledged, events);
    upload.leave(framed(END));
    upload.leave(framed('[2,"o","too late"]\n'));
    const bytes = body.length - acknowledged + framed(END).length;
    expect(client.late.sessions).toBe(1);
    const back = await openRecorder({}, port);
    expect(await until('delivered')).toEqual({ bytes, recorder: back.address });
    expect(back.uploads).toHaveLength(1);
    expect(back.uploads[0]!.headers).toMatchObject({
      'tailcast-session': 's1',
      'tailcast-offset': String(acknowledged),
      'tailcast-preamble': String((HEADER + SESSION).length),
    });
    expect(Number(back.uploads[0]!.headers['tailcast-part'])).toBeGreaterThan(1);
    expect(back.uploads[0]!.body).toEqual(
      Buffer.concat([utf8(HEADER + SESSION), body.subarray(acknowledged), framed(END)]),
    );
    expect(back.uploads[0]!.ended).toBe(true);
    expect(reported.map(([event]) => event)).toEqual(['left', 'delivered']);
    expect(client.late.sessions).toBe(0);
  });

  it('is delivered automatically if the session has already ended', async () => {
    const client = createClient();
    const { events, reported, until } = listener();
    const { first, upload } = await openUpload(client, events);
    void upload.write(HEADER + SESSION + END);
    await first.until(() => first.uploads[0]?.size === framed(HEADER + SESSION + END).length);
    const ended = upload.end();
    await first.close();
    expect(await ended).toBe('left');
    expect(await upload.lost).toMatchObject({ code: 'RECORDER_LOST' });
    const back = await openRecorder({}, first.port);
    await until('delivered');
    expect(back.uploads[0]!.body).toEqual(framed(HEADER + SESSION + END));
    expect(reported).toHaveLength(2);
  });

  it('is delivered to get only the confirmation if every byte was acknowledged', async () => {
    const client = createClient();
    const { events, reported, until } = listener();
    const { first, upload } = await openUpload(client, events);
    const lines = HEADER + SESSION + '[1,"o","a"]\n' + END;
    const body = framed(lines);
    void upload.write(lines);
    await first.until(() => first.uploads[0]?.size === body.length);
    first.uploads[0]!.ack(body.length);
    while (upload.pendingBytes > 0) await new Promise((go) => setImmediate(go));
    first.uploads[0]!.cut();
    await first.close();
    expect(await upload.end()).toBe('left');
    const back = await openRecorder({}, first.port);
    expect(await until('delivered')).toMatchObject({ bytes: 0 });
    expect(back.uploads[0]!.body.toString()).toBe(HEADER + SESSION);
    expect(back.uploads[0]!.ended).toBe(true);
    expect(reported[0]).toEqual(['left', 0]);
  });

  it('is not delivered if its recorder cannot continue a session, and this is reported', async () => {
    const client = createClient();
    const { events, reported } = listener();
    const { first, upload } = await openUpload(client, events, { upgradeOffered: false });
    void upload.write('12345\n');
    await first.until(() => first.uploads[0]?.size === 6);
    await first.close();
    await upload.lost;
    upload.leave(new Uint8Array(0));
    expect(reported).toEqual([
      ['left', 6],
      ['dropped', { bytes: 6, ofBytes: 6, reason: 'its recorder cannot continue a session' }],
    ]);
    await expect(upload.end()).rejects.toMatchObject({ code: 'RECORDER_LOST' });
  });

  it('is dropped when the process exits, and so is a later one', async () => {
    const client = createClient({ retryMs: 60_000, maxRetryMs: 60_000 });
    const { events, reported } = listener();
    const { upload, body } = await lostUpload(client, HEADER.length, events);
    const later = listener();
    const moving = await lostUpload(client, 0, later.events);
    upload.leave(framed(END));
    client.close();
    moving.upload.leave(framed(END));
    const bytes = body.length - HEADER.length + framed(END).length;
    expect(reported.at(-1)).toEqual(['dropped', { bytes, ofBytes: bytes, reason: 'the gateway has ended' }]);
    expect(later.reported.at(-1)).toMatchObject(['dropped', { reason: 'the gateway has ended' }]);
    expect(client.late.sessions).toBe(0);
  });

  it('is queued even if another user has used the share of that user', async () => {
    const client = createClient({ maxSessions: 2, retryMs: 60_000, maxRetryMs: 60_000 });
    const outcomes: unknown[] = [];
    for (const user of ['greedy', 'greedy', 'calm']) {
      const { events, reported } = listener();
      const { upload } = await lostUpload(client, 0, events, user);
      upload.leave(framed(END));
      outcomes.push(reported.map(([event]) => event));
    }
    expect(outcomes).toEqual([['left'], ['left', 'dropped'], ['left']]);
  });

  it('is tried immediately when a drain is in progress', async () => {
    const client = createClient({ retryMs: 600_000, maxRetryMs: 600_000, hurriedRetryMs: 10 });
    const { events, until } = listener();
    const { upload, port } = await lostUpload(client, 0, events);
    upload.leave(framed(END));
    const { address } = await openRecorder({}, port);
    client.late.hurry();
    expect(await until('delivered')).toMatchObject({ recorder: address });
  });
});

/** Creates a connection to a recorder. `act` sends the acknowledgements. */
function connectionTo(
  act: (events: Parameters<RecorderConnection['attach']>[0]) => void,
): RecorderConnection {
  return {
    address: '192.0.2.1:80',
    protocol: 'v2',
    annotations: true,
    resumable: true,
    frames: false,
    attach: (events) => queueMicrotask(() => act(events)),
    send: () => undefined,
    unwritten: 0,
    finish: () => undefined,
    destroy: () => undefined,
  };
}

function preamble(): Preamble {
  const made = new Preamble();
  made.lines(utf8(HEADER));
  return made;
}

describe('late deliveries', () => {
  /**
   * Creates late deliveries with a test clock, which advances only during pauses between attempts. The test ends each
   * pause.
   */
  function setUp(open: LateDeps['open'], limits: LateDeps['limits'] = {}) {
    const clock = { ms: 0 };
    const pauses: number[] = [];
    const paused: (() => void)[] = [];
    let arrived = Promise.withResolvers<void>();
    const late = new LateDeliveries({
      open,
      nowMs: () => clock.ms,
      random: () => 0,
      log: createSilentLogger(),
      limits,
      sleep: async (ms) => {
        pauses.push(ms);
        const over = Promise.withResolvers<void>();
        paused.push(over.resolve);
        arrived.resolve();
        await over.promise;
        clock.ms += ms;
      },
    });
    return {
      late,
      clock,
      pauses,
      /** Ends the current pause, or the next one. */
      async goOn(): Promise<void> {
        if (paused.length === 0) await arrived.promise;
        arrived = Promise.withResolvers();
        paused.shift()?.();
      },
      /** Resolves when the next pause begins. */
      async untilPaused(): Promise<void> {
        if (paused.length === 0) await arrived.promise;
      },
    };
  }

  function end(
    events: LateEvents,
    about: { sessionId?: string; user?: string; bytes?: number; recorders?: string[] } = {},
  ) {
    const { sessionId = 's1', user = 'alice', bytes = 100, recorders = ['192.0.2.1:80'] } = about;
    const rest = {
      bytes: new Uint8Array(bytes),
      offset: 50,
      lineBytes: 50,
      preamble: preamble(),
      part: 3,
      resumable: true,
    };
    return { sessionId, user, recorders, rest, events };
  }

  it('are tried again after pauses that double up to a limit, and start small after a success', async () => {
    let broken = true;
    const delivered: string[] = [];
    const { late, pauses, goOn, untilPaused } = setUp(
      async ({ sessionId }) => {
        if (broken) throw new Error('nobody there');
        if (sessionId === 'refused') throw new Error('not this one');
        delivered.push(sessionId);
        return connectionTo((events) => {
          events.acknowledged(150);
          events.finished();
        });
      },
      { retryMs: 1000, maxRetryMs: 5000 },
    );
    const { events } = listener();
    late.take(end(events, { sessionId: 'refused' }));
    late.take(end(events, { sessionId: 'a' }));
    late.take(end(events, { sessionId: 'b' }));
    for (let round = 0; round < 4; round += 1) await goOn();
    await untilPaused();
    // each pause is half of its maximum, because `random` returns 0
    expect(pauses).toEqual([500, 1000, 2000, 2500, 2500]);
    broken = false;
    await goOn();
    await untilPaused();
    expect(delivered).toEqual(['a', 'b']);
    expect(late.sessions).toBe(1);
    expect(pauses.slice(5)).toEqual([500]);
    late.close();
  });

  it('do not try more uploads to the same recorders while the first fails, but try uploads to others', async () => {
    const asked: string[] = [];
    const { late, goOn, untilPaused } = setUp(async ({ sessionId }) => {
      asked.push(sessionId);
      throw new Error('nobody there');
    });
    const { events } = listener();
    for (const sessionId of ['a', 'b', 'c']) late.take(end(events, { sessionId }));
    late.take(end(events, { sessionId: 'd', recorders: ['192.0.2.2:80'] }));
    await goOn();
    await goOn();
    await untilPaused();
    expect(asked.toSorted()).toEqual(['a', 'd']);
    late.close();
  });

  it('resolve the tags of their recorders again before each attempt', async () => {
    const asked: (readonly string[])[] = [];
    const { late, goOn, untilPaused } = setUp(async (_intent, recorders) => {
      asked.push(recorders);
      return connectionTo((events) => {
        events.acknowledged(150);
        events.finished();
      });
    });
    const { events, until } = listener();
    let hasTag = false;
    const find = async () => {
      if (!hasTag) throw new Error('no node with the tag');
      return ['192.0.2.2:80'];
    };
    late.take({ ...end(events), find });
    await goOn();
    await untilPaused();
    expect(asked).toEqual([]);
    hasTag = true;
    await goOn();
    await until('delivered');
    expect(asked).toEqual([['192.0.2.2:80']]);
  });

  it('continue after the last acknowledgement, each time as a further part', async () => {
    const offsets: unknown[] = [];
    const { late, goOn, untilPaused } = setUp(async ({ offset, part }) => {
      offsets.push([offset, part]);
      return connectionTo((events) => {
        events.acknowledged(offsets.length === 1 ? 90 : 150);
        if (offsets.length === 1) events.lost(new Error('cut'));
        else events.finished();
      });
    });
    const { events, until, reported } = listener();
    late.take(end(events));
    await goOn();
    await untilPaused();
    await goOn();
    await until('delivered');
    expect(offsets).toEqual([
      [50, 4],
      [90, 5],
    ]);
    expect(reported.map(([event]) => event)).toEqual(['left', 'delivered']);
  });

  it('are not complete if a recorder confirms without having acknowledged everything', async () => {
    const { late, goOn, untilPaused } = setUp(async () =>
      connectionTo((events) => {
        events.acknowledged(149);
        events.finished();
      }),
    );
    const { events, reported } = listener();
    late.take(end(events));
    await goOn();
    await untilPaused();
    expect(reported).toEqual([['left', 100]]);
    late.close();
    expect(reported.at(-1)).toEqual(['dropped', { bytes: 1, ofBytes: 100, reason: 'the gateway has ended' }]);
  });

  it.each([{ maxBytes: 20 * (100 + HEADER.length) }, { maxSessions: 20 }])(
    'of one user leave space for those of another user: %o',
    async (limits) => {
      const { late, goOn } = setUp(async ({ sessionId }) => {
        if (sessionId === 'greedy') throw new Error('nobody there');
        return connectionTo((events) => {
          events.acknowledged(150);
          events.finished();
        });
      }, limits);
      const greedy = listener();
      const ofGreedy = (): boolean =>
        late.take(end(greedy.events, { sessionId: 'greedy', user: 'greedy', recorders: ['192.0.2.2:80'] }));
      while (ofGreedy());
      expect(greedy.reported.at(-1)).toMatchObject(['dropped', { bytes: 100, ofBytes: 100 }]);
      const queued = late.sessions;
      expect([late.hasRoom(100, 'greedy'), late.hasRoom(100, 'calm')]).toEqual([false, true]);
      const calm = listener();
      expect(late.take(end(calm.events, { user: 'calm' }))).toBe(true);
      await goOn();
      await goOn();
      await calm.until('delivered');
      expect(late.sessions).toBe(queued);
      expect(ofGreedy()).toBe(false);
      late.close();
    },
  );

  it('have a limited number of bytes and sessions, including the starts of the sessions', async () => {
    const nobody: LateDeps['open'] = async () => {
      throw new Error('nobody there');
    };
    const bytes = setUp(nobody, { maxBytes: 4 * (100 + HEADER.length) });
    const { events, reported } = listener();
    expect([1, 2, 3].map((count) => bytes.late.take(end(events, { sessionId: `s${count}` })))).toEqual([
      true,
      true,
      false,
    ]);
    expect(reported.at(-1)).toMatchObject(['dropped', { bytes: 100, reason: /share of \d+ bytes/ }]);
    bytes.late.close();
    expect(reported.filter(([event]) => event === 'dropped')).toHaveLength(3);
    const sessions = setUp(nobody, { maxSessions: 1 });
    expect(sessions.late.take(end(events))).toBe(true);
    expect(sessions.late.take(end(events))).toBe(false);
    sessions.late.close();
    const none = setUp(nobody, { maxBytes: 0 });
    expect(none.late.take(end(events, { bytes: 1 }))).toBe(false);
  });

  it('are dropped when they are too old, and no others are', async () => {
    const { late, clock, goOn, untilPaused } = setUp(
      async () => {
        throw new Error('nobody there');
      },
      { retryMs: 1000, maxAgeMs: 10_000 },
    );
    const old = listener();
    late.take(end(old.events, { sessionId: 'old' }));
    await goOn();
    await untilPaused();
    clock.ms = 9_999;
    const young = listener();
    late.take(end(young.events, { sessionId: 'young' }));
    await goOn();
    await untilPaused();
    expect(old.reported.at(-1)).toEqual([
      'dropped',
      { bytes: 100, ofBytes: 100, reason: 'no recorder accepted it in time' },
    ]);
    expect(young.reported).toEqual([['left', 100]]);
    expect(late.sessions).toBe(1);
    late.close();
  });

  it('deliver uploads that arrive after all earlier ones were delivered', async () => {
    const { late, goOn } = setUp(async () =>
      connectionTo((events) => {
        events.acknowledged(150);
        events.finished();
      }),
    );
    for (let round = 0; round < 3; round += 1) {
      const { events, until } = listener();
      late.take(end(events));
      await goOn();
      await until('delivered');
      expect(late.sessions).toBe(0);
    }
  });

  it('are dropped if recorders accept them repeatedly and fail without any progress', async () => {
    let opened = 0;
    const { late, goOn, untilPaused } = setUp(
      async () => {
        opened += 1;
        if (opened === 2) throw new Error('nobody there');
        return connectionTo((events) => {
          if (opened === 3) events.acknowledged(60);
          events.lost(new Error('too long'));
        });
      },
      { maxFruitless: 2 },
    );
    const { events, reported, until } = listener();
    late.take(end(events));
    for (let round = 0; round < 4; round += 1) {
      await goOn();
      await untilPaused();
    }
    expect(reported).toHaveLength(1);
    await goOn();
    expect(await until('dropped')).toEqual({ bytes: 90, ofBytes: 100, reason: 'too long' });
    expect(opened).toBe(5);
  });

  it('treat a recorder without progress as failed', async () => {
    const { late, goOn, untilPaused } = setUp(async () => connectionTo(() => undefined), { stallMs: 20 });
    const { events } = listener();
    late.take(end(events));
    await goOn();
    await untilPaused();
    expect(late.sessions).toBe(1);
    late.close();
  });
});
