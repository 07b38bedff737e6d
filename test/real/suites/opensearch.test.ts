/** Search with a real OpenSearch: the tests for all search engines, and tests for features of OpenSearch only. */
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { checkIndexServer } from '../../../src/compose/check-index.ts';
import type { RecorderOptions } from '../../../src/compose/recorder-options.ts';
import { parseQuery, QueryError, type Query } from '../../../src/search/query.ts';
import type { SessionNames } from '../../../src/search/search-index.ts';
import { createSearchServer } from '../../../src/tsrecorder/search/opensearch/client.ts';
import { aliasOf, indexOf } from '../../../src/tsrecorder/search/opensearch/indices.ts';
import { ServerIndexReader } from '../../../src/tsrecorder/search/opensearch/reader.ts';
import type { ServerIndex } from '../../../src/tsrecorder/search/opensearch/server-index.ts';
import { openServerWriter } from '../../../src/tsrecorder/search/opensearch/writer.ts';
import { IndexReader } from '../../../src/tsrecorder/search/sqlite/reader.ts';
import { IndexWriter } from '../../../src/tsrecorder/search/sqlite/writer.ts';
import type { Viewer } from '../../../src/tsrecorder/serving/viewing.ts';
import { parseViewRule } from '../../../src/tsrecorder/serving/viewing.ts';
import { CANARY, canaryEvents } from '../../support/canaries.ts';
import { runCommand as run } from '../../support/run-command.ts';
import {
  createRig as createRecorderRig,
  HEADER,
  openUpload,
  until,
  uploadWhole,
  type Rig as RecorderRig,
} from '../../tsrecorder/recorder-rig.ts';
import {
  doc,
  engineSuite,
  moment,
  names,
  NOW,
  putAll,
  query,
  type TestedEngine,
} from '../../tsrecorder/search/engine-suite.ts';
import { engineTextSuite } from '../../tsrecorder/search/engine-text-suite.ts';
import { askedOf, mayOf, sessionOf, withoutAbsent } from '../../tsrecorder/search/random-sessions.ts';
import { ensureOpenSearch, startOpenSearch, type OpenSearchServer } from '../rig/opensearch.ts';
import { createRig, type Rig } from '../rig/rig.ts';
import { hasMaven } from '../support/maven.ts';

const isThere = hasMaven('the search over OpenSearch is not driven');
// The build runs at module level, because the first build takes minutes and hooks have a time limit.
if (isThere) await ensureOpenSearch();

let rig: Rig;
let opensearch: OpenSearchServer;
let numbers = 0;

/** Returns a new index. */
function newIndex(more: Partial<ServerIndex> = {}): ServerIndex {
  numbers += 1;
  return { url: opensearch.url, name: `test${numbers}`, which: 'current', shards: 1, owner: 'me', ...more };
}

async function openEngine(index: ServerIndex): Promise<TestedEngine> {
  const server = createSearchServer({ url: index.url });
  const writer = await openServerWriter(server, index);
  return {
    writer,
    reader: new ServerIndexReader(server, index),
    settled: () => writer.refresh(),
    close: async () => {
      writer.close();
      await fetch(`${index.url}/${index.name}-*`, { method: 'DELETE' });
    },
  };
}

function recorderOptions(more: Partial<RecorderOptions> = {}): Partial<RecorderOptions> {
  const { url, name, shards } = newIndex();
  return { searchText: 'all', searchServer: { url, name, shards }, ...more };
}

function cast(text: string, namespace = 'prod'): string {
  const header = HEADER.replace('"Namespace":"prod"', `"Namespace":"${namespace}"`);
  return `${header}${JSON.stringify([1.5, 'o', `${text}\r\n`])}\n`;
}

interface Searched {
  readonly sessions: readonly {
    readonly recording: { readonly id: string; readonly state: string };
    readonly hits: readonly unknown[];
  }[];
  readonly index: { readonly state: string; readonly backlog: number; readonly sessions: number };
}

async function search(recorder: RecorderRig, text: string): Promise<Searched | undefined> {
  const { status, body } = await recorder.get(`/api/v1/search?q=${encodeURIComponent(text)}`);
  return status === 200 ? (JSON.parse(body) as Searched) : undefined;
}

/** Resolves when a search finds `count` sessions. */
function found(recorder: RecorderRig, text: string, count = 1): Promise<Searched> {
  return until(async () => {
    const answer = await search(recorder, text);
    return answer?.sessions.length === count ? answer : undefined;
  });
}

/** Returns all documents of an index. */
async function documents(name: string): Promise<readonly string[]> {
  await fetch(`${opensearch.url}/${name}-v5/_refresh`, { method: 'POST' });
  const answer = await fetch(`${opensearch.url}/${name}-v5/_search?size=10000&_source=false`);
  const { hits } = (await answer.json()) as { hits: { hits: { _id: string }[] } };
  return hits.hits.map(({ _id: id }) => id).toSorted();
}

describe.skipIf(!isThere)('OpenSearch', () => {
  beforeAll(async () => {
    rig = createRig();
    opensearch = await startOpenSearch(rig);
  });
  afterAll(() => rig.stop());

  describe.each([1, 3])('with %i shards', (shards) => {
    engineSuite(() => openEngine(newIndex({ shards })));
    engineTextSuite(() => openEngine(newIndex({ shards })));
  });

  it('finds, shows, counts and pages what the embedded index does, at random', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'tailcast-engines-'));
    onTestFinished(() => rm(directory, { recursive: true, force: true }));
    const files = { writer: new IndexWriter(directory), reader: new IndexReader(directory) };
    const server = await openEngine(newIndex({ shards: 2 }));
    const sessions = fc.sample(sessionOf, { numRuns: 80, seed: 7 }).map(({ moments, ...more }, at) => {
      const of = doc(`n_${at}`, withoutAbsent(more) as Partial<SessionNames>);
      return { doc: of, moments, partial: at % 5 === 0 };
    });
    files.writer.putAll(sessions);
    await putAll(server.writer, sessions);
    let hits = 0;
    for (const [text, may] of fc.sample(fc.tuple(askedOf, mayOf), { numRuns: 100, seed: 11 })) {
      let asked: Query;
      try {
        asked = parseQuery(text, NOW);
      } catch (error) {
        expect(error).toBeInstanceOf(QueryError);
        continue;
      }
      const wanted = files.reader.find(asked, may, { limit: 100 });
      expect(await server.reader.find(asked, may, { limit: 100 }), text).toEqual(wanted);
      expect(await server.reader.facets(asked, may), text).toEqual(files.reader.facets(asked, may));
      hits += wanted.sessions.length;
      const [first] = wanted.sessions;
      if (first === undefined) continue;
      expect(await server.reader.within(first.id, asked, may, 3), text).toEqual(
        files.reader.within(first.id, asked, may, 3),
      );
      const pages: string[] = [];
      let cursor: string | undefined;
      do {
        const page = await server.reader.find(asked, may, {
          limit: 20,
          ...(cursor === undefined ? {} : { cursor }),
        });
        pages.push(...page.sessions.map(({ id }) => id));
        cursor = page.next;
      } while (cursor !== undefined);
      expect(pages, text).toEqual(wanted.sessions.map(({ id }) => id));
    }
    expect(hits).toBeGreaterThan(200);
    files.reader.close();
    files.writer.close();
    await server.close();
  });

  it('takes removed words out of the files of the server', async () => {
    const index = newIndex();
    const writer = await openServerWriter(createSearchServer({ url: index.url }), index, { expungeMs: 1e9 });
    await writer.putAll([
      { doc: doc('n_1'), moments: [moment(1, 'canarywordone stays not')], partial: false },
      { doc: doc('n_2'), moments: [moment(1, 'staysword')], partial: false },
    ]);
    const holds = async (word: string): Promise<boolean> => {
      const below = await readdir(opensearch.folder, { recursive: true, withFileTypes: true });
      const contents = await Promise.all(
        below
          .filter((entry) => entry.isFile())
          // OpenSearch may delete a listed file before it is read, because OpenSearch merges segments
          .map((entry) => readFile(join(entry.parentPath, entry.name), 'latin1').catch(() => '')),
      );
      return contents.some((content) => content.includes(word));
    };
    await writer.expunge();
    expect(await holds('canarywordone')).toBe(true);
    await writer.remove('n_1');
    await until(async () => {
      await writer.expunge();
      return (await holds('canarywordone')) ? undefined : true;
    });
    expect(await holds('staysword')).toBe(true);
    writer.close();
  });

  it('leaves running sessions of another recorder alone, and finds them', async () => {
    const index = newIndex();
    const [one, two] = [await openEngine(index), await openEngine({ ...index, owner: 'other' })];
    await two.writer.append(names('n_1', { state: 'running' }), [moment(1, 'needle')], true, false);
    await two.settled();
    expect((await one.reader.find(query('needle'), 'everything', { limit: 5 })).sessions).toHaveLength(1);
    expect(await one.writer.ids('', 10)).toEqual([]);
    expect(await two.writer.ids('', 10)).toEqual([{ id: 'n_1', version: '' }]);
    await putAll(two.writer, [{ doc: doc('n_1'), moments: [moment(1, 'needle')], partial: false }]);
    expect(await one.writer.ids('', 10)).toEqual([{ id: 'n_1', version: '1' }]);
    await one.close();
    await two.close();
  });

  it('has each session once, and whole, when two recorders write the same ones at once', async () => {
    const index = newIndex({ shards: 2 });
    const [one, two] = [await openEngine(index), await openEngine({ ...index, owner: 'other' })];
    const sessions = (version: string, moments: number) =>
      Array.from({ length: 30 }, (_, at) => ({
        doc: doc(`n_${at}`, {}, version),
        moments: Array.from({ length: moments }, (_row, row) => moment(row, `needle ${version} row ${row}`)),
        partial: false,
      }));
    const counts = [9, 4, 7, 2];
    for (const [round, count] of counts.entries()) {
      const version = `v${round}`;
      const ask = async ({ writer }: TestedEngine): Promise<void> => {
        // requests the indexed version of each recording before it writes, as an indexer does
        for (let at = 0; at < 30; at += 1) await writer.version(`n_${at}`);
        await putAll(writer, sessions(version, count));
      };
      await Promise.all([ask(one), ask(two)]);
      await Promise.all([one.settled(), two.settled()]);
      const wanted = Array.from({ length: 30 }, (_, at) => [
        `n_${at}#`,
        ...Array.from({ length: count }, (_row, row) => `n_${at}#${row}`),
      ]).flat();
      expect(await documents(index.name), version).toEqual(wanted.toSorted());
      for (const { reader } of [one, two]) {
        const { sessions: found } = await reader.find(query(version), 'everything', { limit: 100 });
        expect(found.length, version).toBe(30);
      }
    }
    await one.close();
    await two.close();
  });

  it('is made once, whoever opens it, and not again in the place of one that is gone', async () => {
    const index = newIndex();
    const server = createSearchServer({ url: index.url });
    const writers = await Promise.all(
      Array.from({ length: 5 }, () => openServerWriter(createSearchServer({ url: index.url }), index)),
    );
    const name = await indexOf(server, aliasOf(index));
    expect(name).toBe(`${index.name}-v5-000001`);
    await fetch(`${index.url}/${name}`, { method: 'DELETE' });
    for (const writer of writers) {
      await expect(writer.putAll([{ doc: doc('n_1'), moments: [], partial: false }])).rejects.toMatchObject({
        status: 404,
      });
      await expect(writer.check()).rejects.toThrow('is not the index any more');
      writer.close();
    }
    expect(await indexOf(server, aliasOf(index))).toBe(undefined);
    server.close();
  });

  it('is the search of a recorder: stored and running sessions, lists, counts and rules of viewers', async () => {
    let viewer: Viewer = { node: 'desk', nodeId: 'nDESK', user: 'root@example.com' };
    const options = recorderOptions({
      identifyViewer: async () => viewer,
      viewers: ['alice@example.com=namespace:dev', 'root@example.com'].map(parseViewRule),
    });
    await using recorder = await createRecorderRig(options);
    await uploadWhole(recorder.recorder, cast('needle secretword', 'prod'));
    await uploadWhole(recorder.recorder, cast('needle open AKIAIOSFODNN7EXAMPLE', 'dev'));
    await uploadWhole(recorder.recorder, `${HEADER}${canaryEvents().replaceAll('needle', 'hay')}`);
    const upload = openUpload(recorder.recorder);
    upload.write(cast('needle running', 'dev'));
    await found(recorder, 'needle', 3);
    const running = await found(recorder, 'needle state:running');
    expect(running.sessions[0]?.hits).toMatchObject([{ at: 1.5, text: 'needle running' }]);
    expect(await recorder.list('?namespace=dev')).toHaveLength(2);
    upload.end();
    await found(recorder, 'running state:completed');
    const facets = await recorder.get('/api/v1/search/facets?q=needle');
    expect(JSON.parse(facets.body)).toMatchObject({
      counted: 3,
      ns: [
        { value: 'dev', count: 2 },
        { value: 'prod', count: 1 },
      ],
    });
    expect((await found(recorder, 'open')).sessions[0]?.hits).toMatchObject([
      { text: 'needle open [secret]' },
    ]);
    const { name } = options.searchServer!;
    const kept = await fetch(`${opensearch.url}/${name}-v5/_search?size=100`);
    const all = await kept.text();
    expect(all).toContain('[secret]');
    expect(all).not.toContain('AKIAIOSFODNN7EXAMPLE');
    expect(CANARY.exec(all)).toBeNull();
    expect((await search(recorder, 'cana*'))?.sessions).toEqual([]);
    viewer = { ...viewer, user: 'alice@example.com' };
    for (const text of ['needle', '', 'needle OR secretword', '-open', 'ns:prod OR ns:dev', 'sec*']) {
      const answer = await search(recorder, text);
      expect(JSON.stringify(answer?.sessions), text).not.toContain('"prod"');
    }
    await found(recorder, 'needle', 2);
    await found(recorder, 'secretword', 0);
    const counted = await recorder.get('/api/v1/search/facets?q=needle');
    expect(JSON.parse(counted.body)).toMatchObject({ counted: 2, ns: [{ value: 'dev', count: 2 }] });
  });

  it('is built anew beside itself while it answers, and verified', async () => {
    const options = recorderOptions();
    const { name } = options.searchServer!;
    await using recorder = await createRecorderRig(options);
    for (const word of ['alpha', 'beta', 'gamma'])
      await uploadWhole(recorder.recorder, cast(`${word} needle`));
    await found(recorder, 'needle', 3);
    const before = await documents(name);
    const of = ['--recorder', recorder.recorder.url];
    await until(async () => ((await run('index', 'verify', ...of)).code === 0 ? true : undefined));
    const rebuilt = run('index', 'rebuild', ...of);
    for (let count = 0; count < 10; count += 1) {
      const answer = await search(recorder, 'needle');
      if (answer !== undefined) expect(answer.sessions.length).toBe(3);
    }
    expect(await rebuilt).toMatchObject({ code: 0 });
    const server = createSearchServer({ url: opensearch.url });
    expect(await indexOf(server, `${name}-v5`)).toBe(`${name}-v5-000002`);
    expect(await indexOf(server, `${name}-v5.next`)).toBe(undefined);
    server.close();
    expect(await documents(name)).toEqual(before);
    const indices = await (await fetch(`${opensearch.url}/_cat/indices/${name}-*?h=index`)).text();
    expect(indices.trim()).toBe(`${name}-v5-000002`);
    await found(recorder, 'needle', 3);
    // simulates a user who deletes a document directly in OpenSearch
    const [victim] = await recorder.list();
    await fetch(
      `${opensearch.url}/${name}-v5/_doc/${encodeURIComponent(`${victim!.id}#`)}?routing=${encodeURIComponent(victim!.id)}&refresh=true`,
      { method: 'DELETE' },
    );
    const wrong = await until(async () => {
      const { code, out } = await run('index', 'verify', ...of);
      return code === 1 ? out : undefined;
    });
    expect(wrong).toContain(`${victim!.id}  is not in the index`);
    expect(wrong).toContain('1 faults');
  });

  it('may be away: recording goes on, the search says why, and what came meanwhile is found once', async () => {
    const options = recorderOptions();
    const { name } = options.searchServer!;
    await using recorder = await createRecorderRig(options);
    await uploadWhole(recorder.recorder, cast('first needle'));
    await found(recorder, 'needle');
    expect(await checkIndexServer(options.searchServer!)).toBe(true);
    await opensearch.program.stop();
    await expect(checkIndexServer(options.searchServer!)).rejects.toThrow('connection refused');
    await uploadWhole(recorder.recorder, cast('second needle'));
    await uploadWhole(recorder.recorder, cast('third needle'));
    expect(await recorder.list()).toHaveLength(3);
    const { body } = await until(async () => {
      const answer = await recorder.get('/api/v1/search?q=needle');
      return answer.status === 503 ? answer : undefined;
    });
    expect(JSON.parse(body)).toMatchObject({
      code: 'SEARCH_UNAVAILABLE',
      message: expect.stringContaining('connection refused'),
    });
    opensearch.program.start();
    await found(recorder, 'needle', 3);
    const ids = (await recorder.list()).map(({ id }) => id);
    expect(await documents(name)).toEqual(ids.flatMap((id) => [`${id}#`, `${id}#0`]).toSorted());
  });

  it('is the index of two recorders of one store, each session once', async () => {
    const options = recorderOptions();
    const { name } = options.searchServer!;
    await using first = await createRecorderRig(options);
    const running = openUpload(first.recorder);
    running.write(cast('needle running'));
    await found(first, 'needle state:running');
    await using second = await createRecorderRig(
      { ...options, spoolDirectory: `${first.directory}.second` },
      first.directory,
    );
    onTestFinished(() => rm(`${first.directory}.second`, { recursive: true, force: true }));
    await uploadWhole(second.recorder, cast('needle elsewhere'));
    await found(second, 'needle', 1);
    // without a shared bucket, a recorder does not see the sessions of other recorders, so it must not delete their
    // text
    await until(async () => ((await documents(name)).length === 4 ? true : undefined));
    running.end();
    await found(first, 'needle state:completed', 2);
    await found(second, 'needle state:completed', 2);
    expect(await documents(name)).toHaveLength(4);
  });
});
