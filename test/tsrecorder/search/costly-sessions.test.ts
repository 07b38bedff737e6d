/**
 * Sessions that are costly to render. Costly sessions must not delay other sessions, and the index reports where it
 * stopped reading a session.
 */
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { createIndexHandlers } from '../../../src/tsrecorder/search/index-operations.ts';
import type { IndexClient } from '../../../src/tsrecorder/search/index-client.ts';
import { Indexer } from '../../../src/tsrecorder/search/indexer.ts';
import type { Found } from '../../../src/search/search-index.ts';
import { parseQuery } from '../../../src/search/query.ts';
import { createSearchMetrics } from '../../../src/tsrecorder/search/search-metrics.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import { COSTLY_PROGRAMS, costlyCast, withLargeScreen } from '../../support/costly-programs.ts';
import { createRig, HEADER, openUpload, until, type Rig } from '../recorder-rig.ts';

const COSTLY = 200;
/** Work units for the first, quick reading of a session of 36 KB, including the step that exceeds the limit. */
const QUICK_WORK = 8e6;

async function put(rig: Rig, casts: readonly string[], second = 0): Promise<readonly string[]> {
  const node = 'nGATEWAY';
  await mkdir(join(rig.directory, node), { recursive: true });
  return Promise.all(
    casts.map(async (cast, at) => {
      const time = `2026-01-02T03:04:${String(second).padStart(2, '0')}.${String(at).padStart(9, '0')}Z`;
      await writeFile(join(rig.directory, node, `${time}.cast`), cast);
      return `${node}_${time}`;
    }),
  );
}

/** Opens an index in this process that counts its work. */
async function openIndex(directory: string): Promise<{
  readonly client: IndexClient;
  readonly find: (text: string) => Promise<Found>;
  /** Work units until now. */
  readonly work: () => number;
  /** For each finished session: the number of work units that the index had spent until then, on all sessions. */
  readonly finished: ReadonlyMap<string, number>;
}> {
  const handlers = createIndexHandlers();
  const reading = createIndexHandlers();
  onTestFinished(async () => void (await reading.close(null)));
  const finished = new Map<string, number>();
  const names = new Map<unknown, string>();
  let work = 0;
  const client = {
    isStopped: false,
    pid: 0,
    async ask(operation: keyof typeof handlers, ask: Record<string, unknown>): Promise<unknown> {
      const act: (ask: never) => unknown = handlers[operation];
      const answer = await Reflect.apply(act, handlers, [ask]);
      if (operation === 'begin') names.set(ask['key'], (ask['doc'] as { names: { id: string } }).names.id);
      work += (answer as { work?: number } | null)?.work ?? 0;
      if (operation === 'finish') finished.set(names.get(ask['key']) ?? '', work);
      return answer;
    },
    kill: () => undefined,
    close: async () => handlers.close(null),
  } as unknown as IndexClient;
  await client.ask('open', { directory, mayWrite: true });
  return {
    client,
    async find(text) {
      await reading.open({ directory, mayWrite: false });
      return reading.find({ query: parseQuery(text, 0), may: 'everything', page: { limit: 50 } });
    },
    work: () => work,
    finished,
  };
}

async function open(): Promise<{
  readonly rig: Rig;
  readonly index: Awaited<ReturnType<typeof openIndex>>;
  readonly start: () => Promise<Indexer>;
}> {
  const rig = await createRig();
  const index = await openIndex(join(rig.spool, 'index'));
  onTestFinished(() => rig[Symbol.asyncDispose]());
  return {
    rig,
    index,
    async start() {
      const indexer = new Indexer({
        store: await createDiskStore(rig.directory, { readOnly: true }),
        catalog: rig.recorder.catalog,
        live: () => [],
        text: 'all',
        start: async () => index.client,
        now: () => performance.now(),
        liveMs: 5,
        reconcileMs: 1e9,
        restartMs: 1,
        metrics: createSearchMetrics(),
        log: createSilentLogger(),
      });
      onTestFinished(() => indexer.close());
      return indexer;
    },
  };
}

const HOSTILE = 'hostile@example.com';
const INNOCENT = 'innocent@example.com';
const by = (user: string): string => HEADER.replace('a@example.com', user);
const costly = COSTLY_PROGRAMS.map(([, events]) => costlyCast(events, withLargeScreen(by(HOSTILE))));
const hostile = Array.from({ length: COSTLY }, (_, at) => costly[at % costly.length] ?? '');
const needle = '[1,"o","needle\\r\\n"]\n';

describe('an index', () => {
  it('reads a session of another user behind the same gateway before the earlier costly sessions', async () => {
    const { rig, index, start } = await open();
    const indexer = await start();
    await indexer.settled();
    const ids = await put(rig, hostile);
    const [id = ''] = await put(rig, [by(INNOCENT) + needle], 1);
    for (const each of ids) indexer.stored(each, HOSTILE);
    indexer.stored(id, INNOCENT);
    await expect.poll(() => index.finished.has(id)).toBe(true);
    expect(index.finished.get(id)).toBeLessThan(3 * QUICK_WORK);
  });

  it('reads a session of the same user after a quick reading of the costly sessions', async () => {
    const { rig, index, start } = await open();
    const indexer = await start();
    await indexer.settled();
    const ids = await put(rig, hostile);
    const [id = ''] = await put(rig, [by(HOSTILE) + needle], 1);
    for (const each of ids) indexer.stored(each, HOSTILE);
    indexer.stored(id, HOSTILE);
    await expect.poll(() => index.finished.has(id), { timeout: 60_000 }).toBe(true);
    // the total work may exceed the budgets of the costly sessions by 10 %
    expect(index.finished.get(id)).toBeLessThan(1.1 * (COSTLY + 1) * QUICK_WORK + 1e8);
  });

  it('contains the start of a costly session, and reports where it stops', async () => {
    const { rig, index, start } = await open();
    await put(rig, costly);
    const indexer = await start();
    await indexer.settled();
    expect(indexer.pending()?.size).toBe(0);
    const { sessions } = await index.find('"the first line"');
    expect(sessions).toHaveLength(costly.length);
    expect(sessions.filter(({ stoppedAt }) => stoppedAt !== undefined).length).toBeGreaterThan(2);
    for (const { partial, stoppedAt } of sessions) expect(partial).toBe(stoppedAt !== undefined);
    // the total must be less than twice the sum of the budgets
    const bytes = costly.reduce((sum, { length }) => sum + length, 0);
    expect(index.work()).toBeLessThan(2 * (costly.length * 60e6 + 500 * bytes));
  });
});

describe('text after the time at which rendering stops', () => {
  const after = (cast: string, text: string): string =>
    `${cast.trimEnd()}\n${JSON.stringify([60, 'o', `${text}\r\n`])}\n`;

  it('is found', async () => {
    const { rig, index, start } = await open();
    await put(
      rig,
      costly.map((cast) => after(cast, 'the hidden kestrel')),
    );
    const indexer = await start();
    await indexer.settled();
    const { sessions } = await index.find('"hidden kestrel"');
    expect(sessions).toHaveLength(costly.length);
  });

  it('makes a rule match a running session', async () => {
    const { rig } = await open();
    const index = createIndexHandlers();
    onTestFinished(async () => void (await index.close(null)));
    await index.open({ directory: join(rig.spool, 'alerts'), mayWrite: true });
    const query = parseQuery('kestrel', 0);
    await index.watch([{ id: 'bird', query, may: 'everything', sinceMs: 0 }]);
    const startedAtMs = Date.parse('2026-01-02T03:04:05Z');
    const id = 'nLIVE_2026-01-02T03:04:05.000000001Z';
    const names = { id, startedAtMs, tags: [], nodes: [], kind: 'shell', state: 'live' };
    const doc = { names, version: '', text: 'all' } as const;
    await index.begin({ key: 1, doc, isLive: true, effort: 'quick' });
    const bytes = Buffer.from(after(costly[0] ?? '', 'the hidden kestrel'));
    const { matches, isStopped, isDone } = await index.commit({ key: 1, names, bytes });
    expect({ isStopped, isDone }).toEqual({ isStopped: true, isDone: false });
    expect(matches).toMatchObject([{ rule: 'bird' }]);
  });
});

describe('a recorder', () => {
  it('marks a costly session in the response of a search', async () => {
    await using rig = await createRig({ searchText: 'all' });
    await put(rig, [costly[0] ?? '']);
    await using again = await rig.restart();
    const found = await until(async () => {
      const { status, body } = await again.get('/api/v1/search?q=first');
      const { sessions = [] } = status === 200 ? (JSON.parse(body) as { sessions?: unknown[] }) : {};
      return sessions[0];
    });
    expect(found).toMatchObject({ partial: true, stoppedAt: expect.any(Number) });
  });

  it('finds a running session of another user while costly sessions run', async () => {
    await using rig = await createRig({ searchText: 'all' });
    const open = (cast: string, at: number): ReturnType<typeof openUpload> => {
      const upload = openUpload(rig.recorder, { 'tailcast-session': `s${at}` });
      upload.stream.on('error', () => undefined);
      upload.write(cast);
      return upload;
    };
    const uploads = hostile.map(open);
    await Promise.all(uploads.map(({ headers }) => headers));
    const startedMs = performance.now();
    uploads.push(open(by(INNOCENT) + needle, COSTLY));
    await until(async () => {
      const { body } = await rig.get('/api/v1/search?q=needle');
      const { sessions = [] } = JSON.parse(body) as { sessions?: unknown[] };
      return sessions.length === 1 ? true : undefined;
    });
    // Takes 2 s on an idle machine. Without fair shares, 200 sessions take minutes.
    expect(performance.now() - startedMs).toBeLessThan(15_000);
    for (const upload of uploads) upload.close();
  });
});
