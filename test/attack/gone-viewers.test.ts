/** Viewers disconnect before the recorder responds, or during a view. The recorder must end their unfinished work. */
import { once } from 'node:events';
import { mkdtemp } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import type { Viewer } from '../../src/tsrecorder/serving/viewing.ts';
import { createDiskStore } from '../../src/tsrecorder/store/disk.ts';
import type { RecordingStore } from '../../src/tsrecorder/store/store.ts';
import {
  createRig,
  HEADER,
  openUpload,
  until,
  uploadWhole,
  type Rig,
  type Upload,
} from '../tsrecorder/recorder-rig.ts';

const VIEWER: Viewer = { node: 'desk.tail1.ts.net', nodeId: 'nDESK', user: 'carol@example.com' };

let rig: Rig;
let running: Upload;
let id = '';
/** Number of times that the recorder has tried to identify a viewer. */
let asked = 0;
let gate: PromiseWithResolvers<void> | undefined;

async function open(): Promise<void> {
  rig = await createRig({
    searchText: 'commands',
    identifyViewer: async () => {
      asked += 1;
      await gate?.promise;
      return VIEWER;
    },
    timing: { recheckMs: 10 },
  });
  running = openUpload(rig.recorder);
  running.write(`${HEADER}[1,"o","text"]\n`);
  await running.ack(({ ack }) => ack > HEADER.length);
  id = (await rig.list())[0]?.id ?? '';
}

/** Sends a request, disconnects while the recorder identifies the viewer, and waits until the recorder continues. */
async function requestAndLeave(path: string): Promise<void> {
  const before = asked;
  gate = Promise.withResolvers();
  const socket = connect(rig.recorder.address);
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  await until(async () => (asked > before ? true : undefined));
  socket.destroy();
  await once(socket, 'close');
  // A response on another connection shows that the recorder has also noticed the end of the first connection.
  const { promise, resolve } = gate;
  gate = undefined;
  await rig.get('/healthz');
  resolve();
  await promise;
  await rig.get('/api/v1/index');
}

const timers = (): number => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;

/** A store that returns endless casts while `isEndless` is true. */
async function openEndless(directory: string) {
  const store = await createDiskStore(directory);
  const state = { isEndless: false, started: 0, ended: 0 };
  async function* read(
    ...[key, kind, range]: Parameters<RecordingStore['read']>
  ): AsyncGenerator<Uint8Array> {
    if (kind !== 'cast' || !state.isEndless) return yield* store.read(key, kind, range);
    state.started += 1;
    try {
      for (;;) {
        yield Buffer.alloc(65_536);
        await turn();
      }
    } finally {
      state.ended += 1;
    }
  }
  return { state, store: { ...store, read } };
}

describe('a viewer who disconnects', () => {
  afterEach(async () => {
    gate = undefined;
    running.close();
    await rig[Symbol.asyncDispose]();
  });

  it('during the start of a followed cast leaves no checks of the viewer behind', async () => {
    await open();
    const before = timers();
    for (let count = 0; count < 5; count += 1)
      await requestAndLeave(`/api/v1/recordings/${encodeURIComponent(id)}/cast?follow=1`);
    await expect.poll(timers).toBeLessThan(before + 5);
  });

  it('during the start of a verification of the index does not block the next verification', async () => {
    await open();
    await expect.poll(async () => (await rig.get('/api/v1/index')).body).toContain('"ready"');
    await requestAndLeave('/api/v1/index/verify?text=none');
    await expect.poll(async () => (await rig.get('/api/v1/index/verify?text=none')).status).toBe(200);
  });

  it('during a live view leaves no pings behind', async () => {
    await open();
    const before = timers();
    for (let count = 0; count < 5; count += 1) {
      const url = rig.recorder.url.replace('http', 'ws');
      const viewer = new WebSocket(`${url}/api/v1/recordings/${encodeURIComponent(id)}/live`, 'v2.asciicast');
      await once(viewer, 'message');
      viewer.terminate();
      await once(viewer, 'close');
    }
    await expect.poll(timers).toBeLessThan(before + 5);
  });
});

describe('a viewer who disconnects during checks of evidence', () => {
  it('ends these checks, and those that wait', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'tsrecorder-'));
    const { state, store } = await openEndless(directory);
    await using checked = await createRig({ identifyViewer: async () => VIEWER, store }, directory);
    await uploadWhole(checked.recorder, `${HEADER}[1,"o","text"]\n`);
    const path = `/api/v1/recordings/${(await checked.list())[0]?.id}/evidence`;
    state.isEndless = true;
    const sockets = Array.from({ length: 3 }, () => {
      const socket = connect(checked.recorder.address);
      socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
      return socket;
    });
    // One viewer may run two checks at the same time.
    await expect.poll(() => state.started).toBe(2);
    for (const socket of sockets) socket.destroy();
    await expect.poll(() => state.ended).toBe(2);
    state.isEndless = false;
    expect((await checked.get(path)).status).toBe(200);
    expect(state.started).toBe(2);
  });
});
