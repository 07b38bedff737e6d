import { existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createJournalKey, KEY_BYTES } from '../../src/recording/journal/journal-key.ts';
import { readLeft } from '../../src/recording/journal/left-journal.ts';
import { SessionJournal, type JournalRoom } from '../../src/recording/journal/session-journal.ts';
import type { ConnectionEvents, RecorderConnection } from '../../src/recording/recorder-connection.ts';
import { RecorderUpload, type UploadDeps } from '../../src/recording/recorder-upload.ts';
import { createUploadMemory } from '../../src/recording/delivery-window.ts';
import { framed } from '../support/recorder-double.ts';

const FRAME_LEAD_BYTES = framed('').length;
const KIB = 1024;
const MIB = 1024 * KIB;
const key = createJournalKey(Buffer.alloc(KEY_BYTES, 7));
const head = { sessionId: 's1', recorders: ['192.0.2.1:80'], recorderTags: [], about: {} };
const LIMITS = {
  maxPendingBytes: 8 * MIB,
  stallWindowMs: 60_000,
  finishTimeoutMs: 60_000,
  maxFruitlessMoves: 3,
};

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'tcdelay-'));
});
afterEach(() => {
  vi.useRealTimers();
});

/** Creates a connection to a recorder that acknowledges on request. */
function createConnection() {
  let events: ConnectionEvents | undefined;
  const connection: RecorderConnection = {
    address: '192.0.2.1:80',
    protocol: 'v2',
    annotations: true,
    resumable: true,
    frames: true,
    attach: (listener) => (events = listener),
    send: () => undefined,
    unwritten: 0,
    finish: () => undefined,
    destroy: () => undefined,
  };
  return {
    connection,
    acknowledge: (offset: number) => events?.acknowledged(offset),
    finished: () => events?.finished(),
    lose: () => events?.lost(new Error('gone')),
  };
}

function createRig(deps: Partial<UploadDeps> = {}, limits: Partial<typeof LIMITS> = {}) {
  const disk = { isFull: false };
  // keeps the path, because `directory` changes with the next test while this journal may still write
  const own = directory;
  const room: JournalRoom = {
    directory: () => own,
    key,
    reserve: () => !disk.isFull,
    release: () => undefined,
    failed: () => undefined,
    forget: () => undefined,
  };
  const recorder = createConnection();
  const memory = createUploadMemory();
  const upload = new RecorderUpload(
    recorder.connection,
    { ...LIMITS, ...limits },
    {
      journal: new SessionJournal(room, 'j', head),
      memory,
      user: 'alice',
      ...deps,
    },
  );
  return { upload, recorder, memory, disk };
}

/**
 * Returns the range of the output that the next process would find on disk. Repeats the read if a file disappears,
 * because abandoned files are removed in the background.
 */
async function left(): Promise<{ readonly from: number; readonly to: number }> {
  for (;;) {
    const paths = readdirSync(directory)
      .toSorted()
      .map((name) => join(directory, name));
    try {
      const { rest } = (await readLeft(paths, key)) ?? {};
      return { from: rest?.offset ?? 0, to: (rest?.offset ?? 0) + (rest?.bytes.length ?? 0) };
    } catch (error) {
      if (paths.every((path) => existsSync(path))) throw error;
    }
  }
}

/** Returns a frame of `bytes` bytes. */
function line(bytes: number): Buffer {
  return framed(`${'x'.repeat(bytes - FRAME_LEAD_BYTES - 1)}\n`);
}

/** @returns an object whose `done` becomes true when a writer may continue */
function watch(wait: void | Promise<void>): { done: boolean } {
  const state = { done: wait === undefined };
  if (wait !== undefined) {
    void wait.then(
      () => (state.done = true),
      () => undefined,
    );
  }
  return state;
}

const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

describe('the memory of all sessions', () => {
  it('limits the window of each session, if much output of the user is unacknowledged', async () => {
    const { upload, recorder, memory } = createRig();
    memory.retained.keep('alice', 64 * MIB);
    for (let count = 0; count < 5; count += 1) expect(upload.write(line(50 * KIB))).toBeUndefined();
    const sixth = watch(upload.write(line(50 * KIB)));
    expect([sixth.done, memory.retained.bytes - 64 * MIB]).toEqual([false, 300 * KIB]);
    recorder.acknowledge(50 * KIB);
    await settled();
    expect([sixth.done, memory.retained.bytes - 64 * MIB]).toEqual([true, 250 * KIB]);
    recorder.acknowledge(300 * KIB);
    void upload.end();
    recorder.finished();
    expect(memory.retained.bytes).toBe(64 * MIB);
  });

  it('no longer counts the output of an upload that is lost', async () => {
    const { upload, recorder, memory } = createRig();
    expect(upload.write(line(50 * KIB))).toBeUndefined();
    recorder.lose();
    await upload.lost;
    expect(memory.retained.bytes).toBe(0);
  });
});

describe('a user whose sessions use as much memory as they can', () => {
  it('does not limit the window of another user', () => {
    const { upload, memory } = createRig();
    for (let count = 0; count < 10; count += 1) {
      const greedy = createRig({ memory, user: 'greedy' }, { maxPendingBytes: 0 });
      for (let mebibytes = 0; mebibytes < 8; mebibytes += 1) void greedy.upload.write(line(MIB));
    }
    for (let count = 0; count < 80; count += 1) expect(upload.write(line(50 * KIB))).toBeUndefined();
  });

  it('leaves bursts to another user', () => {
    const { upload, memory } = createRig();
    const floods = Array.from({ length: 9 }, () => createRig({ memory, user: 'greedy' }));
    for (const greedy of floods) {
      do void greedy.upload.write(line(512 * KIB));
      while (greedy.upload.acceptsMore);
    }
    expect(upload.write(line(64 * KIB))).toBeInstanceOf(Promise);
    expect(upload.acceptsMore).toBe(true);
    for (const each of floods) each.upload.abort();
    upload.abort();
  });
});

describe('a large output', () => {
  it('is shown when the recorder has acknowledged it, and nothing of it is written to the journal', async () => {
    const { upload, recorder } = createRig();
    expect(upload.write(line(100))).toBeUndefined();
    const first = watch(upload.write(line(256 * KIB)));
    expect(upload.acceptsMore).toBe(true);
    expect(await left()).toEqual({ from: 0, to: 100 });
    const second = watch(upload.write(line(256 * KIB)));
    recorder.acknowledge(100 + 256 * KIB - 1);
    await settled();
    expect([first.done, second.done]).toEqual([false, false]);
    recorder.acknowledge(100 + 256 * KIB);
    await settled();
    expect([first.done, second.done]).toEqual([true, false]);
    recorder.acknowledge(100 + 512 * KIB);
    await settled();
    expect([first.done, second.done]).toEqual([true, true]);
    expect(upload.acceptsMore).toBe(false);
    expect(await left()).toEqual({ from: 0, to: 100 });
  });

  it('delays a small output that follows it', async () => {
    const { upload, recorder } = createRig();
    void upload.write(line(64 * KIB));
    const small = watch(upload.write(line(10)));
    await settled();
    expect(small.done).toBe(false);
    recorder.acknowledge(64 * KIB + 10);
    await settled();
    expect(small.done).toBe(true);
    expect(upload.write(line(10))).toBeUndefined();
    expect(await left()).toEqual({ from: 64 * KIB + 10, to: 64 * KIB + 20 });
  });

  it('goes to the journal if the recorder does not acknowledge it within a short time', async () => {
    const { upload } = createRig();
    await upload.write(line(64 * KIB));
    expect(await left()).toEqual({ from: 0, to: 64 * KIB });
  });

  it('does not go to the journal while the recorder keeps up', () => {
    vi.useFakeTimers();
    const { upload, recorder, memory } = createRig();
    void upload.write(line(64 * KIB));
    let written = 64 * KIB;
    // the loop takes longer than the maximum delay of a slow recorder
    for (let turn = 0; turn < 30; turn += 1) {
      void upload.write(line(64 * KIB));
      vi.advanceTimersByTime(10);
      expect(upload.acceptsMore).toBe(true);
      recorder.acknowledge(written);
      written += 64 * KIB;
      expect(memory.unsaved.bytes).toBe(64 * KIB);
    }
    expect(readdirSync(directory)).toEqual([]);
    recorder.acknowledge(written);
    expect(upload.acceptsMore).toBe(false);
    expect(memory.unsaved.bytes).toBe(0);
  });

  it('goes to the journal if the recorder acknowledges it far too slowly', async () => {
    vi.useFakeTimers();
    const { upload, recorder } = createRig();
    const waits = [64, 64, 64, 64].map((kib) => watch(upload.write(line(kib * KIB))));
    for (let acknowledged = 1000; acknowledged <= 20_000; acknowledged += 1000) {
      recorder.acknowledge(acknowledged);
      vi.advanceTimersByTime(10);
    }
    vi.useRealTimers();
    await settled();
    expect(waits.map(({ done }) => done)).toEqual([true, true, true, true]);
    expect(await left()).toMatchObject({ to: 256 * KIB });
  });

  it('has its own time limit, independent of the previous one', () => {
    vi.useFakeTimers();
    const { upload, recorder } = createRig();
    void upload.write(line(64 * KIB));
    vi.advanceTimersByTime(50);
    recorder.acknowledge(64 * KIB);
    void upload.write(line(64 * KIB));
    vi.advanceTimersByTime(99);
    expect(upload.acceptsMore).toBe(true);
    vi.advanceTimersByTime(1);
    expect(upload.acceptsMore).toBe(false);
  });

  it('waits for the recorder again if the recorder was in time between two late acknowledgements', () => {
    vi.useFakeTimers();
    const { upload, recorder } = createRig();
    for (const floods of [1, 2, 3]) {
      void upload.write(line(64 * KIB));
      expect(upload.acceptsMore).toBe(true);
      if (floods === 2) recorder.acknowledge(floods * 64 * KIB);
      else vi.advanceTimersByTime(100);
      expect(upload.acceptsMore).toBe(false);
    }
    void upload.write(line(64 * KIB));
    expect(upload.acceptsMore).toBe(true);
  });

  it('goes to the journal immediately if other sessions use the share of the user', async () => {
    const memory = createUploadMemory();
    memory.unsaved.keep('alice', 16 * MIB - 64 * KIB + 1);
    const { upload } = createRig({ memory });
    expect(upload.write(line(64 * KIB))).toBeUndefined();
    expect(await left()).toEqual({ from: 0, to: 64 * KIB });
    memory.unsaved.give('alice', 1);
    expect(upload.write(line(64 * KIB))).toBeInstanceOf(Promise);
    upload.abort();
  });

  it('goes to the journal immediately after the recorder was too slow twice', async () => {
    const { upload, recorder } = createRig();
    await upload.write(line(64 * KIB));
    await upload.write(line(64 * KIB));
    expect(upload.write(line(64 * KIB))).toBeUndefined();
    expect(await left()).toEqual({ from: 0, to: 192 * KIB });
    recorder.acknowledge(192 * KIB);
  });

  it('goes to the journal from the first unacknowledged byte on', async () => {
    const { upload, recorder } = createRig();
    void upload.write(line(100));
    const wait = upload.write(line(256 * KIB));
    recorder.acknowledge(100 * KIB);
    await wait;
    expect(await left()).toEqual({ from: 100 * KIB, to: 100 + 256 * KIB });
  });

  it('goes to the journal if the recorder is lost, before the gateway looks for another recorder', async () => {
    let found = 0;
    const { upload, recorder } = createRig({
      async move() {
        ({ to: found } = await left());
        throw new Error('nobody');
      },
    });
    const wait = watch(upload.write(line(128 * KIB)));
    recorder.lose();
    await settled();
    expect(wait.done).toBe(true);
    await upload.lost;
    expect(found).toBe(128 * KIB);
  });

  it('waits only for the recorder if the journal rejects it', async () => {
    const { upload, recorder, disk } = createRig();
    disk.isFull = true;
    const wait = watch(upload.write(line(128 * KIB)));
    await new Promise((resolve) => setTimeout(resolve, 200));
    expect(wait.done).toBe(false);
    recorder.acknowledge(128 * KIB);
    await settled();
    expect(wait.done).toBe(true);
  });

  it('is not collected while other sessions use the share of the user', () => {
    const memory = createUploadMemory();
    const { upload } = createRig({ memory });
    void upload.write(line(64 * KIB));
    expect(upload.acceptsMore).toBe(true);
    memory.unsaved.keep('alice', 16 * MIB - 64 * KIB - 1);
    expect(upload.acceptsMore).toBe(true);
    memory.unsaved.keep('alice', 1);
    expect(upload.acceptsMore).toBe(false);
    upload.abort();
  });

  it('is collected up to the share of the user', () => {
    const memory = createUploadMemory();
    const rigs = Array.from({ length: 5 }, () => createRig({ memory }));
    const gathered = rigs.map(({ upload }) => {
      let count = 0;
      do {
        void upload.write(line(512 * KIB));
        count += 1;
      } while (upload.acceptsMore);
      return count / 2;
    });
    expect(gathered).toEqual([4, 4, 4, 4, 0.5]);
    expect(memory.unsaved.bytes).toBe(16 * MIB);
    for (const { recorder } of rigs) recorder.acknowledge(64 * MIB);
    expect(memory.unsaved.bytes).toBe(0);
  });

  it('is collected up to the window', () => {
    const { upload, recorder } = createRig({}, { maxPendingBytes: 128 * KIB });
    void upload.write(line(64 * KIB));
    expect(upload.acceptsMore).toBe(true);
    void upload.write(line(64 * KIB));
    expect(upload.acceptsMore).toBe(false);
    recorder.acknowledge(128 * KIB);
  });

  it('accepts no more output without a window after a write that exceeds the share of the user', () => {
    const memory = createUploadMemory();
    memory.unsaved.keep('alice', 16 * MIB - 96 * KIB);
    const { upload } = createRig({ memory }, { maxPendingBytes: 0 });
    void upload.write(line(64 * KIB));
    expect(upload.acceptsMore).toBe(true);
    void upload.write(line(64 * KIB));
    expect(upload.acceptsMore).toBe(false);
    upload.abort();
    expect(memory.unsaved.bytes).toBe(16 * MIB - 96 * KIB);
  });

  it('waits only for the recorder without a window, and accepts more output meanwhile', async () => {
    const { upload, recorder } = createRig({}, { maxPendingBytes: 0 });
    const waits = [100, 64 * KIB, 64 * KIB].map((bytes) => watch(upload.write(line(bytes))));
    expect(upload.acceptsMore).toBe(true);
    await new Promise((resolve) => setTimeout(resolve, 200));
    recorder.acknowledge(100 + 64 * KIB - 1);
    await settled();
    expect(waits.map(({ done }) => done)).toEqual([true, false, false]);
    recorder.acknowledge(100 + 128 * KIB);
    await settled();
    expect(waits.map(({ done }) => done)).toEqual([true, true, true]);
    expect(readdirSync(directory)).toEqual([]);
  });

  it('leaves no timer and no counted bytes after the upload is aborted or confirmed', async () => {
    const { upload, memory } = createRig();
    void upload.write(line(128 * KIB));
    upload.abort();
    expect(memory.unsaved.bytes).toBe(0);
    const other = createRig();
    void other.upload.write(line(128 * KIB));
    const end = other.upload.end();
    other.recorder.acknowledge(128 * KIB);
    other.recorder.finished();
    expect(await end).toBe('confirmed');
    expect(other.memory.unsaved.bytes).toBe(0);
    expect(readdirSync(directory)).toEqual([]);
  });

  it('is never shown before it is in the journal or at the recorder, in any order of events', async () => {
    const step = fc.oneof(
      {
        weight: 4,
        arbitrary: fc.record({ write: fc.constantFrom(10, 1000, 40 * KIB, 64 * KIB, 300 * KIB) }),
      },
      { weight: 3, arbitrary: fc.record({ acknowledge: fc.double({ min: 0, max: 1, noNaN: true }) }) },
      { weight: 1, arbitrary: fc.constant({ expire: true as const }) },
      { weight: 1, arbitrary: fc.record({ isFull: fc.boolean() }) },
    );
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 20 }), async (steps) => {
        rmSync(directory, { recursive: true, force: true });
        directory = mkdtempSync(join(tmpdir(), 'tcdelay-'));
        const { upload, recorder, disk } = createRig();
        let written = 0;
        let acknowledged = 0;
        let shown = 0;
        const look = async (): Promise<void> => {
          const shownBefore = shown;
          const { from, to } = await left();
          expect(Math.max(acknowledged, from <= acknowledged ? to : 0)).toBeGreaterThanOrEqual(shownBefore);
        };
        for (const each of steps) {
          if ('write' in each) {
            written += each.write;
            const end = written;
            const wait = upload.write(line(each.write));
            if (wait === undefined) shown = Math.max(shown, end);
            else
              wait.then(
                () => (shown = Math.max(shown, end)),
                () => undefined,
              );
          } else if ('acknowledge' in each) {
            acknowledged += Math.floor((written - acknowledged) * each.acknowledge);
            recorder.acknowledge(acknowledged);
          } else if ('expire' in each) {
            await new Promise((resolve) => setTimeout(resolve, 105));
          } else disk.isFull = each.isFull;
          await settled();
          await look();
        }
        upload.abort();
      }),
      { numRuns: 40 },
    );
  });
});
