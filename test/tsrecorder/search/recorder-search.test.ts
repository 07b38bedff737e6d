import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseViewRule, type Viewer } from '../../../src/tsrecorder/serving/viewing.ts';
import { printableRuns } from '../../../src/wire/printable-runs.ts';
import { createRig, HEADER, openUpload, until, uploadWhole, type Rig } from '../recorder-rig.ts';

const SEARCHING = { searchText: 'all' } as const;

interface AccessRequest {
  readonly queryParameters: Readonly<Record<string, readonly string[]>>;
  readonly pathTruncatedFrom: number;
}

interface Answered {
  readonly query: string;
  readonly sessions: readonly {
    readonly recording: { readonly id: string; readonly state: string };
    readonly hits: readonly { readonly at: number; readonly text: string }[];
  }[];
  readonly index: { readonly state: string; readonly backlog: number; readonly sessions: number };
}

function cast(text: string, user = 'a@example.com', namespace = 'prod'): string {
  const header = HEADER.replace('a@example.com', user).replace(
    '"Namespace":"prod"',
    `"Namespace":"${namespace}"`,
  );
  return `${header}${JSON.stringify([1.5, 'o', `${text}\r\n`])}\n`;
}

async function search(rig: Rig, query: string): Promise<Answered> {
  const { status, body } = await rig.get(`/api/v1/search?q=${encodeURIComponent(query)}`);
  expect(status, body).toBe(200);
  return JSON.parse(body) as Answered;
}

/** Resolves when the query finds `count` sessions. A damaged index must be rebuilt first. */
async function found(rig: Rig, query: string, count = 1): Promise<Answered> {
  return until(async () => {
    const { status } = await rig.get('/api/v1/search');
    if (status === 503) return undefined;
    const answer = await search(rig, query);
    return answer.sessions.length === count ? answer : undefined;
  });
}

async function ready(rig: Rig, sessions: number): Promise<void> {
  await until(async () => {
    const { index } = await search(rig, '');
    return index.state === 'ready' && index.sessions === sessions ? true : undefined;
  });
}

describe('a recorder with an index', () => {
  it('finds a stored session by a word on its screen, at its time', async () => {
    await using rig = await createRig(SEARCHING);
    await uploadWhole(rig.recorder, cast('pod needle deleted'));
    const { sessions, query } = await found(rig, 'needle ns:prod');
    expect(query).toBe('needle ns:prod');
    expect(sessions[0]).toMatchObject({
      recording: { state: 'completed', source: { user: 'a@example.com' } },
      hits: [{ at: 1.5, text: 'pod needle deleted', marks: [[4, 10]] }],
    });
    const id = encodeURIComponent(sessions[0]!.recording.id);
    const inside = await rig.get(`/api/v1/recordings/${id}/search?q=needle`);
    expect(JSON.parse(inside.body)).toMatchObject({ hits: [{ at: 1.5 }], more: false });
    const facets = await rig.get('/api/v1/search/facets?q=needle');
    expect(JSON.parse(facets.body)).toMatchObject({ counted: 1, ns: [{ value: 'prod', count: 1 }] });
    // access events also contain the requests for one recording's matches and for counts
    const { body } = await rig.get('/api/v1/events?text=search');
    expect(body).toContain(`"recording":${JSON.stringify(sessions[0]!.recording.id)}`);
    expect(body).toContain('/api/v1/search/facets?q=needle');
  });

  it('finds text within binary output, also if the recording has only the printable text of it', async () => {
    await using rig = await createRig(SEARCHING);
    const bytes = Buffer.from('\xff\x00\xe9kestrel flies\xc3\x7f\xfe', 'latin1');
    await uploadWhole(rig.recorder, cast(bytes.toString()));
    await uploadWhole(rig.recorder, cast(`[not text: ${bytes.length} B]\r\n${printableRuns(bytes)}`));
    const { sessions } = await found(rig, '"kestrel flies"', 2);
    expect(sessions).toHaveLength(2);
  });

  it('finds a running session by its durable bytes, and as stored after its end', async () => {
    await using rig = await createRig(SEARCHING);
    const upload = openUpload(rig.recorder);
    upload.write(cast('first needle'));
    await found(rig, 'needle state:running');
    upload.write('[2,"o","second needle\\r\\n"]\n');
    await found(rig, '"second needle" state:running');
    upload.end();
    const { sessions } = await found(rig, '"second needle" state:completed');
    expect(sessions[0]?.hits).toHaveLength(1);
    await found(rig, 'state:running', 0);
  });

  it('does not show an earlier trust level after a key is no longer trusted', async () => {
    await using rig = await createRig(SEARCHING);
    await uploadWhole(rig.recorder, cast('needle'));
    await found(rig, 'needle trust:verified', 1);
    await rig.recorder.close();
    const current = await createRig(
      { ...SEARCHING, evidenceKey: join(rig.spool, 'other.pem') },
      rig.directory,
    );
    await found(current, 'needle trust:unverified', 1);
    expect((await current.list()).map(({ trust }) => trust)).toEqual(['unverified']);
    await current.recorder.close();
  });

  it('responds to an invalid query with a message, and records searches as events', async () => {
    await using rig = await createRig(SEARCHING);
    const { status, body } = await rig.get('/api/v1/search?q=usr:alice');
    expect([status, JSON.parse(body)]).toMatchObject([
      400,
      { code: 'USAGE', message: expect.stringContaining('user:') },
    ]);
    expect((await rig.get('/api/v1/search?q=exit:0%20OR%20word')).status).toBe(400);
    expect((await rig.get('/api/v1/search?limit=1000')).status).toBe(400);
    await search(rig, 'canary');
    const events = await rig.get('/api/v1/events?text=search');
    expect(events.body).toContain('"action":"search"');
  });

  it('reports in its list that search is available', async () => {
    const flag = async (rig: Rig): Promise<unknown> =>
      (JSON.parse((await rig.get('/api/v1/recordings')).body) as { search?: unknown }).search;
    await using rig = await createRig(SEARCHING);
    await using without = await createRig();
    expect([await flag(rig), await flag(without)]).toEqual([true, undefined]);
  });

  it('sorts its list, page by page, for viewers whom the rules allow it', async () => {
    let viewer: Viewer = { node: 'desk', nodeId: 'nDESK', user: 'root@example.com' };
    await using rig = await createRig({
      ...SEARCHING,
      viewers: ['alice@example.com=user:alice@example.com', 'root@example.com'].map(parseViewRule),
      identifyViewer: async () => viewer,
    });
    for (const [user, text] of [
      ['bob@example.com', 'needle'],
      ['alice@example.com', 'needle'.repeat(30)],
      ['bob@example.com', 'needle'.repeat(20)],
      ['alice@example.com', 'needle'.repeat(10)],
    ] as const)
      await uploadWhole(rig.recorder, cast(text, user));
    await ready(rig, 4);
    // starts a session and leaves it open, because recordings of running sessions are not in the index for lists
    const upload = openUpload(rig.recorder);
    upload.write(cast('needle'.repeat(25), 'alice@example.com'));
    interface Sorted {
      readonly recordings: readonly {
        readonly id: string;
        readonly bytes: number;
        readonly source: { readonly user: string };
      }[];
      readonly next?: string;
    }
    const sorted = async (sort: string): Promise<Sorted['recordings']> => {
      const all: Sorted['recordings'][number][] = [];
      for (let cursor = ''; ;) {
        const { status, body } = await rig.get(`/api/v1/recordings?sort=${sort}&limit=2${cursor}`);
        expect(status, body).toBe(200);
        const { recordings, next } = JSON.parse(body) as Sorted;
        all.push(...recordings);
        if (next === undefined) return all;
        const other = await rig.get(`/api/v1/recordings?sort=oldest&cursor=${encodeURIComponent(next)}`);
        if (sort !== 'oldest') expect(other.status).toBe(400);
        cursor = `&cursor=${encodeURIComponent(next)}`;
      }
    };
    await until(async () => ((await sorted('newest')).length === 5 ? true : undefined));
    const newest = await sorted('newest');
    expect((await sorted('oldest')).map(({ id }) => id)).toEqual(newest.map(({ id }) => id).toReversed());
    const largest = newest.toSorted((left, right) => right.bytes - left.bytes).map(({ id }) => id);
    expect(largest).not.toEqual(newest.map(({ id }) => id));
    expect((await sorted('largest')).map(({ id }) => id)).toEqual(largest);
    expect(await sorted('longest')).toHaveLength(5);
    viewer = { ...viewer, user: 'alice@example.com' };
    const own = newest.filter(({ source }) => source.user === 'alice@example.com').map(({ id }) => id);
    expect((await sorted('largest')).map(({ id }) => id)).toEqual(largest.filter((id) => own.includes(id)));
    expect((await rig.get('/api/v1/recordings?sort=loudest')).status).toBe(400);
    upload.end();
  });

  it('records one event for repeated searches of an open page', async () => {
    await using rig = await createRig(SEARCHING);
    await uploadWhole(rig.recorder, cast('pod needle deleted'));
    const { sessions } = await found(rig, 'needle');
    const id = encodeURIComponent(sessions[0]!.recording.id);
    const events = async (path: string): Promise<number> => {
      const text = encodeURIComponent(path);
      const { body } = await rig.get(`/api/v1/events?type=tailcast-recording-access&text=${text}`);
      return (JSON.parse(body) as { events: unknown[] }).events.length;
    };
    for (const path of ['search?q=first', 'search/facets?q=first', `recordings/${id}/search?q=first`]) {
      for (let count = 0; count < 3; count += 1) await rig.get(`/api/v1/${path}&view=1`);
      expect(await events(`${path}&view=1`), path).toBe(1);
    }
    await rig.get(`/api/v1/recordings/${id}/search?q=second&view=1`);
    expect(await events(`/search?q=second&view=1`)).toBe(1);
    for (let count = 0; count < 3; count += 1) await rig.get('/api/v1/search?q=third');
    expect(await events('/search?q=third')).toBe(3);
  });

  it('records the decoded text of a search or filter after any padding', async () => {
    await using rig = await createRig(SEARCHING);
    const word = '%6eeedle';
    for (const path of [
      `search?q=${'%20'.repeat(400)}${word}`,
      `recordings?pod=${'%61'.repeat(900)}&text=${word}`,
      `events?name=${'%61'.repeat(900)}&text=${word}`,
    ]) {
      expect((await rig.get(`/api/v1/${path}`)).status).toBe(200);
      const { body } = await rig.get('/api/v1/events?type=tailcast-recording-access&limit=1');
      const [newest] = (JSON.parse(body) as { events: { event: { request: AccessRequest } }[] }).events;
      const { queryParameters, pathTruncatedFrom } = newest!.event.request;
      expect(Object.values(queryParameters).flat().at(-1)).toMatch(/^ *needle$/);
      expect(pathTruncatedFrom).toBe(`/api/v1/${path}`.length);
    }
  });

  it('lists from the index the stored and running sessions, and those of other writers', async () => {
    await using rig = await createRig(SEARCHING);
    for (const [user, namespace] of [
      ['a@example.com', 'prod'],
      ['b@example.com', 'dev'],
      ['b@example.com', 'prod'],
    ])
      await uploadWhole(rig.recorder, cast('needle', user, namespace));
    await ready(rig, 3);
    const listed = async (query: string): Promise<readonly string[]> =>
      (await rig.list(query)).map(
        ({ source, kubernetes, state }) => `${source.user} ${kubernetes?.namespace} ${state}`,
      );
    expect(await listed('?user=b@example.com')).toEqual([
      'b@example.com prod completed',
      'b@example.com dev completed',
    ]);
    expect(await listed('?text=EXAMPLE&namespace=prod')).toEqual([
      'b@example.com prod completed',
      'a@example.com prod completed',
    ]);
    const upload = openUpload(rig.recorder);
    upload.write(cast('running', 'c@example.com'));
    await until(async () => ((await listed('?state=running')).length === 1 ? true : undefined));
    expect(await listed('?namespace=prod')).toEqual([
      'c@example.com prod running',
      'b@example.com prod completed',
      'a@example.com prod completed',
    ]);
    await mkdir(join(rig.directory, 'nOTHER'));
    await writeFile(
      join(rig.directory, 'nOTHER', '2026-01-01T00:00:00.000000000Z.cast'),
      cast('elsewhere', 'd@example.com'),
    );
    await until(async () => ((await listed('?user=d@example.com')).length === 1 ? true : undefined));
    await found(rig, 'elsewhere');
    expect((await listed('')).at(-1)).toBe('d@example.com prod completed');
    upload.end();
  });

  it('lists for a viewer a session whose first upload is damaged', async () => {
    const viewing = {
      identifyViewer: async (): Promise<Viewer> => ({
        node: 'desk',
        nodeId: 'nDESK',
        user: 'alice@example.com',
      }),
      viewers: [parseViewRule('alice@example.com=namespace:prod')],
      timing: { resumeGraceMs: 20 },
    };
    await using first = await createRig(viewing);
    const { directory } = first;
    const whole = cast('one');
    const upload = openUpload(first.recorder, { 'tailcast-session': 'shared', 'tailcast-part': '1' });
    upload.write(whole);
    await upload.ack(({ ack }) => ack === whole.length);
    upload.stream.on('error', () => undefined);
    upload.close();
    await until(async () => ((await first.list('?state=interrupted')).length === 1 ? true : undefined));
    await first.recorder.close();
    const [damagedId] = (await readdir(join(directory, 'nGATE1CNTRL'))).filter((name) =>
      name.endsWith('.cast'),
    );
    await using second = await createRig({ ...viewing, spoolDirectory: `${directory}.second` }, directory);
    const later = openUpload(second.recorder, {
      'tailcast-session': 'shared',
      'tailcast-part': '2',
      'tailcast-offset': String(whole.length),
      'tailcast-preamble': String(HEADER.length),
    });
    later.write(`${HEADER}[2,"o","two needle\\r\\n"]\n`);
    later.end();
    await later.over;
    await until(async () => ((await second.list('?state=completed')).length === 1 ? true : undefined));
    await second.recorder.close();
    for (const name of [damagedId!, damagedId!.replace(/cast$/, 'json')])
      await writeFile(join(directory, 'nGATE1CNTRL', name), 'no header\n');
    await using names = await createRig(viewing, directory);
    const wanted = await names.list();
    expect(wanted).toMatchObject([{ state: 'interrupted', part: { number: 2 } }]);
    let indexed = await names.restart(SEARCHING);
    for (let start = 0; start < 2; start += 1) {
      await until(async () => {
        const { body } = await indexed.get('/api/v1/search');
        return body.includes('"ready"') ? true : undefined;
      });
      expect(await indexed.list(), `start ${start}`).toEqual(wanted);
      indexed = await indexed.restart();
    }
    await indexed.recorder.close();
  });

  it('indexes commands only, or names only, when that is set', async () => {
    await using rig = await createRig({ searchText: 'off' });
    await uploadWhole(rig.recorder, cast('needle'));
    await found(rig, 'user:a@example.com');
    expect((await search(rig, 'needle')).sessions).toEqual([]);
    const current = await rig.restart(SEARCHING);
    await found(current, 'needle');
    await current.recorder.close();
  });

  it('without an index reports that', async () => {
    await using rig = await createRig();
    expect((await rig.get('/api/v1/search?q=x')).status).toBe(503);
    const { status, body } = await rig.get('/api/v1/recordings?sort=largest');
    expect([status, JSON.parse(body)]).toEqual([
      400,
      {
        code: 'USAGE',
        message: expect.stringContaining('sort=largest needs the index, which is not ready') as string,
      },
    ]);
    expect((await rig.get('/api/v1/recordings?sort=newest')).status).toBe(200);
  });
});
