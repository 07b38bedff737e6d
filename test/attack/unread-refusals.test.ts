/** A client of the recorder that does not read error responses over HTTP/2. */
import { once } from 'node:events';
import { connect } from 'node:http2';
import { expect, it } from 'vitest';
import { createRig } from '../tsrecorder/recorder-rig.ts';

it('closes streams whose error response nobody reads, and then the idle connection', async () => {
  await using rig = await createRig({ timing: { idleTimeoutMs: 500 } });
  const session = connect(rig.recorder.url, { settings: { initialWindowSize: 0 } });
  session.on('error', () => {});
  await once(session, 'localSettings');
  const stream = session.request({ ':path': '/api/v1/recordings' });
  stream.on('error', () => {});
  await once(stream, 'response');
  stream.pause();
  await expect.poll(() => session.destroyed, { timeout: 20_000 }).toBe(true);
});
