/** Viewers disconnect before the recorder responds, or during a view. The recorder must end their unfinished work. */
import { once } from 'node:events';
import { connect } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import type { Viewer } from '../../src/tsrecorder/serving/viewing.ts';
import { createRig, HEADER, openUpload, until, type Rig, type Upload } from '../tsrecorder/recorder-rig.ts';

const VIEWER: Viewer = { node: 'desk.tail1.ts.net', nodeId: 'nDESK', user: 'carol@example.com' };

let rig: Rig;
let running: Upload;
let id = '';
/** Number of requests to identify a viewer. */
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
afterEach(async () => {
  gate = undefined;
  running.close();
  await rig[Symbol.asyncDispose]();
});

/** Sends a request, disconnects while the recorder identifies the viewer, and waits until the recorder continues. */
async function requestAndLeave(path: string): Promise<void> {
  const before = asked;
  gate = Promise.withResolvers();
  const socket = connect(rig.recorder.address);
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  await until(async () => (asked > before ? true : undefined));
  socket.destroy();
  await once(socket, 'close');
  // When the recorder has responded on another connection, it has also noticed the end of the first one.
  const { promise, resolve } = gate;
  gate = undefined;
  await rig.get('/healthz');
  resolve();
  await promise;
  await rig.get('/api/v1/index');
}

const timers = (): number => process.getActiveResourcesInfo().filter((name) => name === 'Timeout').length;

describe('a viewer who disconnects', () => {
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
