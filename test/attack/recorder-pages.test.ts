/** A page of another site, in the browser of a viewer, uses the API of a recorder in the viewer's name. */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { createRig, HEADER, uploadWhole, type Rig } from '../tsrecorder/recorder-rig.ts';

let rig: Rig;
let id = '';
beforeAll(async () => {
  rig = await createRig();
  await uploadWhole(rig.recorder, HEADER);
  id = (await rig.list())[0]?.id ?? '';
});
afterAll(() => rig[Symbol.asyncDispose]());

const BROWSER = 'Mozilla/5.0 (X11; Linux x86_64) Chrome/150.0.0.0 Safari/537.36';
const FOREIGN = [
  { 'sec-fetch-site': 'cross-site' },
  { 'sec-fetch-site': 'same-site' },
  { origin: 'https://evil.example' },
  { origin: 'null' },
  // a browser sends no `Sec-Fetch-Site` to a recorder without HTTPS
  { 'user-agent': BROWSER },
  { 'user-agent': BROWSER, referer: 'http://evil.example/page' },
  { 'user-agent': BROWSER, referer: 'no address' },
  { 'user-agent': BROWSER, referer: 'http://RECORDER.evil.example/' },
];

it.each(FOREIGN)('a read with %o is refused and causes no access event', async (headers) => {
  for (const path of ['/api/v1/recordings', `/api/v1/recordings/${id}/cast`, '/api/v1/events?text=x'])
    for (const written of [path, path.replace('/api', '/%61pi'), path.replace('/v1', '/%761')])
      expect((await rig.get(written, headers)).status).toBe(403);
  const { body } = await rig.get('/api/v1/events?type=tailcast-recording-access');
  expect(body).not.toContain('"download"');
});

it.each([
  { 'sec-fetch-site': 'same-origin' },
  { 'sec-fetch-site': 'none' },
  { host: 'localhost', 'user-agent': BROWSER, referer: 'http://localhost/recordings/x' },
  { 'user-agent': 'curl/8.0' },
  { 'user-agent': 'Mozilla/5.0 (Windows NT; Windows NT 10.0; en-US) WindowsPowerShell/5.1.26100.1' },
  {},
])('a read of the own page, of the address bar or of a program with %o is served', async (headers) => {
  expect((await rig.get('/api/v1/recordings', headers)).status).toBe(200);
});

it('a link of another site opens the page', async () => {
  expect((await rig.get('/', { 'sec-fetch-site': 'cross-site' })).status).not.toBe(403);
});
