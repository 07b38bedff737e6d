/** Copies files through gateways with production settings, in front of a recorder. */
import { randomBytes } from 'node:crypto';
import { readdir, rm, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Recording } from '../../src/wire/recorder-api/recording.ts';
import { eventually, type RoleProcess } from '../support/role-process.ts';
import { castOf, dataOf, recordings, startSite, type Site } from './site.ts';

const BYTES = randomBytes(6_000_000);

let site: Site;
let recorder: RoleProcess;

beforeAll(async () => {
  site = await startSite();
  recorder = await site.startRecorder('only');
  await writeFile(join(site.directory, 'copied'), BYTES);
});

afterAll(() => site.close());

/**
 * Copies the file, and removes its recording.
 * @returns the recording, its cast, and the stored sizes of cast and notes
 */
async function copy(): Promise<{
  readonly recording: Recording;
  readonly shown: string;
  readonly stored: number;
}> {
  const gateway = await site.startGateway([recorder]);
  const client = await site.exec(gateway, ['cat', join(site.directory, 'copied')]);
  await client.over;
  await gateway.stop();
  expect(client.status).toMatchObject({ status: 'Success' });
  const recording = await eventually('the recording is in the store', async () =>
    (await recordings(recorder)).find(({ state }) => state === 'completed'),
  );
  const shown = dataOf(await castOf(recorder, recording));
  const store = join(site.directory, 'recordings');
  const files = (await readdir(store, { recursive: true })).filter((file) => /\.(cast|notes)$/.test(file));
  const sizes = await Promise.all(files.map(async (file) => (await stat(join(store, file))).size));
  expect(sizes).toHaveLength(2);
  await Promise.all(files.map((file) => rm(join(store, file))));
  return { recording, shown, stored: sizes.reduce((sum, size) => sum + size, 0) };
}

it('are kept once but for their beginning', async () => {
  const { recording, shown, stored } = await copy();
  expect(recording.problem).toBe(undefined);
  expect(shown).toContain('[not text: ');
  expect(stored).toBeGreaterThan(BYTES.length);
  // binary output: the first 512 KiB are stored twice, and base64 needs a third more space
  expect(stored).toBeLessThan(1.65 * BYTES.length);
});
