/**
 * An attacker without a signing key writes objects to the store. The objects must not hide a recording or become a part
 * of one.
 */
import { mkdir, readFile, rm, stat, utimes, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { sessionMark } from '../../src/tsrecorder/library/session-part.ts';
import type { Recording } from '../../src/wire/recorder-api/recording.ts';
import {
  createRig,
  HEADER,
  openUpload,
  STORED_HEADER,
  until,
  uploadWhole,
  type Rig,
} from './recorder-rig.ts';

const MARK = 'a'.repeat(32);
const timing = { publishMs: 20, listRefreshMs: 0, markMs: 20 };

async function record(rig: Rig, user: string, text: string): Promise<Recording> {
  const known = new Set((await rig.list()).map(({ id }) => id));
  await uploadWhole(rig.recorder, `${HEADER.replace('a@example.com', user)}[1,"o","${text}\\r\\n"]\n`);
  return until(async () => (await rig.list()).find(({ id, trust }) => !known.has(id) && trust !== undefined));
}

async function writeMark(rig: Rig, id: string, mark = MARK): Promise<void> {
  await put(rig, `.sessions/${id}~${mark}`, '');
}

async function put(rig: Rig, name: string, content: string): Promise<void> {
  const path = join(rig.directory, name);
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, content);
}

/**
 * Writes an unsigned recording with the given time; its sidecar is a changed copy of another recording's sidecar.
 * @returns its id
 */
async function forge(rig: Rig, of: Recording, time: string, text: string, part: object): Promise<string> {
  const sidecar = JSON.parse(await readFile(join(rig.directory, of.key.replace(/cast$/, 'json')), 'utf8'));
  const cast = `${STORED_HEADER}[1,"o","${text}"]\n`;
  const id = `nGATE1CNTRL_${time}`;
  const key = `nGATE1CNTRL/${time}.cast`;
  const { evidence: _, signature: __, ...unsigned } = sidecar;
  const forged = {
    ...unsigned,
    recording: { ...sidecar.recording, id, key, bytes: cast.length },
    cast: { ...sidecar.cast, bytes: cast.length },
    upload: { ...sidecar.upload, bodyBytes: 1e9 },
    part: { ...sidecar.part, ...part },
  };
  await put(rig, key, cast);
  await put(rig, key.replace(/cast$/, 'json'), JSON.stringify(forged, null, 2));
  return id;
}

const castOf = async (rig: Rig, id: string): Promise<string> =>
  (await rig.get(`/api/v1/recordings/${id}/cast`)).body;
const verdictOf = async (rig: Rig, id: string): Promise<string> =>
  JSON.parse((await rig.get(`/api/v1/recordings/${id}/evidence`)).body).evidence.verdict;

it.each([undefined, 'all'] as const)(
  'lists two verified recordings although two empty objects name them as one session (search: %s)',
  async (searchText) => {
    await using rig = await createRig({ timing, ...(searchText === undefined ? {} : { searchText }) });
    const alice = await record(rig, 'alice@example.com', 'ls');
    const mallory = await record(rig, 'mallory@example.com', 'rm -rf /');
    await writeMark(rig, alice.id);
    await writeMark(rig, mallory.id);
    expect((await rig.list()).map(({ id, trust }) => [id, trust])).toEqual([
      [mallory.id, 'verified'],
      [alice.id, 'verified'],
    ]);
    expect(await castOf(rig, alice.id)).not.toContain('rm -rf');
    expect(await castOf(rig, mallory.id)).toContain('rm -rf');
    expect(JSON.parse((await rig.get(`/api/v1/recordings/${mallory.id}`)).body)).toMatchObject({
      id: mallory.id,
      source: { user: 'mallory@example.com' },
    });
    expect(await verdictOf(rig, mallory.id)).toBe('verified');
  },
);

it('serves the bytes of a verified recording although an unsigned part claims to come before it', async () => {
  await using rig = await createRig({ timing });
  const alice = await record(rig, 'alice@example.com', 'ls');
  const genuine = await castOf(rig, alice.id);
  const later = await forge(rig, alice, '2099-01-01T00:00:00.000000001Z', 'forged', { number: 1 });
  const { part } = JSON.parse(
    await readFile(join(rig.directory, alice.key.replace(/cast$/, 'json')), 'utf8'),
  );
  const mark = sessionMark('nGATE1CNTRL', part.session);
  await writeMark(rig, alice.id, mark);
  await writeMark(rig, later, mark);
  expect((await rig.list()).map(({ id, trust }) => [id, trust])).toEqual([
    [later, 'unverified'],
    [alice.id, 'verified'],
  ]);
  expect(await castOf(rig, alice.id)).toBe(genuine);
  expect(await verdictOf(rig, alice.id)).toBe('verified');
  expect(await verdictOf(rig, later)).not.toBe('verified');
});

it('lists a running session although a stored unsigned recording has its mark', async () => {
  await using rig = await createRig({ timing });
  const other = await record(rig, 'alice@example.com', 'other');
  const time = '2020-01-01T00:00:00.000000001Z';
  const forged = await forge(rig, other, time, 'nothing', { session: 'one', number: 1, offset: 0 });
  await writeMark(rig, forged, sessionMark('nGATE1CNTRL', 'one'));
  const upload = openUpload(rig.recorder, { 'tailcast-session': 'one' });
  upload.stream.on('error', () => undefined);
  const body = `${HEADER}[1,"o","rm -rf /\\r\\n"]\n`;
  upload.write(body);
  await upload.headers;
  await upload.ack(({ ack }) => ack === body.length);
  const listed = await rig.list();
  expect(listed.map(({ state, trust }) => [state, trust])).toEqual([
    ['running', undefined],
    ['completed', 'verified'],
    ['completed', 'unverified'],
  ]);
  expect(await castOf(rig, listed[0]?.id ?? '')).toContain('rm -rf');
  expect(await castOf(rig, forged)).not.toContain('rm -rf');
});

it('notices that a recording was replaced, also by one with the same length and time', async () => {
  await using rig = await createRig({ timing });
  const alice = await record(rig, 'alice@example.com', 'ls');
  const path = join(rig.directory, alice.key);
  const sidecar = path.replace(/cast$/, 'json');
  const { atime, mtime } = await stat(path);
  const forged = (await readFile(path, 'utf8')).replace('"ls', '"rm');
  await writeFile(
    sidecar,
    (await readFile(sidecar, 'utf8')).replace('alice@example.com', 'carol@example.com'),
  );
  await rm(path);
  await writeFile(path, forged);
  await utimes(path, atime, mtime);
  expect((await stat(path)).mtimeMs).toBe(mtime.getTime());
  expect(await rig.list()).toMatchObject([
    { id: alice.id, trust: 'failed', trustReason: 'its description was changed after it was signed' },
  ]);
});

it('reports unreadable files as unsigned', async () => {
  await using rig = await createRig({ timing });
  const node = 'nGATE1CNTRL';
  await put(rig, `${node}/2026-01-01T00:00:00.1Z.cast`, 'nothing');
  await put(
    rig,
    `${node}/2026-01-01T00:00:00.2Z.cast`,
    '{"version":1,"width":80,"height":24,"duration":1,"stdout":[[1,"a"]]}',
  );
  const listed = await rig.list();
  expect(listed.map(({ trust }) => trust)).toEqual(['unverified', 'unverified']);
});
