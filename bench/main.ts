/**
 * Compares the gateway with other proxies in the same run, and writes `bench/results.json` and `bench/results.md`. A
 * quick run writes both files to `node_modules/.cache/tailcast`. A run of named cases writes files only with
 * `--update`.
 *
 *   npm run bench [-- case… --quick]
 *
 * A prefix such as `get` or `exec-cat` selects every case whose name starts with it. Some cases use other programs:
 * - `recorder`: only the recorder (`recorder.ts`)
 * - `search`: the recorder's index (`search.ts`)
 * - `real`: a real API server, which `kubectl` and `exec-start` also need
 *
 * Options:
 * - `--profile=<directory>`: writes CPU profiles
 * - `--update`: merges the named cases into the last results
 * - `--before=<checkout>`: also runs gateway and recorder of another checkout (needs `npm ci` there)
 * - `--peers=tailcast,go`: runs only these peers, and with `--before` also their counterparts
 * - `--node=<flag>`: passes a flag to Node.js in the gateways
 *
 * Runs with `--before`, `--peers` or `--node` write no files.
 *
 * Each process (upstream, proxies, recorder, load) is separate and uses loopback. Absolute numbers change over time on
 * a shared machine, so the results are ratios of medians over interleaved rounds. Results are written after all cases
 * have run.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { CASES } from './cases/all.ts';
import { openBench } from './harness/bench.ts';
import type { BenchCase, Scale } from './harness/case.ts';
import { GOALS, IDLE_MEMORY, judge, verdictWord } from './harness/goals.ts';
import { describeMachine, describeVersions } from './harness/machine.ts';
import { measureCase } from './harness/measure.ts';
import { figure, markdown, printable } from './harness/report.ts';
import type { CaseResult, Fact, RunResults } from './harness/results.ts';
import { usageOf } from './harness/usage.ts';
import { benchRecorder } from './recorder.ts';
import { counterpartOf, type Peer, type PeerName } from './peers/peer.ts';
import { PeerSet } from './peers/peer-set.ts';

const FULL_ROUNDS = 5;
const QUICK_ROUNDS = 2;
const FULL_RECORDER = { rounds: 2, floodSeconds: 5, idleSeconds: 10 };
const QUICK_RECORDER = { rounds: 1, floodSeconds: 3, idleSeconds: 5 };

const here = dirname(fileURLToPath(import.meta.url));
const args = process.argv.slice(2);
// the search benchmark has its own options, goals and processes
if (args[0] === 'search') {
  await import('./search.ts');
  process.exit();
}
const quick = args.includes('--quick');
const wanted = args.filter((arg) => !arg.startsWith('--'));
const isNamed = (prefix: string, name: string): boolean => name === prefix || name.startsWith(`${prefix}-`);
const named = CASES.filter(
  ({ name }) => wanted.length === 0 || wanted.some((prefix) => isNamed(prefix, name)),
);
const unknown = wanted.filter(
  (prefix) => prefix !== 'recorder' && !CASES.some(({ name }) => isNamed(prefix, name)),
);
const leftOut = named.filter(({ onlyFull }) => quick && wanted.length === 0 && onlyFull === true);
const chosen = named.filter((benchmark) => !leftOut.includes(benchmark));
const folderOf = (option: string): string | undefined => {
  const given = args.find((arg) => arg.startsWith(`--${option}=`))?.slice(option.length + 3);
  return given === undefined ? undefined : resolve(given);
};
const profiles = folderOf('profile');
const before = folderOf('before');
/** Names of the proxies to measure; undefined: all proxies. With `--before`, their counterparts also run. */
const only = args
  .find((arg) => arg.startsWith('--peers='))
  ?.slice('--peers='.length)
  .split(',');
const update = args.includes('--update');
const flags = args.filter((arg) => arg.startsWith('--node=')).map((arg) => arg.slice('--node='.length));
const strange = args.filter(
  (arg) => arg.startsWith('--') && !/^--(quick|update|(profile|before|peers|node)=.+)$/.test(arg),
);
const alone = before === undefined && (wanted.length === 0 || wanted.includes('recorder'));
if (strange.length > 0 || unknown.length > 0) {
  const wrong = [...strange, ...unknown].join(' ');
  console.error(
    `bench: unknown: ${wrong}\n` +
      'usage: npm run bench [-- case… --quick --update --profile=<folder> --before=<checkout> --peers=<peer>,… ' +
      `--node=<flag>]\ncases: ${CASES.map(({ name }) => name).join(' ')} recorder`,
  );
  process.exitCode = 2;
} else {
  await main();
}

async function main(): Promise<void> {
  const startedAt = new Date();
  const lap = createClock();
  if (leftOut.length > 0)
    console.log(
      `left to the full run: ${leftOut.map(({ name }) => name).join(', ')}; all rounds are shorter`,
    );
  const bench = await openBench((line) => console.log(line), { profiles, before, flags });
  try {
    const scale: Scale = { quick };
    const peers = new PeerSet(bench);
    const facts: Fact[] = [];
    const cases: CaseResult[] = [];
    const failed: Record<string, string> = {};
    const shared = chosen.filter(({ start }) => start === undefined);
    const started = await peers.take([...new Set(shared.flatMap(peersOf))]);
    const ready = performance.now();
    lap(`compiled; ${started.size} peers started`);
    if (alone) {
      facts.push(...(await benchRecorder(quick ? QUICK_RECORDER : FULL_RECORDER)));
      lap('recorder');
    }
    facts.push(...(await idleMemory(started.get('tailcast'), ready, IDLE_MEMORY)));
    facts.push(...(await idleMemory(started.get('before'), ready, `${IDLE_MEMORY}, before`)));
    for (const { name, value, unit } of facts) console.log(`${name}: ${figure(value)} ${unit}`);
    for (const benchmark of chosen) {
      const taking = await peers.take(peersOf(benchmark), benchmark.start);
      const rounds = benchmark.rounds?.(scale) ?? (quick ? QUICK_ROUNDS : FULL_ROUNDS);
      try {
        const result = await measureCase(benchmark, taking, bench, scale, rounds);
        if (benchmark.start === undefined)
          for (const [name, peer] of result.replaced) peers.replace(name, peer);
        cases.push(result.result);
        console.log(printable(result.result));
      } catch (error) {
        // the results of the other cases are still printed, but a run with a wrong response must fail
        console.error(error);
        failed[benchmark.name] = error instanceof Error ? error.message : String(error);
        process.exitCode = 1;
      }
      lap(benchmark.name);
    }
    const results: RunResults = {
      startedAt: startedAt.toISOString(),
      quick,
      machine: describeMachine(),
      versions: describeVersions(),
      missing: { ...Object.fromEntries(peers.missing), ...failed },
      cases,
      facts,
    };
    conclude(results, startedAt);
  } finally {
    await bench.rig.stop();
  }
}

function conclude(results: RunResults, startedAt: Date): void {
  console.log('\ngoals');
  for (const goal of GOALS) {
    const verdict = judge(goal, results);
    if (verdict !== undefined)
      console.log(
        `${verdict.met ? verdictWord(verdict) : verdictWord(verdict).toUpperCase()}  ${goal.text}: ${verdict.figures}`,
      );
  }
  if (leftOut.length > 0) {
    const open = GOALS.filter((goal) => judge(goal, results) === undefined);
    console.log(`${open.length} more goals are left to the full run, with ${leftOut.length} cases`);
    console.log('(the rounds of a quick run are few and short: it shows what has changed much)');
  }
  console.log(`${Math.round((Date.now() - startedAt.getTime()) / 1000)} s`);
  const special = before !== undefined || only !== undefined || flags.length > 0;
  if (special || (wanted.length > 0 && !update)) return;
  const folder = results.quick ? join(here, '..', 'node_modules', '.cache', 'tailcast') : here;
  const whole = update ? merged(folder, results) : results;
  writeFileSync(join(folder, 'results.json'), `${JSON.stringify(whole, undefined, 1)}\n`);
  writeFileSync(join(folder, 'results.md'), markdown(whole));
  console.log(`written: ${folder}/results.md`);
}

/**
 * Returns the peers of a case. In a comparison of two checkouts, these are only the peers with a counterpart in the
 * other checkout, and the counterparts.
 */
function peersOf(benchmark: BenchCase): readonly PeerName[] {
  const peers = benchmark.peers.filter((name) => only?.includes(name) !== false);
  if (before === undefined) return peers;
  return peers.flatMap((name) => {
    const counterpart = counterpartOf(name);
    return counterpart === undefined ? [] : [name, counterpart];
  });
}

/** Returns the stored results, in which the cases of this run replace earlier results of these cases. */
function merged(folder: string, results: RunResults): RunResults {
  const path = join(folder, 'results.json');
  if (!existsSync(path))
    throw new Error(`${path} is missing: --update needs the results of a full run (npm run bench)`);
  const before = JSON.parse(readFileSync(path, 'utf8')) as RunResults;
  const names = new Set(results.cases.map(({ name }) => name));
  const cases = [...before.cases.filter(({ name }) => !names.has(name)), ...results.cases];
  const missing = Object.entries(before.missing).filter(([name]) => !names.has(name));
  const place = (name: string): number => CASES.findIndex((benchmark) => benchmark.name === name);
  return {
    ...before,
    missing: Object.fromEntries(missing),
    cases: cases.toSorted((left, right) => place(left.name) - place(right.name)),
  };
}

/** Prints the duration of each part of a run, so that a long run shows progress. */
function createClock(): (what: string) => void {
  const beganAt = performance.now();
  let last = beganAt;
  return (what) => {
    const now = performance.now();
    const seconds = (from: number): string => ((now - from) / 1000).toFixed(1);
    console.log(`  [${seconds(beganAt)} s] ${what}: ${seconds(last)} s`);
    last = now;
  };
}

/** Memory of a new gateway without requests, a few seconds after its start. */
async function idleMemory(gateway: Peer | undefined, ready: number, name: string): Promise<readonly Fact[]> {
  if (gateway === undefined) return [];
  await new Promise((resolve) => {
    setTimeout(resolve, Math.max(0, ready + 3000 - performance.now()));
  });
  const usage = usageOf(gateway.pids());
  return usage === undefined ? [] : [{ name, value: usage.rssBytes / 2 ** 20, unit: 'MB' }];
}
