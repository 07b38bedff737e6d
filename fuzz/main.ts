/**
 * Fuzzes the parsers.
 *
 *   npm run fuzz -- [--seconds N] [--seed N] [--seed-corpus] [target…]
 *
 * `--seconds` applies to each target (default 10). The fuzzer minimises a failure, stores it in the corpus, prints it
 * with the seed that finds it again, and exits with 1. `--seed-corpus` writes the initial inputs of the targets into
 * the corpus.
 */
import { randomInt } from 'node:crypto';
import { relative } from 'node:path';
import { parseArgs } from 'node:util';
import { keepInput, readCorpus } from './corpus.ts';
import { fuzz } from './engine.ts';
import type { FuzzTarget } from './target.ts';
import { TARGETS } from './targets.ts';

function main(): number {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      seconds: { type: 'string', default: '10' },
      seed: { type: 'string' },
      'seed-corpus': { type: 'boolean', default: false },
    },
  });
  const unknown = positionals.filter((name) => !TARGETS.some((target) => target.name === name));
  if (unknown.length > 0) {
    const known = TARGETS.map((target) => target.name).join(' ');
    process.stderr.write(`unknown target: ${unknown.join(' ')}; known: ${known}\n`);
    return 2;
  }
  const seconds = Number(values.seconds);
  const seed = values.seed === undefined ? randomInt(2 ** 31) : Number(values.seed);
  const targets = TARGETS.filter((target) => positionals.length === 0 || positionals.includes(target.name));
  if (values['seed-corpus'])
    for (const { name, seeds } of targets) for (const input of seeds) keepInput(name, input);
  const failed = targets.filter((target) => !run(target, seconds, seed));
  const closing =
    failed.length === 0 ? 'nothing found' : `failed: ${failed.map(({ name }) => name).join(' ')}`;
  process.stdout.write(`fuzz: ${targets.length} targets, ${closing}\n`);
  return failed.length === 0 ? 0 : 1;
}

/** Returns true if the fuzzer found no failure. */
function run(target: FuzzTarget, seconds: number, seed: number): boolean {
  const started = performance.now();
  const corpus = readCorpus(target.name).map(({ input }) => input);
  const { runs, outcomes, failure } = fuzz(target, corpus, { seed, until: started + seconds * 1000 });
  const rate = Math.round(runs / ((performance.now() - started) / 1000));
  process.stdout.write(`${target.name}: ${runs} inputs, ${rate}/s, ${outcomes} outcomes\n`);
  if (failure === undefined) return true;
  const file = relative(process.cwd(), keepInput(target.name, failure.input));
  const reason = failure.error instanceof Error ? failure.error.stack : String(failure.error);
  process.stdout.write(`${target.name}: FAILED with seed ${seed}, kept as ${file}\n${reason}\n`);
  return false;
}

process.exitCode = main();
