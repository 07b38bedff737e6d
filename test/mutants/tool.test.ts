import { mkdtempSync, readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runInNewContext } from 'node:vm';
import { parseSync } from 'vite';
import { describe, expect, it } from 'vitest';
import { createRandom } from '../support/random.ts';
import { createCoverage, filesBelow } from './tool/covering-tests.ts';
import { ACTIVE_VARIABLE, JOBS_VARIABLE, SEEN_VARIABLE } from './tool/jobs.ts';
import {
  ACCEPTED,
  areEnough,
  changedFiles,
  chooseSample,
  folderOf,
  FOLDERS,
  scores,
  type Verdict,
} from './tool/judging.ts';
import { mutantsOf } from './tool/operators.ts';
import { keyOf, withSwitches } from './tool/schemata.ts';
import { withScores } from './tool/score-page.ts';
import { Trial } from './tool/trial.ts';
import { Verdicts } from './tool/verdicts.ts';

const root = join(import.meta.dirname, '../..');
const changesOf = (code: string): string[] =>
  mutantsOf('src/kube/x.ts', code).map(
    ({ start, end, replacement }) => code.slice(0, start) + replacement + code.slice(end),
  );

describe('the changes to a file', () => {
  it.each<[string, string[]]>([
    ['if (a) f(x);', ['if (!(a)) f(x);', 'if (a) {}']],
    ['const é = 1; if (!a) {}', ['const é = 1; if (a) {}']],
    ['x = a ? 1 : 2', ['x = !(a) ? 1 : 2']],
    ['if (a === b) {}', ['if (((a) !== (b))) {}']],
    ['x = a <= 5', ['x = ((a) < (5))']],
    ['if (a < b) {}', ['if (!(a < b)) {}', 'if (((a) <= (b))) {}']],
    ['x = a && b', ['x = ((a) || (b))']],
    ['x = a ?? b', ['x = a']],
    ['function f() { return true }', ['function f() { return false }']],
    ['const f = () => false', ['const f = () => true']],
    ['const f = () => s.has(x)', ['const f = () => !(s.has(x))']],
    ['await close();', ['{}']],
    ['void close();', ['{}']],
    ['throw new Error("x");', ['{}']],
    ['log.warn({ a }, "b");', []],
    ['this.#log.warn({ a }, "b");', []],
    ['this.#options.log.info({ a }, "b");', []],
    ['if (a > 1) log.warn({ a }, "b");', []],
    ['if (a) { log.info(a); this.#log.warn(a); }', []],
    ['if (a) { log.info(a); f(); }', ['if (!(a)) { log.info(a); f(); }', 'if (a) { log.info(a); {} }']],
    ['if (a) log.info(a); else f();', ['if (!(a)) log.info(a); else f();', 'if (a) log.info(a); else {}']],
    ['if (a) {}', ['if (!(a)) {}']],
    ['catalog.warn(a);', ['{}']],
    ['const MAX_BYTES = 64;', ['const MAX_BYTES = 65;']],
    ['const bytes = 64;', []],
    ['const LIST = [1, a];', ['const LIST = [...[], a];', 'const LIST = [1, ...[]];']],
    ['const MAP = new Map([[1, 2]]) as A;', ['const MAP = new Map([...[]]) as A;']],
    ['const TABLE = { a, ...b };', ['const TABLE = { ...{}, ...b };', 'const TABLE = { a, ...{} };']],
    ['type A = B extends C ? D : E;', []],
    ['x = (a as B) && c', ['x = (((a as B)) || (c))']],
  ])('%s', (code, changes) => {
    expect(changesOf(code)).toEqual(changes);
  });

  it('leave every file of the folders one that can be read', () => {
    let count = 0;
    for (const file of changedFiles(filesBelow(root, 'src'))) {
      const code = readFileSync(join(root, file), 'utf8');
      const mutants = mutantsOf(file, code);
      count += mutants.length;
      const random = createRandom(mutants.length);
      for (let some = 0; some < Math.min(5, mutants.length); some += 1) {
        const { start, end, replacement } = random.pick(mutants);
        expect(parseSync(file, code.slice(0, start) + replacement + code.slice(end)).errors).toEqual([]);
      }
    }
    expect(count).toBeGreaterThan(9000);
  });
});

describe('a file with all of its changes', () => {
  /** The tests compare the results of `f` for 0, 1 and 2, with one change enabled. */
  const code = `
    const MOST = 1;
    const NAMES = new Set([0, ...[1]]);
    const WORDS = { [2]: 'two' };
    let calls = 0;
    const count = () => { calls += 1; };
    function f(n: number): unknown {
      calls = 0;
      if (n > 9) throw new Error('too many');
      if (n === 0 && !(n < MOST - 1)) count();
      else count(), count();
      return [calls, n <= MOST || n === 2 ? n : null, ((n as number) || undefined) ?? 'none', NAMES.has(n), WORDS[n]];
    }`;
  const mutants = mutantsOf('src/kube/x.ts', code);
  const answers = (text: string, active: string | undefined): string => {
    const script = stripTypeScriptTypes(text);
    const load: unknown = runInNewContext(`($mutant) => { ${script}; return f; }`);
    const f = (load as (mutant: (key: string) => boolean) => (n: number) => unknown)((key) => key === active);
    return JSON.stringify(
      [0, 1, 2, 10].map((n) => {
        try {
          return f(n);
        } catch (error) {
          return String(error);
        }
      }),
    );
  };

  it('does what it did as long as none is switched on', () => {
    expect(answers(withSwitches(code, mutants), undefined)).toBe(answers(code, undefined));
  });

  it('does with one switched on what the file with that change does', () => {
    const switched = withSwitches(code, mutants);
    expect(mutants.length).toBeGreaterThan(10);
    for (const mutant of mutants) {
      const { start, end, replacement } = mutant;
      const changed = code.slice(0, start) + replacement + code.slice(end);
      expect(answers(switched, keyOf(mutant)), replacement).toBe(answers(changed, undefined));
    }
    // the changes must cause several different results
    const seen = new Set(mutants.map((mutant) => answers(switched, keyOf(mutant))));
    expect(seen.size).toBeGreaterThan(6);
  });

  it('can be read, whichever file it is', () => {
    for (const file of changedFiles(filesBelow(root, 'src'))) {
      const text = readFileSync(join(root, file), 'utf8');
      expect(parseSync(file, withSwitches(text, mutantsOf(file, text))).errors, file).toEqual([]);
    }
  });
});

describe('scores', () => {
  const [mutant] = mutantsOf('src/kube/x.ts', 'if (a < b) f();');
  const verdict = (noticed: boolean, isJudged: boolean, accepted?: string): Verdict => ({
    mutant: mutant!,
    noticed,
    isJudged,
    accepted,
  });
  const verdicts = [
    ...Array.from({ length: 7 }, () => verdict(true, false)),
    verdict(false, false, 'x'),
    verdict(false, true),
    verdict(false, false),
  ];

  it('go between the marks of their seed, and nowhere else', () => {
    const page =
      'a\n<!-- mutants: seed 1 -->\nstale\n<!-- mutants: end -->\nb\n<!-- mutants: seed 2 -->\nkept\n<!-- ' +
      'mutants: end -->\n';
    const written = withScores(page, 1, verdicts, 'commit abc');
    expect(written).toContain('| `src/kube` | 10 | 9 | 7 | 1 | 80 % |');
    expect(written).toContain('kept');
    expect(written).not.toContain('stale');
    expect(withScores(written, 1, verdicts, 'commit abc')).toBe(written);
    expect(() => withScores(page, 3, [], '')).toThrow('seed 3');
  });

  it('say how many were judged to the end, and which are left', () => {
    const written = withScores(
      '<!-- mutants: seed 1 -->\n<!-- mutants: end -->\n',
      1,
      verdicts,
      'commit abc',
    );
    expect(written).toContain(
      'Judged 9 of 10 (commit abc): tests noticed 7, 1 are accepted, and tests missed 1.',
    );
    const change = '`` src/kube/x.ts:1 condition: a < b → !(a < b) ``';
    expect(written).toContain(`\n- Not noticed so far: ${change}\n- Noticed by no test: ${change}\n`);
  });
});

describe('the sample', () => {
  const mutants = FOLDERS.flatMap((folder, index) =>
    Array.from({ length: 10 + index * 40 }, (_, line) => ({
      ...mutantsOf(`${folder}/x.ts`, 'f();')[0]!,
      nth: line,
      line,
    })),
  );

  it('is the same for the same seed, and has every folder', () => {
    const sample = chooseSample(mutants, 150, 3);
    expect(sample).toHaveLength(150);
    expect(chooseSample(mutants, 150, 3)).toEqual(sample);
    expect(chooseSample(mutants, 150, 4)).not.toEqual(sample);
    for (const folder of FOLDERS)
      expect(sample.filter((mutant) => folderOf(mutant) === folder).length).toBeGreaterThan(2);
    expect(new Set(sample).size).toBe(150);
  });

  it('stays what it is when something else in the code goes', () => {
    const sample = new Set(chooseSample(mutants, 100, 3));
    const gone = mutants.find((mutant) => !sample.has(mutant));
    const again = chooseSample(
      mutants.filter((mutant) => mutant !== gone),
      100,
      3,
    );
    expect(again.filter((mutant) => sample.has(mutant)).length).toBeGreaterThan(95);
  });

  it('is scored by folder', () => {
    const [mutant] = mutants;
    const verdict = (noticed: boolean, accepted?: string, isJudged = false) => ({
      mutant: mutant!,
      noticed,
      isJudged,
      accepted,
    });
    expect(
      scores([
        verdict(true),
        verdict(false),
        verdict(false, 'x'),
        verdict(true, 'x'),
        verdict(false, undefined, true),
      ]),
    ).toEqual([{ folder: FOLDERS[0], noticed: 2, accepted: 1, judged: 4, all: 5 }]);
  });
});

describe('what tests have said', () => {
  const path = join(mkdtempSync(join(tmpdir(), 'verdicts-')), 'verdicts.jsonl');
  const open = (own: string, whole: string, ownIsEnough = false): Verdicts =>
    new Verdicts(path, { stateOf: () => ({ own, whole }), ownIsEnough });

  it('is kept between runs, as long as nothing has changed', () => {
    const noticed = { key: 'a', file: 'one.test.ts', noticed: true, test: 'bites', isQuick: true };
    open('1', '1').keep([{ key: 'a', file: 'two.test.ts', noticed: false }]);
    open('1', '1').keep([noticed, { key: 'b', file: 'one.test.ts', noticed: false }]);
    const kept = open('1', '1');
    expect(kept.of('a', 'one.test.ts')).toMatchObject(noticed);
    expect(kept.of('a', 'two.test.ts')).toMatchObject({ noticed: false });
    expect(kept.of('b', 'two.test.ts')).toBeUndefined();
    expect(open('1', '2').of('a', 'one.test.ts')).toBeUndefined();
    expect(open('1', '2', true).of('a', 'one.test.ts')).toMatchObject(noticed);
    expect(open('2', '2', true).of('a', 'one.test.ts')).toBeUndefined();
    expect([kept.noticedLast('a'), open('2', '2').noticedLast('a')]).toEqual(['one.test.ts', 'one.test.ts']);
    expect(kept.noticedLast('b')).toBeUndefined();
  });

  it('may be said again, otherwise', () => {
    open('1', '1').keep([{ key: 'c', file: 'one.test.ts', noticed: false }]);
    open('1', '1').keep([{ key: 'c', file: 'one.test.ts', noticed: true }]);
    expect(open('1', '1').of('c', 'one.test.ts')).toMatchObject({ noticed: true });
  });
});

describe('what is known of a change without running a test', () => {
  const [mutant] = mutantsOf('src/kube/x.ts', 'if (a < b) f();');
  const key = keyOf(mutant!);
  const coverage = (file: string) => ({
    file,
    keys: [key],
    load: [],
    tests: [{ id: '1', name: 'one', ms: 1, isSuite: false, seen: [0] }],
    broken: [],
  });
  const known = (said: readonly { file: string; noticed: boolean }[]) => {
    const path = join(mkdtempSync(join(tmpdir(), 'verdicts-')), 'verdicts.jsonl');
    const verdicts = new Verdicts(path, { stateOf: () => ({ own: '', whole: '' }), ownIsEnough: false });
    verdicts.keep(said.map((each) => ({ key, ...each })));
    const trial = new Trial({
      mutants: [mutant!],
      covering: [coverage('test/kube/x.test.ts'), coverage('test/cli/y.test.ts')],
      notes: '',
      run: () => Promise.reject(new Error('no test is to be run')),
      say: () => undefined,
      signal: new AbortController().signal,
      verdicts,
    });
    return trial.outcomes().get(mutant!);
  };

  it('is open until all tests that come past have spoken, or one has noticed it', () => {
    expect(known([])).toMatchObject({ kind: 'open', text: expect.stringContaining('0 of 2') });
    const first = { file: 'test/kube/x.test.ts', noticed: false };
    expect(known([first])).toMatchObject({ kind: 'open', text: expect.stringContaining('1 of 2') });
    expect(known([first, { file: 'test/cli/y.test.ts', noticed: false }])?.kind).toBe('survived');
    expect(known([first, { file: 'test/cli/y.test.ts', noticed: true }])?.kind).toBe('noticed');
  });
});

it.each([
  [[[9, 0, 10]], true],
  [[[8, 0, 10]], false],
  [[[8, 1, 10]], true],
  [
    [
      [100, 0, 100],
      [8, 0, 10],
    ],
    false,
  ],
  [
    [
      [100, 0, 100],
      [0, 0, 9],
    ],
    true,
  ],
  [
    [
      [10, 0, 10],
      [0, 0, 9],
    ],
    false,
  ],
  [[], true],
] as const)('%j are enough: %j', (found, enough) => {
  expect(
    areEnough(
      found.map(([noticed, accepted, all]) => ({ folder: 'x', noticed, accepted, judged: all, all })),
    ),
  ).toBe(enough);
});

it('the tests of a file are those that import it, its own first', () => {
  const testsOf = createCoverage(root);
  expect(testsOf('src/kube/interactive.ts')[0]).toBe('test/kube/interactive.test.ts');
  expect(testsOf('src/kube/interactive.ts')).toContain('test/attack/roads.test.ts');
  // two test files are equally close to the source file, so the expected one may be the first or the second
  expect(testsOf('src/recording/kept-fields.ts').slice(0, 2)).toContain(
    'test/recording/request-event.test.ts',
  );
  expect(testsOf('src/nothing.ts')).toEqual([]);
});

it('roles that tests start do not take the variables of the tool for settings', () => {
  for (const name of [ACTIVE_VARIABLE, JOBS_VARIABLE, SEEN_VARIABLE]) expect(name).not.toMatch(/^TAILCAST_/);
});

it('what is accepted is still there', () => {
  for (const { file, original } of ACCEPTED)
    expect(readFileSync(join(root, file), 'utf8')).toContain(original);
});
