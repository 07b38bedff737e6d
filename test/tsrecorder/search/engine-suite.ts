/** Tests that every search engine must pass. */
import { expect, it } from 'vitest';
import { parseQuery } from '../../../src/search/query.ts';
import type {
  Facets,
  Found,
  ListAsk,
  ListedSessions,
  Moment,
  SessionDoc,
  SessionNames,
} from '../../../src/search/search-index.ts';
import type { ViewerTerms } from '../../../src/search/viewer-terms.ts';
import type { ReadingEngine, CompleteSession, WritingEngine } from '../../../src/tsrecorder/search/engine.ts';

/** An engine under test with its own index. */
export interface TestedEngine {
  readonly writer: WritingEngine;
  readonly reader: ReadingEngine;
  /** Resolves when searches can find all written sessions. */
  settled(): Promise<void> | void;
  close(): Promise<void> | void;
}

export const NOW = Date.parse('2026-03-01T00:00:00Z');

export function names(id: string, more: Partial<SessionNames> = {}): SessionNames {
  return {
    id,
    startedAtMs: Date.parse('2026-02-01T00:00:00Z') + Number(/\d+/.exec(id)?.[0] ?? 0) * 60_000,
    tags: [],
    nodes: ['laptop', 'nLAPTOP'],
    kind: 'exec',
    state: 'completed',
    ...more,
  };
}

export function doc(id: string, more: Partial<SessionNames> = {}, version = '1'): SessionDoc {
  return { names: names(id, more), version, text: 'all' };
}

export function moment(at: number, ...texts: string[]): Moment {
  return { t0: at, t1: at, rows: texts.map((text) => ({ at, text })) };
}

export const query = (text: string) => parseQuery(text, NOW);
const idsOf = ({ sessions }: Found): readonly string[] => sessions.map(({ id }) => id);

/** @returns number of sessions that were written; unchanged sessions do not count */
export async function putAll(writer: WritingEngine, sessions: readonly CompleteSession[]): Promise<number> {
  for (const session of sessions) await writer.add(session);
  return writer.flush();
}

/** Access of the tests to an engine. */
class TestedIndex {
  readonly engine: TestedEngine;

  constructor(engine: TestedEngine) {
    this.engine = engine;
  }

  async put(doc: SessionDoc, moments: readonly Moment[], partial: boolean): Promise<'put' | 'same'> {
    return (await putAll(this.engine.writer, [{ doc, moments, partial }])) === 0 ? 'same' : 'put';
  }

  async append(of: SessionNames, moments: readonly Moment[], fresh: boolean, partial = false): Promise<void> {
    await this.engine.writer.append(of, moments, fresh, partial);
    await this.engine.settled();
  }

  async remove(id: string): Promise<void> {
    await this.engine.writer.remove(id);
    await this.engine.settled();
  }

  async ids(): Promise<readonly string[]> {
    return (await this.engine.writer.ids('', 100)).map(({ id }) => id);
  }

  async find(text: string, may: ViewerTerms = 'everything', limit = 50, cursor?: string): Promise<Found> {
    return this.engine.reader.find(query(text), may, cursor === undefined ? { limit } : { limit, cursor });
  }

  async facets(text: string, may: ViewerTerms = 'everything'): Promise<Facets> {
    return this.engine.reader.facets(query(text), may);
  }

  async list(ask: Partial<ListAsk> & { readonly words?: string }): Promise<ListedSessions> {
    const { words = '', ...given } = ask;
    return this.engine.reader.list({ query: query(words), may: 'everything', limit: 50, ...given });
  }
}

type IndexTest = readonly [what: string, act: (index: TestedIndex) => Promise<void>];

/** Registers the suite. */
export function engineSuite(makeEngine: () => Promise<TestedEngine>): void {
  async function expectOfEngine(act: (index: TestedIndex) => Promise<void>): Promise<void> {
    const engine = await makeEngine();
    try {
      await act(new TestedIndex(engine));
    } finally {
      await engine.close();
    }
  }
  it.each(indexTests())('%s', (_what, act) => expectOfEngine(act));
}

function indexTests(): readonly IndexTest[] {
  const tests: IndexTest[] = [];
  const test = (...added: IndexTest): void => void tests.push(added);

  async function fill(index: TestedIndex): Promise<void> {
    const prod = { user: 'alice@example.com', namespace: 'prod', pod: 'web-1', container: 'app', tags: [] };
    await index.put(
      doc('n_1', { ...prod, trust: 'unverified' }),
      [
        moment(1, '$ ls', 'total 12'),
        moment(9, 'error: store_failed'),
        { ...moment(20, 'deleted'), command: { text: 'kubectl delete pod web-2', isGuessed: false } },
      ],
      false,
    );
    await index.put(
      doc('n_2', {
        user: 'bob@example.com',
        namespace: 'dev',
        pod: 'db-0',
        result: '1',
        durationSeconds: 7200,
        command: 'bash',
      }),
      [moment(3, 'store_failed again', '日本語 text')],
      true,
    );
    await index.put(
      doc('n_3', {
        tags: ['tag:ci'],
        namespace: 'prod',
        pod: 'web-2',
        kind: 'attach',
        state: 'interrupted',
        result: '0',
        durationSeconds: 5,
      }),
      [],
      false,
    );
  }

  test('has nothing before anything was written', async (index) => {
    const { reader, writer } = index.engine;
    expect([await index.ids(), await reader.versions('', 5), await writer.version('n_1')]).toEqual([
      [],
      [],
      undefined,
    ]);
    for (const text of ['', 'word', 'user:alice'])
      expect(await index.find(text), text).toEqual({ sessions: [] });
    expect(await index.facets('word')).toMatchObject({ counted: 0, more: false, user: [] });
    expect(await index.list({ text: 'word' })).toEqual({ sessions: [], more: false });
    expect(await reader.within('n_1', query('word'), 'everything', 5)).toEqual({ hits: [], more: false });
    expect(await writer.status()).toMatchObject({ sessions: 0, partial: 0 });
    await index.remove('n_1');
    await writer.check();
  });

  test('finds words on the screen, newest session first, at their second', async (index) => {
    await fill(index);
    const found = await index.find('store_failed');
    expect(idsOf(found)).toEqual(['n_2', 'n_1']);
    expect(found.sessions[1]?.hits).toEqual([
      { at: 9, text: 'error: store_failed', marks: [[7, 19]], isCommand: false },
    ]);
    expect(found.sessions.map(({ partial }) => partial)).toEqual([true, false]);
  });

  test('shows a command where it was given, and marks the words in it that it was found by', async (index) => {
    await fill(index);
    const command = { at: 20, text: 'kubectl delete pod web-2', isCommand: true };
    for (const [text, marks] of [
      ['kubectl', [[0, 7]]],
      ['cmd:"delete pod"', [[8, 18]]],
    ] as const)
      expect((await index.find(text)).sessions[0]?.hits, text).toEqual([{ ...command, marks }]);
    const screen = { at: 20, text: 'deleted', marks: [[0, 7]], isCommand: false };
    expect((await index.find('text:deleted')).sessions[0]?.hits).toEqual([screen]);
  });

  test('reads every part of the language', async (index) => {
    await fill(index);
    const cases: [string, readonly string[]][] = [
      ['', ['n_3', 'n_2', 'n_1']],
      ['user:alice@example.com', ['n_1']],
      ['alice', ['n_1']],
      ['alice store_failed', ['n_1']],
      ['ns:prod', ['n_3', 'n_1']],
      ['ns:prod -user:alice@example.com', ['n_3']],
      ['ns:prod OR ns:dev', ['n_3', 'n_2', 'n_1']],
      ['pod:web-*', ['n_3', 'n_1']],
      ['-pod:web-*', ['n_2']],
      ['tag:tag:ci', ['n_3']],
      ['tag:tag:*', ['n_3']],
      ['node:laptop', ['n_3', 'n_2', 'n_1']],
      ['kind:attach', ['n_3']],
      ['state:interrupted', ['n_3']],
      ['exit:!=0', ['n_2']],
      ['result:0', ['n_3']],
      ['store_failed trust:unverified', ['n_1']],
      ['-exit:0', ['n_2', 'n_1']],
      ['duration:>1h', ['n_2']],
      ['cmd:"kubectl delete"', ['n_1']],
      ['cmd:store_failed', []],
      ['text:kubectl', []],
      ['kubectl', ['n_1']],
      ['store*', ['n_2', 'n_1']],
      ['"store_failed again"', ['n_2']],
      ['"again store_failed"', []],
      ['store_failed NOT again', ['n_1']],
      ['NOT store_failed', ['n_3', 'n_1']],
      ['日本', ['n_2']],
      ['本語', ['n_2']],
      ['語', ['n_2']],
      ['store_failed after:2026-02-01T00:02:00Z', ['n_2']],
      ['store_failed before:2026-02-01T00:02:00Z', ['n_1']],
      ['store_failed after:2026-02-03T00:00:00Z OR duration:>1h', ['n_2']],
      ['store_failed before:2026-01-01T00:00:00Z OR pod:web-*', ['n_1']],
      ['before:2026-01-01', []],
      ['id:n_2', ['n_2']],
      ['id:n_*', ['n_3', 'n_2', 'n_1']],
      ['STORE_FAILED', ['n_2', 'n_1']],
      ['absent', []],
    ];
    for (const [text, ids] of cases) expect(idsOf(await index.find(text)), text).toEqual(ids);
  });

  test('keeps words of commands apart from those on the screen', async (index) => {
    const typed = (text: string): Pick<Moment, 'command'> => ({ command: { text, isGuessed: false } });
    await index.put(
      doc('n_1'),
      [
        { ...moment(1, 'pod web-2 deleted'), ...typed('kubectl delete pod web-2') },
        { ...moment(2), ...typed('cat 日本語 Ｆile') },
      ],
      false,
    );
    await index.put(doc('n_2'), [moment(1, 'kubectl delete pod web-2')], false);
    await index.put(doc('n_3'), [{ ...moment(1, 'delete'), ...typed('kubectl get pods') }], false);
    const cases: [string, readonly string[]][] = [
      ['kubectl', ['n_3', 'n_2', 'n_1']],
      ['cmd:kubectl', ['n_3', 'n_1']],
      ['text:kubectl', ['n_2']],
      ['kube*', ['n_3', 'n_2', 'n_1']],
      ['cmd:kube*', ['n_3', 'n_1']],
      ['text:kube*', ['n_2']],
      ['"kubectl delete"', ['n_2', 'n_1']],
      ['cmd:"kubectl delete"', ['n_1']],
      ['cmd:"kubectl del"*', ['n_1']],
      ['text:"kubectl delete"', ['n_2']],
      ['cmd:"delete kubectl"', []],
      ['cmd:kubectl text:delete', ['n_3']],
      ['cmd:kubectl -cmd:delete', ['n_3']],
      ['cmd:kubectl -text:delete', ['n_1']],
      ['-cmd:kubectl', ['n_2', 'n_1']],
      ['NOT kubectl', ['n_1']],
      ['cmd:delete OR text:delete', ['n_3', 'n_2', 'n_1']],
      // a phrase does not match if some of its words are in the command and the others in the rows
      ['"web 2 pod"', []],
      ['"2 pod"', []],
      ['cmd:日本', ['n_1']],
      ['cmd:語', ['n_1']],
      ['cmd:"cat 日本語 file"', ['n_1']],
      ['text:日本', []],
      ['§kubectl', ['n_3', 'n_2', 'n_1']],
      ['text:§kubectl', ['n_2']],
    ];
    for (const [text, ids] of cases) expect(idsOf(await index.find(text)), text).toEqual(ids);
    const [hit] = (await index.find('cmd:"delete pod"')).sessions[0]?.hits ?? [];
    expect(hit).toEqual({ at: 1, text: 'kubectl delete pod web-2', marks: [[8, 18]], isCommand: true });
  });

  test('takes what means something to engines as text', async (index) => {
    await fill(index);
    for (const text of [
      'NEAR(',
      'a AND b',
      '{f}',
      '^store',
      '"a"" b',
      'x\0y',
      'é\u0301',
      "';DROP",
      'a+b',
      '10.0.0.1',
      '*x',
      'f:x',
      '\ud83d',
      'every',
      '"{f} every"',
    ]) {
      try {
        expect(idsOf(await index.find(text)), text).toEqual([]);
      } catch (error) {
        expect(error).toHaveProperty('name', 'QueryError');
      }
    }
  });

  test('pages without gaps or repeats while sessions come', async (index) => {
    for (let number = 10; number < 35; number += 1)
      await index.put(doc(`n_${number}`), [moment(1, 'needle')], false);
    for (const text of ['needle', 'node:laptop', '']) {
      const seen: string[] = [];
      let cursor: string | undefined;
      do {
        const page: Found = await index.find(text, 'everything', 7, cursor);
        seen.push(...idsOf(page));
        cursor = page.next;
        await index.put(doc(`n_${1000 + seen.length}`), [moment(1, 'needle')], false);
      } while (cursor !== undefined);
      expect(new Set(seen).size).toBe(seen.length);
      expect(seen.filter((id) => id.length < 6)).toHaveLength(25);
    }
  });

  test('shows three hits of a session and says that there are more', async (index) => {
    await index.put(
      doc('n_1'),
      Array.from({ length: 100 }, (_, at) => moment(at, `needle number ${at}`)),
      false,
    );
    const [session] = (await index.find('needle')).sessions;
    expect(session?.hits.map(({ at }) => at)).toEqual([0, 1, 2]);
    expect(session?.more).toBe(true);
  });

  test('finds the sessions around one with many hits, each once, with their first hits', async (index) => {
    const counts = [1, 63, 64, 65, 200, 2];
    for (const [number, count] of counts.entries())
      await index.put(
        doc(`n_${number}`),
        Array.from({ length: count }, (_, at) => moment(at, `needle number ${at}`)),
        false,
      );
    const { sessions } = await index.find('needle');
    expect(sessions.map(({ id, hits, more }) => [id, hits.map(({ at }) => at), more])).toEqual(
      counts.map((count, number) => [`n_${number}`, [0, 1, 2].slice(0, count), count > 3]).toReversed(),
    );
    const after = await index.find('needle after:2026-02-01T00:02:00Z before:2026-02-01T00:04:00Z');
    expect(idsOf(after)).toEqual(['n_3', 'n_2']);
  });

  test('finds what was added once it is written, and writes it once', async (index) => {
    const { writer } = index.engine;
    await index.put(doc('n_1'), [moment(1, 'needle old')], false);
    await writer.add({ doc: doc('n_1', {}, '2'), moments: [moment(1, 'needle new')], partial: false });
    await writer.add({ doc: doc('n_2'), moments: [moment(1, 'needle')], partial: false });
    expect(idsOf(await index.find('needle'))).toEqual(['n_1']);
    expect(await writer.flush()).toBe(2);
    expect(idsOf(await index.find('needle'))).toEqual(['n_2', 'n_1']);
    expect(idsOf(await index.find('old'))).toEqual([]);
    expect(await writer.flush()).toBe(0);
  });

  test('keeps one version of a session', async (index) => {
    expect(await index.put(doc('n_1'), [moment(1, 'first')], false)).toBe('put');
    expect(await index.put(doc('n_1'), [moment(1, 'other')], false)).toBe('same');
    expect(await index.put(doc('n_1', {}, '2'), [moment(1, 'second')], false)).toBe('put');
    expect(idsOf(await index.find('first'))).toEqual([]);
    expect(idsOf(await index.find('second'))).toEqual(['n_1']);
    expect(idsOf(await index.find(''))).toEqual(['n_1']);
  });

  test('finds what a running session has added, and then its stored version only', async (index) => {
    const running = names('n_1', { state: 'running' });
    await index.append(running, [], true);
    expect(idsOf(await index.find('state:running'))).toEqual(['n_1']);
    await index.append(running, [moment(1, 'alpha')], false);
    await index.append(running, [moment(2, 'beta')], false);
    expect(idsOf(await index.find('beta'))).toEqual(['n_1']);
    expect(idsOf(await index.find('alpha state:running'))).toEqual(['n_1']);
    await index.put(doc('n_1'), [moment(1, 'alpha gamma')], false);
    expect(idsOf(await index.find('beta'))).toEqual([]);
    expect(idsOf(await index.find('gamma state:completed'))).toEqual(['n_1']);
  });

  test('forgets what is removed', async (index) => {
    await fill(index);
    await index.remove('n_2');
    await index.remove('n_absent');
    expect(idsOf(await index.find('store_failed'))).toEqual(['n_1']);
    expect(idsOf(await index.find(''))).toEqual(['n_3', 'n_1']);
    expect(await index.ids()).toEqual(['n_1', 'n_3']);
  });

  test('shows, counts and finds only what the viewer may see', async (index) => {
    await fill(index);
    const mays: [ViewerTerms, readonly string[]][] = [
      [[], []],
      [[{ kind: 'user', value: 'alice@example.com' }], ['n_1']],
      [[{ kind: 'namespace', value: 'prod' }], ['n_3', 'n_1']],
      [
        [
          { kind: 'tag', value: 'tag:ci' },
          { kind: 'user', value: 'bob@example.com' },
        ],
        ['n_3', 'n_2'],
      ],
    ];
    const queries = [
      '',
      'store_failed',
      'NOT nothing',
      'user:bob@example.com OR user:alice@example.com',
      'store_failed OR web',
      'exit:!=0',
      'ns:prod',
      'store*',
      'pod:*',
      'every',
    ];
    for (const [may, ids] of mays) {
      for (const text of queries) {
        const all = idsOf(await index.find(text));
        expect(idsOf(await index.find(text, may)), text).toEqual(all.filter((id) => ids.includes(id)));
      }
      const { counted, user } = await index.facets('', may);
      expect(counted).toBe(ids.length);
      if (!ids.includes('n_2')) expect(JSON.stringify(user)).not.toContain('bob');
    }
    // the cursor of another viewer does not reveal hidden sessions
    const { next } = await index.find('', 'everything', 1);
    expect(idsOf(await index.find('', [{ kind: 'user', value: 'alice@example.com' }], 5, next))).toEqual([
      'n_1',
    ]);
  });

  test('counts what the sessions found have in common', async (index) => {
    await fill(index);
    expect(await index.facets('ns:prod')).toMatchObject({
      counted: 2,
      more: false,
      ns: [{ value: 'prod', count: 2 }],
      user: [{ value: 'alice@example.com', count: 1 }],
      pod: [
        { value: 'web-1', count: 1 },
        { value: 'web-2', count: 1 },
      ],
      node: [
        { value: 'laptop', count: 2 },
        { value: 'nLAPTOP', count: 2 },
      ],
      tag: [{ value: 'tag:ci', count: 1 }],
      result: [{ value: '0', count: 1 }],
    });
  });

  test('shows no more of a long line than what is around the first word', async (index) => {
    const line = `${'a'.repeat(400)} needle ${'b'.repeat(400)}`;
    await index.put(doc('n_1'), [moment(1, line)], false);
    const [hit] = (await index.find('needle')).sessions[0]?.hits ?? [];
    expect(hit?.text).toBe(line.slice(341, 641));
    expect(hit?.marks.map(([from, to]) => hit.text.slice(from, to))).toEqual(['needle']);
  });

  test('names the ten values that most have, in one order', async (index) => {
    for (let n = 1; n <= 12; n += 1) {
      const pod = `p-${String(n).padStart(2, '0')}`;
      const namespace = n > 8 ? 'many' : `ns-${n}`;
      await index.put(doc(`n_${n}`, { namespace, pod, cluster: pod }), [], false);
    }
    const { pod, ns, cluster } = await index.facets('');
    const names = Array.from({ length: 10 }, (_, at) => `p-${String(at + 1).padStart(2, '0')}`);
    expect(pod.map(({ value }) => value)).toEqual(names);
    expect([cluster, ns[0]]).toEqual([pod, { value: 'many', count: 4 }]);
  });

  test('counts where a word was on the screen, and nothing else', async (index) => {
    await fill(index);
    expect(await index.facets('store_failed user:bob@example.com')).toMatchObject({
      counted: 1,
      ns: [{ value: 'dev', count: 1 }],
      user: [{ value: 'bob@example.com', count: 1 }],
    });
    expect(await index.facets('"no such words"')).toMatchObject({ counted: 0, ns: [] });
  });

  test('names the ten that most have in common, equals by name', async (index) => {
    for (const [number, namespace] of 'l k j i h g f e d c b a k b'.split(' ').entries())
      await index.put(doc(`n_${number}`, { namespace }), [], false);
    const { ns, counted } = await index.facets('');
    expect(counted).toBe(14);
    expect(ns.map(({ value, count }) => `${value}${count}`).join(' ')).toBe('b2 k2 a1 c1 d1 e1 f1 g1 h1 i1');
  });

  test('keeps sessions of one millisecond and of many months apart', async (index) => {
    for (let number = 0; number < 40; number += 1)
      await index.put(doc(`s_${number}`, { startedAtMs: NOW }), [moment(1, 'same')], false);
    for (const month of ['2025-12', '2026-01', '2024-02'])
      await index.put(
        doc(`m_${month}`, { startedAtMs: Date.parse(`${month}-28T23:59:59.999Z`) }),
        [moment(1, 'same')],
        false,
      );
    const found = idsOf(await index.find('same', 'everything', 100));
    expect(found).toHaveLength(43);
    expect(found.slice(-3)).toEqual(['m_2026-01', 'm_2025-12', 'm_2024-02']);
  });

  const ALICE: ViewerTerms = [{ kind: 'user', value: 'alice@example.com' }];

  test('shows where in one session, in the order of time, and to nobody who may not see it', async (index) => {
    await fill(index);
    await index.put(
      doc('n_4', { user: 'alice@example.com', namespace: 'prod', result: '77' }),
      Array.from({ length: 30 }, (_, at) => moment(at, at % 2 === 0 ? `needle ${at}` : 'hay')),
      false,
    );
    const { reader } = index.engine;
    const found = await reader.within('n_4', query('needle'), 'everything', 5);
    expect(found.hits.map(({ at }) => at)).toEqual([0, 2, 4, 6, 8]);
    expect(found.more).toBe(true);
    expect((await reader.within('n_4', query('needle'), ALICE, 100)).hits).toHaveLength(15);
    // a query with only a condition on the session, such as its exit code, has no positions in the recording
    expect(await reader.within('n_4', query('exit:77'), 'everything', 5)).toEqual({ hits: [], more: false });
    for (const [id, text, may] of [
      ['n_4', 'needle', []],
      ['n_4', 'needle', [{ kind: 'user', value: 'bob@example.com' }]],
      ['n_2', 'store_failed', ALICE],
      ['n_4', 'needle user:bob@example.com', 'everything'],
      ['n_4', 'needle duration:>1h', 'everything'],
      ['n_absent', 'needle', 'everything'],
      ['n_4', '', 'everything'],
    ] as const)
      expect(await reader.within(id, query(text), may, 100), text).toEqual({ hits: [], more: false });
  });

  test('finds words in a row, the last of which goes on', async (index) => {
    await fill(index);
    for (const [text, ids] of [
      ['"kubectl del"*', ['n_1']],
      ['cmd:"delete pod"*', ['n_1']],
      ['"kubectl pod"*', []],
      ['"error store_f"*', ['n_1']],
      ['"store_failed aga"*', ['n_2']],
      ['"日本語"', ['n_2']],
      ['"本日"', []],
    ] as const)
      expect(idsOf(await index.find(text)), text).toEqual(ids);
  });

  test('takes names as they are, whatever they hold', async (index) => {
    const strange = [
      'n#1',
      'n_1 OR 1=1',
      'n_*',
      'n?',
      'a/../b',
      'n\\"1',
      '_all',
      'n%2F1',
      'é\u0301#0',
      'n#1#0',
    ];
    for (const [at, id] of strange.entries()) {
      const user = `user ${id}`;
      await index.put(
        { ...doc(id, { user }), names: { ...names('n_0'), id, user, startedAtMs: NOW + at } },
        [moment(1, `word${at} shared`)],
        false,
      );
    }
    expect(idsOf(await index.find('shared'))).toEqual(strange.toReversed());
    expect(await index.ids()).toHaveLength(strange.length);
    for (const [at, id] of strange.entries()) {
      expect(idsOf(await index.find(`word${at}`)), id).toEqual([id]);
      const may: ViewerTerms = [{ kind: 'user', value: `user ${id}` }];
      expect(idsOf(await index.find('shared', may)), id).toEqual([id]);
      expect((await index.facets('', may)).counted, id).toBe(1);
      const { hits } = await index.engine.reader.within(id, query('shared'), may, 5);
      expect(hits, id).toHaveLength(1);
    }
    await index.remove('n#1');
    await index.remove('n_*');
    expect(idsOf(await index.find('shared'))).toEqual(
      strange.toReversed().filter((id) => id !== 'n#1' && id !== 'n_*'),
    );
  });

  test('gives back what was on the screen as it was, half characters too', async (index) => {
    const row = 'a\ud83d "quoted" \\ \u0001 <em>needle</em>';
    await index.put(doc('n_1'), [moment(1.25, row)], false);
    const [hit] = (await index.find('needle')).sessions[0]?.hits ?? [];
    expect(hit).toMatchObject({ at: 1.25, text: row.toWellFormed() });
  });

  test('has fewer moments where the next version has, and says which version it has', async (index) => {
    const texts = (count: number, word: string): readonly Moment[] =>
      Array.from({ length: count }, (_, at) => moment(at, `${word} row ${at}`));
    const { reader, writer } = index.engine;
    await index.put(doc('n_1', {}, '1'), texts(9, 'old'), false);
    await index.put(doc('n_1', {}, '2'), texts(4, 'new'), true);
    expect(idsOf(await index.find('old'))).toEqual([]);
    expect((await reader.within('n_1', query('row'), 'everything', 100)).hits).toHaveLength(4);
    expect([await writer.version('n_1'), await writer.version('n_2')]).toEqual(['2', undefined]);
    expect(await reader.version('n_1')).toBe('2');
    expect(await reader.versions('', 10)).toEqual([{ id: 'n_1', version: '2' }]);
    expect(await writer.status()).toMatchObject({ sessions: 1, partial: 1, bytes: expect.any(Number) });
  });

  test('names all of many, in pages, in the order of ids', async (index) => {
    const sessions = Array.from({ length: 30 }, (_, at) => ({
      doc: doc(`n_${String(at).padStart(2, '0')}`),
      moments: [],
      partial: false,
    }));
    expect(await putAll(index.engine.writer, sessions)).toBe(30);
    const seen: string[] = [];
    for (let after = ''; ;) {
      const page = await index.engine.writer.ids(after, 7);
      seen.push(...page.map(({ id }) => id));
      if (page.length < 7) break;
      after = page.at(-1)!.id;
    }
    expect(seen).toEqual(sessions.map((session) => session.doc.names.id));
  });

  test('lists sessions with what a list shows, exactly in the order of time, by names and by a text', async (index) => {
    const order = (number: number): string =>
      `2026-02-01T00:${String(number).padStart(2, '0')}:00.00000000${number % 10}Z n`;
    for (let number = 0; number < 12; number += 1) {
      const user = number % 3 === 0 ? 'alice@example.com' : 'bob@example.com';
      const searched = `${user}\nn_${number}\nkubectl "a*b?\\${number}`;
      const recording = JSON.stringify({ id: `n_${number}` });
      const listing = { order: order(number), version: `v${number}`, recording, searched, bytes: 1 };
      await index.put({ ...doc(`n_${number}`, { user }), listing }, [], false);
    }
    await index.put(doc('n_50', { user: 'alice@example.com' }), [], false);
    const listed = async (ask: Parameters<TestedIndex['list']>[0]): Promise<readonly string[]> =>
      (await index.list(ask)).sessions.map(({ id }) => id);
    const all = Array.from({ length: 12 }, (_, at) => `n_${11 - at}`);
    expect(await listed({})).toEqual(all);
    expect((await index.list({ limit: 1 })).sessions).toEqual([
      { id: 'n_11', order: order(11), version: 'v11', recording: '{"id":"n_11"}' },
    ]);
    expect((await index.list({ limit: 11 })).more).toBe(true);
    expect((await index.list({ limit: 12 })).more).toBe(false);
    expect(await listed({ words: 'user:alice@example.com' })).toEqual(['n_9', 'n_6', 'n_3', 'n_0']);
    expect(await listed({ from: order(4), before: order(7) })).toEqual(['n_6', 'n_5', 'n_4']);
    for (const [text, ids] of [
      ['alice', ['n_9', 'n_6', 'n_3', 'n_0']],
      ['n_1', ['n_11', 'n_10', 'n_1']],
      ['_1', ['n_11', 'n_10', 'n_1']],
      ['b?\\7', ['n_7']],
      ['a*b', all],
      ['a*7', []],
      ['*', all],
      ['?', all],
      ['kub*', []],
      ['m\nn_3\nk', ['n_3']],
      ['absent', []],
    ] as const) {
      expect(await listed({ text }), text).toEqual(ids);
      const ofAlice = ids.filter((id) => Number(id.slice(2)) % 3 === 0);
      expect(await listed({ text, may: ALICE }), text).toEqual(ofAlice);
      expect(await listed({ text, may: [] }), text).toEqual([]);
    }
  });

  test('lists the oldest, the longest and the largest first, page by page, to whom may see them', async (index) => {
    // the sessions include equal lengths, equal sizes, a missing length, and equal start times
    const made = [
      { seconds: 30, bytes: 7, user: 'alice@example.com' },
      { seconds: 5, bytes: 900, user: 'bob@example.com' },
      { seconds: undefined, bytes: 7, user: 'alice@example.com' },
      { seconds: 30, bytes: 12, user: 'bob@example.com' },
      { seconds: 0.25, bytes: 7, user: 'alice@example.com' },
      { seconds: undefined, bytes: 0, user: 'bob@example.com' },
    ];
    const orderOfOne = (at: number): string => `2026-02-01T00:00:0${at >> 1}.00000000${9 - at}Z n`;
    for (const [at, { seconds, bytes, user }] of made.entries()) {
      const recording = { id: `n_${at}`, user };
      const listing = {
        order: orderOfOne(at),
        version: '1',
        recording: JSON.stringify(recording),
        searched: `${user}\nn_${at}`,
        bytes,
      };
      const given = {
        user,
        startedAtMs: Date.parse('2026-02-01T00:00:00Z') + 1000 * (at >> 1),
        ...(seconds === undefined ? {} : { durationSeconds: seconds }),
      };
      await index.put({ ...doc(`n_${at}`, given), listing }, [], false);
    }
    // adds a running session; the index has no listing for it
    await index.put(doc('n_9', { user: 'alice@example.com', durationSeconds: 99 }), [], false);
    const all = async (ask: Parameters<TestedIndex['list']>[0]): Promise<readonly string[]> => {
      const ids: string[] = [];
      for (let after: ListAsk['after']; ;) {
        const page = await index.list({ ...ask, limit: 2, ...(after === undefined ? {} : { after }) });
        ids.push(...page.sessions.map(({ id }) => id));
        const last = page.sessions.at(-1);
        if (!page.more || last === undefined) return ids;
        after = last.value === undefined ? { order: last.order } : { order: last.order, value: last.value };
      }
    };
    const ofAlice = (ids: readonly string[]): readonly string[] =>
      ids.filter((id) => made[Number(id.slice(2))]?.user === 'alice@example.com');
    for (const [sort, ids] of [
      ['oldest', ['n_1', 'n_0', 'n_3', 'n_2', 'n_5', 'n_4']],
      ['longest', ['n_3', 'n_0', 'n_1', 'n_4', 'n_5', 'n_2'].toSorted(byMade(made, 'seconds', orderOfOne))],
      ['largest', ['n_0', 'n_1', 'n_2', 'n_3', 'n_4', 'n_5'].toSorted(byMade(made, 'bytes', orderOfOne))],
    ] as const) {
      expect(await all({ sort }), sort).toEqual(ids);
      expect(await all({ sort, may: ALICE }), sort).toEqual(ofAlice(ids));
      expect(await all({ sort, may: [] }), sort).toEqual([]);
      expect(await all({ sort, words: 'user:alice@example.com' }), sort).toEqual(ofAlice(ids));
      expect(await all({ sort, text: 'alice' }), sort).toEqual(ofAlice(ids));
      expect(await all({ sort, text: 'al' }), sort).toEqual(ofAlice(ids));
      expect(await all({ sort, text: 'bob', may: ALICE }), sort).toEqual([]);
      const times = { from: '2026-02-01T00:00:01', before: '2026-02-01T00:00:02' };
      expect(await all({ sort, ...times }), sort).toEqual(ids.filter((id) => id === 'n_2' || id === 'n_3'));
    }
  });

  test('finds nothing for an invalid cursor', async (index) => {
    await fill(index);
    for (const cursor of ['', 'x', 'o', `o${'9'.repeat(16)}.zzz`, '{"a":1}', '\0'])
      expect(idsOf(await index.find('', 'everything', 5, cursor)), cursor).toEqual([]);
  });

  test('finds a session of which nothing is on a screen, by its names alone', async (index) => {
    await fill(index);
    expect(idsOf(await index.find('web user:alice@example.com OR tag:tag:ci'))).toEqual(['n_3', 'n_1']);
    expect(idsOf(await index.find('ci'))).toEqual(['n_3']);
    expect((await index.find('ci')).sessions[0]).toMatchObject({ hits: [], more: false });
  });

  return tests;
}

/** Sorts sessions by a value, largest first. Missing values are last; sessions with equal values are newest first. */
function byMade<Name extends 'seconds' | 'bytes'>(
  made: readonly Readonly<Record<Name, number | undefined>>[],
  name: Name,
  orderOfOne: (at: number) => string,
): (left: string, right: string) => number {
  return (left, right) => {
    const [one, other] = [Number(left.slice(2)), Number(right.slice(2))];
    const more = (made[other]?.[name] ?? -1) - (made[one]?.[name] ?? -1);
    return more === 0 ? (orderOfOne(one) < orderOfOne(other) ? 1 : -1) : more;
  };
}
