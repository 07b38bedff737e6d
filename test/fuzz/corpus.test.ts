import { randomInt } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { keepInput, readCorpus } from '../../fuzz/corpus.ts';
import { fuzz, replay } from '../../fuzz/engine.ts';
import { ensure, type FuzzTarget } from '../../fuzz/target.ts';
import { TARGETS } from '../../fuzz/targets.ts';

/** True for a verification run, which must be repeatable: it uses a fixed seed and a fixed number of inputs. */
const VERIFYING = (process.env['CI'] ?? '') !== '';
const SEARCH = VERIFYING ? { seconds: 3, maxRuns: 2000 } : { seconds: 2 };

describe.each(TARGETS.map((target) => ({ name: target.name, target })))(
  'fuzzing $name',
  ({ name, target }) => {
    it('finds nothing in the kept inputs', () => {
      const corpus = readCorpus(name);
      expect(corpus.length).toBeGreaterThan(0);
      for (const { file, input } of corpus) expect(() => replay(target, input), file).not.toThrow();
    });

    it('finds nothing in a short time', () => {
      const seed = VERIFYING ? 1 : randomInt(2 ** 31);
      const until = performance.now() + SEARCH.seconds * 1000;
      const corpus = readCorpus(name).map(({ input }) => input);
      const { runs, failure } = fuzz(target, corpus, { ...SEARCH, seed, until });
      if (failure !== undefined) {
        const file = keepInput(name, failure.input);
        throw new Error(`seed ${seed}, kept as ${file}`, { cause: failure.error });
      }
      expect(runs).toBeGreaterThan(target.seeds.length);
    });
  },
);

describe('the fuzzer', () => {
  const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

  /** Fails for inputs that contain `x` and later `!!`. */
  const target: FuzzTarget = {
    name: 'none',
    words: ['!'],
    seeds: [bytes('some text with an x in it')],
    run(input) {
      const text = Buffer.from(input).toString('latin1');
      ensure(!/x.*!!/.test(text), 'found it');
      return /x.*!/.test(text) ? 'near' : 'far';
    },
  };

  it('finds what is there, makes it small, and finds it again with the same seed', () => {
    const options = { seed: 7, until: performance.now() + 5000 };
    const { failure } = fuzz(target, [], options);
    expect(Buffer.from(failure!.input).toString()).toBe('x!!');
    expect(() => replay(target, failure!.input)).toThrow('found it');
    expect(fuzz(target, [], options).failure?.input).toEqual(failure!.input);
  });

  it('fails an input that takes too long', () => {
    const slow: FuzzTarget = {
      ...target,
      run() {
        const before = process.cpuUsage();
        const spentMicroseconds = (): number => {
          const { user, system } = process.cpuUsage(before);
          return user + system;
        };
        while (spentMicroseconds() < 60_000);
        return 'done';
      },
    };
    const until = performance.now();
    expect(fuzz(slow, [], { seed: 1, until, maxCpuMs: 50 }).failure?.error).toMatchObject({
      message: expect.stringMatching(/took \d+ ms/),
    });
  });
});
