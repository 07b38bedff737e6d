/**
 * Indexes of two recorders when parts of sessions arrive late, and when index files are lost or damaged. Search results
 * must be complete afterwards.
 */
import { copyFile, mkdir, open, readdir, rm, stat, truncate, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { isDeepStrictEqual } from 'node:util';
import { describe, expect, it } from 'vitest';
import { LAYOUT } from '../../../src/tsrecorder/search/layout.ts';
import { createRig, HEADER, openUpload, until, uploadWhole, type Rig } from '../recorder-rig.ts';

const SEARCHING = { searchText: 'all', timing: { listRefreshMs: 0 } } as const;

function cast(text: string, user = 'a@example.com'): string {
  return `${HEADER.replace('a@example.com', user)}${JSON.stringify([1.5, 'o', `$ ls ${text}\r\n`])}\n`;
}

/** Stores a recording of the given day, as another recorder would. */
async function place(rig: Rig, day: string, content: string): Promise<string> {
  await mkdir(join(rig.directory, 'nOTHER'), { recursive: true });
  const path = join(rig.directory, 'nOTHER', `${day}T00:00:00.000000000Z.cast`);
  await writeFile(path, content);
  return path;
}

interface Answered {
  readonly sessions: readonly { readonly recording: { readonly id: string }; readonly hits: unknown[] }[];
  readonly next?: string;
}

/** Resolves when the query finds `count` sessions and no recording is left to read. */
async function found(rig: Rig, query: string, count: number): Promise<Answered> {
  return until(async () => {
    const { status, body } = await rig.get(`/api/v1/search?q=${encodeURIComponent(query)}`);
    if (status !== 200) return undefined;
    const answer = JSON.parse(body) as Answered & { readonly index: { readonly state: string } };
    return answer.sessions.length === count && answer.index.state === 'ready' ? answer : undefined;
  });
}

const QUERIES = [
  '',
  'needle',
  '"ls needle"',
  'need*',
  'user:b@example.com',
  'needle NOT beta',
  'cmd:ls',
  'absent',
];

/** Removes the trust level, which differs between recorders because each recorder trusts only its own signatures. */
function withoutTrust(name: string, value: unknown): unknown {
  return name === 'trust' || name === 'trustReason' ? undefined : value;
}

/** Returns the exact responses to all queries, without the size of the index. */
async function answers(rig: Rig): Promise<readonly string[]> {
  const all: string[] = [];
  const ask = async (path: string): Promise<string> => {
    const { status, body } = await rig.get(`/api/v1/${path}`);
    expect(status, `${path}: ${body}`).toBe(200);
    const { index: _index, ...kept } = JSON.parse(body, withoutTrust) as Record<string, unknown>;
    // cursors of lists differ between processes, because each process encrypts them with its own key
    if (path.startsWith('recordings?')) kept['next'] = typeof kept['next'];
    all.push(`${path} ${JSON.stringify(kept)}`);
    return body;
  };
  for (const query of QUERIES) {
    const q = encodeURIComponent(query);
    await ask(`search/facets?q=${q}`);
    let cursor = '';
    do {
      const { sessions, next } = JSON.parse(await ask(`search?q=${q}&limit=2${cursor}`)) as Answered;
      for (const { recording } of sessions)
        await ask(`recordings/${encodeURIComponent(recording.id)}/search?q=${q}`);
      cursor = next === undefined ? '' : `&cursor=${encodeURIComponent(next)}`;
    } while (cursor !== '');
    await ask(`recordings?limit=2&text=${q}`);
  }
  return all;
}

async function archive(rig: Rig): Promise<void> {
  for (const [at, word] of ['alpha', 'beta', 'gamma'].entries()) {
    await uploadWhole(rig.recorder, cast(`needle ${word}`, at === 1 ? 'b@example.com' : 'a@example.com'));
    await place(rig, `2026-0${at + 1}-02`, cast(`old needle ${word}`));
  }
}

/** Opens the upload of the second part of a session. @param before all bytes of the first part */
function latePart(rig: Rig, before: string): ReturnType<typeof openUpload> {
  return openUpload(rig.recorder, {
    'tailcast-session': 'shared',
    'tailcast-part': '2',
    'tailcast-offset': String(before.length),
    'tailcast-preamble': String(HEADER.length),
  });
}

describe('the index of an archive', () => {
  it('gives the same responses after its files were lost', async () => {
    await using rig = await createRig(SEARCHING);
    await archive(rig);
    await found(rig, 'needle', 6);
    const wanted = await answers(rig);
    expect(wanted.join('')).toContain('old needle beta');
    await rig.recorder.close();
    await rm(join(rig.spool, 'search'), { recursive: true });
    const current = await createRig(SEARCHING, rig.directory);
    await found(current, 'needle', 6);
    expect(await answers(current)).toEqual(wanted);
    await current.recorder.close();
  });

  it('is the same at two recorders that index the same recordings at the same time', async () => {
    await using one = await createRig(SEARCHING);
    await using two = await createRig(
      { ...SEARCHING, spoolDirectory: `${one.directory}.two` },
      one.directory,
    );
    await Promise.all([
      uploadWhole(one.recorder, cast('needle alpha')),
      uploadWhole(two.recorder, cast('needle beta', 'b@example.com')),
      place(one, '2026-01-02', cast('old needle gamma')),
    ]);
    await Promise.all([found(one, 'needle', 3), found(two, 'needle', 3)]);
    // A recorder may find a cast of the other recorder before the sidecar exists. The recorder then reads the cast
    // again.
    await until(async () => (isDeepStrictEqual(await answers(two), await answers(one)) ? true : undefined));
    const [left, right] = [await found(one, 'needle', 3), await found(two, 'needle', 3)];
    const plain = (value: unknown): unknown => JSON.parse(JSON.stringify(value), withoutTrust);
    expect(plain(right.sessions)).toEqual(plain(left.sessions));
  });

  it('contains the finished recording if its sidecar was stored after the cast was indexed', async () => {
    await using one = await createRig(SEARCHING);
    await uploadWhole(one.recorder, cast('needle alpha'));
    await found(one, 'needle', 1);
    await using two = await createRig(SEARCHING);
    const files = await readdir(one.directory, { recursive: true });
    const copy = async (end: string): Promise<void> => {
      for (const file of files.filter((name) => name.endsWith(end))) {
        await mkdir(join(two.directory, dirname(file)), { recursive: true });
        await copyFile(join(one.directory, file), join(two.directory, file));
      }
    };
    await copy('.cast');
    await found(two, 'needle', 1);
    await copy('.json');
    const wanted = await answers(one);
    const current = async (): Promise<readonly string[] | undefined> => {
      const answered = await answers(two);
      return isDeepStrictEqual(answered, wanted) ? answered : undefined;
    };
    expect(await until(current)).toEqual(wanted);
  });

  it('contains one session of two uploads, even if the second is stored long after the first', async () => {
    const before = cast('first needle');
    await using one = await createRig({ ...SEARCHING, timing: { ...SEARCHING.timing, resumeGraceMs: 20 } });
    const upload = openUpload(one.recorder, { 'tailcast-session': 'shared', 'tailcast-part': '1' });
    upload.write(before);
    await upload.ack(({ ack }) => ack === before.length);
    upload.stream.on('error', () => undefined);
    upload.close();
    const { sessions } = await found(one, 'first state:interrupted', 1);
    await using two = await createRig(
      { ...SEARCHING, spoolDirectory: `${one.directory}.two` },
      one.directory,
    );
    const later = latePart(two, before);
    later.write(`${HEADER}[2,"o","second needle\\r\\n"]\n`);
    later.end();
    await later.over;
    for (const rig of [one, two]) {
      const joined = await found(rig, 'second needle', 1);
      expect(joined.sessions[0]?.recording.id).toBe(sessions[0]?.recording.id);
      expect(await found(rig, '"first needle" "second needle" state:completed', 1)).toMatchObject({
        sessions: [{ recording: joined.sessions[0]!.recording }],
      });
      expect((await found(rig, '', 1)).sessions).toHaveLength(1);
    }
  });
});

async function spoil(path: string): Promise<void> {
  // first writes the content of a remaining WAL file into the database
  const whole = new DatabaseSync(path);
  whole.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  whole.close();
  const { size } = await stat(path);
  expect(size).toBeGreaterThan(30_000);
  const file = await open(path, 'r+');
  try {
    for (let at = 8192; at < size; at += 8192) await file.write(Buffer.alloc(4096, 0x55), 0, 4096, at);
  } finally {
    await file.close();
  }
}

describe('an index with damaged or foreign files', () => {
  it('is rebuilt if a page of an old month is damaged', async () => {
    await using rig = await createRig(SEARCHING);
    await archive(rig);
    await found(rig, 'needle', 6);
    await rig.recorder.close();
    await spoil(join(rig.spool, 'search', LAYOUT, '2026-01.db'));
    const current = await createRig(SEARCHING, rig.directory);
    // the first query that reads the old month fails with a message, and `found` repeats the query
    expect((await found(current, 'needle', 6)).sessions.at(-1)?.hits).toHaveLength(1);
    await current.recorder.close();
  });

  it('is rebuilt if another program created the file', async () => {
    await using rig = await createRig(SEARCHING);
    await uploadWhole(rig.recorder, cast('needle'));
    await found(rig, 'needle', 1);
    await rig.recorder.close();
    const directory = join(rig.spool, 'search', LAYOUT);
    for (const name of await readdir(directory)) await rm(join(directory, name));
    const foreign = new DatabaseSync(join(directory, 'sessions.db'));
    foreign.exec('CREATE TABLE s(something TEXT); CREATE TABLE meta(other TEXT)');
    foreign.close();
    const current = await createRig(SEARCHING, rig.directory);
    expect((await found(current, 'needle', 1)).sessions).toHaveLength(1);
    await current.recorder.close();
  });

  it('is rebuilt if it was truncated', async () => {
    await using rig = await createRig(SEARCHING);
    await archive(rig);
    await found(rig, 'needle', 6);
    await rig.recorder.close();
    await truncate(join(rig.spool, 'search', LAYOUT, 'sessions.db'), 20_000);
    const current = await createRig(SEARCHING, rig.directory);
    expect((await found(current, 'needle', 6)).sessions[5]?.hits).toHaveLength(1);
    await current.recorder.close();
  });
});
