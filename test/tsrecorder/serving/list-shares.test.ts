import { request } from 'node:http';
import { expect, it } from 'vitest';
import { parseViewRule, type Viewer } from '../../../src/tsrecorder/serving/viewing.ts';
import { createRig, HEADER, readAnswer, until, uploadWhole, type Rig } from '../recorder-rig.ts';

const MALLORY: Viewer = { node: 'm.tail1.ts.net', nodeId: 'nM', user: 'mallory@example.com' };
const AUDITOR: Viewer = { node: 'a.tail1.ts.net', nodeId: 'nA', user: 'carol@example.com' };
const MALLORYS_ADDRESS = '127.0.0.2';

function get(rig: Rig, path: string, localAddress = '127.0.0.1'): ReturnType<typeof readAnswer> {
  const { port } = rig.recorder.address;
  return new Promise((resolve, reject) => {
    const target = {
      host: '127.0.0.1',
      port,
      path,
      localAddress,
      headers: { host: 'localhost' },
      agent: false,
    };
    request(target, (response) => void readAnswer(response).then(resolve, reject))
      .on('error', reject)
      .end();
  });
}

it('the lists of one viewer do not wait for all lists and thumbnails of another viewer', async () => {
  await using rig = await createRig({
    searchText: 'off',
    identifyViewer: async ({ address }) => (address === MALLORYS_ADDRESS ? MALLORY : AUDITOR),
    viewers: [parseViewRule('carol@example.com')],
  });
  await uploadWhole(rig.recorder, HEADER);
  const list = '/api/v1/recordings?sort=largest';
  await until(async () => ((await get(rig, list)).status === 200 ? true : undefined));
  const ids = Array.from({ length: 50 }, (_, at) => `n${at}_2026-01-01T00:00:00Z`).join();
  let done = 0;
  const sent = [
    ...Array.from({ length: 12 }, () => get(rig, `/api/v1/thumbnails?ids=${ids}`, MALLORYS_ADDRESS)),
    ...Array.from({ length: 100 }, () => get(rig, list, MALLORYS_ADDRESS)),
  ].map((answer) => answer.then(() => (done += 1)));
  await Promise.race(sent);
  const before = done;
  expect((await get(rig, list)).status).toBe(200);
  expect(done - before).toBeLessThan(50);
  await Promise.all(sent);
});
