import { expect, it } from 'vitest';
import { answerBundle } from '../../src/bundle/answer-bundle.ts';
import { parseManifest } from '../../src/bundle/bundle-format.ts';
import { checkBundle } from '../../src/bundle/check-bundle.ts';
import { openBundle } from '../../src/bundle/read-bundle.ts';
import { writeBundle } from '../../src/bundle/write-bundle.ts';
import { createRig, HEADER, openUpload, until } from '../tsrecorder/recorder-rig.ts';

const SESSION = '{"kind":"session","id":"s","tty":true,"stdin":true,"protocol":"spdy","path":"/x"}\n';
const END = '{"kind":"end","outcome":"completed","outputBytes":6,"outputLines":1}\n';

it('names the missing beginning of a session of which only a later upload is exported', async () => {
  await using rig = await createRig({ timing: { publishMs: 20, listRefreshMs: 0 } });
  const preamble = HEADER + SESSION;
  const offset = preamble.length + 100;
  const upload = openUpload(rig.recorder, {
    'tailcast-session': 'one',
    'tailcast-part': '2',
    'tailcast-offset': String(offset),
    'tailcast-preamble': String(preamble.length),
  });
  upload.write(`${preamble}[2,"o","later\\r\\n"]\n{"kind":"exit","code":0}\n${END}`);
  upload.end();
  await upload.over;
  const recording = await until(async () => (await rig.list()).find(({ trust }) => trust === 'verified'));
  const read = async (name: string): Promise<string> =>
    (await rig.get(`/api/v1/recordings/${recording.id}/${name}`)).body;
  async function* bytesOf(name: string): AsyncGenerator<Uint8Array> {
    yield new Uint8Array(Buffer.from(await read(name)));
  }
  const sources = {
    recording,
    cast: () => bytesOf('cast'),
    sidecar: async () => Buffer.from(await read('sidecar')),
    notes: async () => bytesOf('notes'),
    evidence: async (): Promise<unknown> => JSON.parse(await read('evidence')),
  };
  const options = { page: '<html><!--bundle--></html>', madeAt: '2026-01-02T03:04:05Z' };
  const html = (await Array.fromAsync(writeBundle(sources, options))).join('');
  const manifest = parseManifest(/data-bundle>([^<]*)</.exec(html)?.[1] ?? '');
  if (manifest === undefined) throw new Error('there is no manifest');
  const bundle = openBundle(
    manifest,
    (file, piece) => new RegExp(`data-file="${file}" data-piece="${piece}">([^<]*)<`).exec(html)?.[1],
  );
  const missing =
    `the beginning of the session is missing: ${offset} bytes of the upload are in another ` +
    'recording, or lost';
  expect(await checkBundle(bundle)).toMatchObject({ verdict: 'verified', findings: [missing] });
  const response = await answerBundle(bundle)(`/api/v1/recordings/${recording.id}`, { headers: {} });
  expect(await response.json()).toMatchObject({ state: 'interrupted', problem: missing });
});
