import { readFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { join } from 'node:path';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import { ACCEPTED, areEnough, chooseSample, folderOf, FOLDERS } from './tool/judging.ts';
import { mutantsOf } from './tool/operators.ts';
import { keyOf, withSwitches } from './tool/schemata.ts';

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
    // the changes must cause more than six different results
    const seen = new Set(mutants.map((mutant) => answers(switched, keyOf(mutant))));
    expect(seen.size).toBeGreaterThan(6);
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
});

it.each([
  [[[9, 0, 10]], true],
  [[[8, 0, 10]], false],
  [[[8, 1, 10]], true],
] as const)('%j are enough: %j', (found, enough) => {
  expect(
    areEnough(
      found.map(([noticed, accepted, all]) => ({ folder: 'x', noticed, accepted, judged: all, all })),
    ),
  ).toBe(enough);
});

it('what is accepted is still there', () => {
  for (const { file, original } of ACCEPTED)
    expect(readFileSync(join(root, file), 'utf8')).toContain(original);
});
