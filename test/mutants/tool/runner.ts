/**
 * A vitest runner for the tool. The runner loads a test file once. Then it either records the changes that each test
 * reaches, or runs selected tests repeatedly, each time with another active change.
 */
import { appendFileSync, existsSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { setImmediate as turn } from 'node:timers/promises';
import {
  TestRunner,
  type RunnerTask,
  type RunnerTestCase,
  type RunnerTestFile,
  type RunnerTestSuite,
} from 'vitest';
import {
  ACTIVE_VARIABLE,
  JOBS_VARIABLE,
  jobPath,
  NO_END,
  SEEN_VARIABLE,
  STOP_FILE,
  type Coverage,
  type Job,
  type Note,
  type TestCoverage,
} from './jobs.ts';

/** Maximum number of checks of the active change in one run. A run with more checks counts as endless. */
const MAX_QUESTIONS = 60_000_000;
/** Ratio of the time limit of a test to its duration without a change. */
const SLOWNESS = 8;
const LEAST_LIMIT_MS = 4_000;
const LEAST_HOOK_LIMIT_MS = 15_000;
/** Time limit of a test without a measured time. */
const FIRST_LIMIT_MS = 120_000;
/** Maximum total time of the tests of one file with one change. */
const BUDGET_MS = 30_000;

type Test = RunnerTestCase;

const switches = {
  active: undefined as string | undefined,
  seen: new Set<string>(),
  questions: 0,
  /** The first uncaught exception during a test. */
  stray: undefined as unknown,
};

Object.assign(globalThis, {
  $mutant(key: string): boolean {
    if (switches.active === undefined) {
      switches.seen.add(key);
      return false;
    }
    switches.questions += 1;
    if (switches.questions > MAX_QUESTIONS) throw new Error('the change has made a loop endless');
    return switches.active === key;
  },
});
/** File to which the child processes of a test write the changes that they reach. */
const seenFile = join(process.env[JOBS_VARIABLE] ?? '', `seen-${process.pid}`);
process.env[SEEN_VARIABLE] = seenFile;
writeFileSync(seenFile, '');

function takeSeen(): readonly string[] {
  const keys = [...switches.seen, ...readFileSync(seenFile, 'utf8').split('\n').slice(0, -1)];
  switches.seen.clear();
  writeFileSync(seenFile, '');
  return [...new Set(keys)];
}

/** Activates a change, also in child processes that tests start later. */
function switchOn(key: string | undefined): void {
  switches.active = key;
  if (key === undefined) delete process.env[ACTIVE_VARIABLE];
  else process.env[ACTIVE_VARIABLE] = key;
}

for (const event of ['uncaughtException', 'unhandledRejection'] as const)
  process.on(event, (error: unknown) => (switches.stray ??= error ?? 'nothing'));

interface Failure {
  readonly test: string;
  readonly id: string | undefined;
  readonly reason: string;
}

export default class MutantRunner extends TestRunner {
  #job: Job | undefined;
  #file: KeptSuite | undefined;
  /** The only test of the file that vitest itself runs. */
  #host: Test | undefined;

  override importFile(path: string, source: 'collect' | 'setup'): unknown {
    this.#job ??= JSON.parse(readFileSync(jobPath(path), 'utf8')) as Job;
    switchOn(this.#job.atLoad);
    return super.importFile(path, source);
  }

  /**
   * Keeps the test functions of a file for the tool, and makes vitest skip all tests except one. While vitest runs this
   * one test, the tool runs the kept functions.
   */
  async onBeforeRunFiles(files: RunnerTestFile[]): Promise<void> {
    for (const file of files) {
      this.#file = keep(file);
      if (file.result?.state === 'fail') {
        await this.#work();
        continue;
      }
      this.#host = testsOf(file).find(({ mode }) => mode === 'run' || mode === 'queued');
      for (const test of testsOf(file)) if (test !== this.#host) test.mode = 'skip';
      dropHooks(file);
    }
  }

  async runTask(): Promise<void> {
    await this.#work();
  }

  async #work(): Promise<void> {
    const [job, file] = [this.#job, this.#file];
    if (job === undefined || file === undefined) throw new Error('nothing to do');
    if (job.kind === 'record') await this.#record(file, job);
    else await this.#judge(file, job);
  }

  /** Runs all tests once and records the changes that each test reaches. */
  async #record(file: KeptSuite, job: Job): Promise<void> {
    const keys: string[] = [];
    const numbers = new Map<string, number>();
    const taken = (): number[] =>
      takeSeen().map((key) => {
        const known = numbers.get(key) ?? keys.push(key) - 1;
        numbers.set(key, known);
        return known;
      });
    const load = taken();
    const tests: TestCoverage[] = [];
    const broken: string[] = [];
    if (file.task.result?.state === 'fail') broken.push('it does not load');
    await this.#runSuite(file, () => true, {
      before: () => void takeSeen(),
      after: (task, ms, failure) => {
        if (failure !== undefined) broken.push(`${failure.test}: ${failure.reason}`);
        tests.push({
          id: task.id,
          name: nameOf(task),
          ms: Math.ceil(ms),
          isSuite: task.type === 'suite',
          seen: taken(),
        });
        return false;
      },
    });
    note(job, {
      kind: 'coverage',
      coverage: { file: job.file, keys, load, tests, broken } satisfies Coverage,
    });
  }

  async #judge(file: KeptSuite, job: Job): Promise<void> {
    if (job.atLoad !== undefined) return this.#judgeLoaded(file, job, job.atLoad);
    for (const { key, tests } of job.mutants) {
      if (existsSync(join(dirname(job.notes), STOP_FILE))) return;
      if (noticedMeanwhile(job).has(key)) continue;
      note(job, { kind: 'begin', key, file: job.file, pid: process.pid });
      const first = await this.#tryChange(file, new Set(tests), key, job);
      if (first === undefined) {
        note(job, { kind: 'survived', key, file: job.file });
        continue;
      }
      const only = new Set(first.id === undefined ? tests : [first.id]);
      const again = await this.#tryChange(file, only, key, job);
      const unchanged = await this.#tryChange(file, only, undefined, job);
      if (unchanged !== undefined) {
        // a test left state behind or depends on earlier tests, so it runs in its own process
        note(job, { kind: 'dirty', key, file: job.file, test: unchanged.test, reason: unchanged.reason });
        return;
      }
      if (again === undefined)
        note(job, { kind: 'flaky', key, file: job.file, test: first.test, reason: first.reason });
      else note(job, { kind: 'noticed', key, file: job.file, test: first.test, reason: first.reason });
    }
  }

  /**
   * Judges the change that was active while this process loaded the files. The process tests only this change. A
   * failed test runs a second time.
   */
  async #judgeLoaded(file: KeptSuite, job: Job, key: string): Promise<void> {
    note(job, { kind: 'begin', key, file: job.file, pid: process.pid });
    const failed =
      file.task.result?.state === 'fail'
        ? { test: 'it does not load', id: undefined, reason: file.task.result.errors?.[0]?.message ?? '' }
        : await this.#tryChange(file, new Set(job.mutants[0]?.tests), key, job);
    const again =
      failed?.id === undefined ? failed : await this.#tryChange(file, new Set([failed.id]), key, job);
    if (failed === undefined || again === undefined) {
      note(job, { kind: 'survived', key, file: job.file });
      return;
    }
    const { test, reason } = failed;
    note(job, { kind: 'noticed', key, file: job.file, test, reason, atLoad: true });
  }

  async #tryChange(
    file: KeptSuite,
    chosen: ReadonlySet<string>,
    key: string | undefined,
    job: Job,
  ): Promise<Failure | undefined> {
    let failed: Failure | undefined;
    const until = performance.now() + BUDGET_MS;
    switches.questions = 0;
    switches.stray = undefined;
    switchOn(key ?? 'none');
    await this.#runSuite(
      file,
      (test) => chosen.has(test.id) || chosen.has(nameOf(test)),
      {
        before: () => undefined,
        after: (_task, _ms, failure) => {
          failed ??= failure;
          return failed !== undefined || performance.now() > until;
        },
      },
      job.times,
      job.usualMs,
    );
    switchOn('none');
    return failed;
  }

  /** @returns true if the remaining tests need not run */
  async #runSuite(
    suite: KeptSuite,
    isChosen: (test: Test) => boolean,
    watch: Watch,
    times: Readonly<Record<string, number>> = {},
    usualMs?: number,
  ): Promise<boolean> {
    if (!suite.tests.some(isChosen)) return false;
    const cleanUps: (() => unknown)[] = [];
    let isOver = false;
    const hook = async (run: () => unknown): Promise<void> => {
      const limitMs = limitOf(times[suite.task.id] ?? usualMs, LEAST_HOOK_LIMIT_MS);
      const { ms, failure } = await this.#timed(suite.task, limitMs, run);
      isOver = watch.after(suite.task, ms, failure) || isOver;
    };
    watch.before();
    for (const before of suite.beforeAll)
      await hook(async () => {
        const cleanUp: unknown = await before(suite.task, suite.task);
        if (typeof cleanUp === 'function') cleanUps.push(cleanUp as () => unknown);
      });
    const speed = (task: Test | KeptSuite): number =>
      Math.min(...('tests' in task ? task.tests : [task]).map(({ id }) => times[id] ?? 0));
    for (const task of suite.tasks.toSorted((a, b) => speed(a) - speed(b))) {
      if (isOver) break;
      if ('tests' in task) isOver = await this.#runSuite(task, isChosen, watch, times, usualMs);
      else if (isChosen(task)) {
        watch.before();
        const { ms, failure } = await this.#runTest(task, suite, times[task.id] ?? usualMs);
        isOver = watch.after(task, ms, failure);
      }
    }
    watch.before();
    for (const after of suite.afterAll.toReversed()) await hook(() => after(suite.task, suite.task));
    for (const cleanUp of cleanUps.toReversed()) await hook(cleanUp);
    return isOver;
  }

  async #runTest(test: Test, suite: KeptSuite, expectedMs: number | undefined): Promise<Timed> {
    const limitMs = limitOf(expectedMs, LEAST_LIMIT_MS);
    const suites: KeptSuite[] = [];
    for (let around: KeptSuite | undefined = suite; around !== undefined; around = around.above)
      suites.unshift(around);
    const cleanUps: (() => unknown)[] = [];
    const host = (this.#host ?? test) as unknown as { onFinished?: Hook[] | undefined; promises?: unknown[] };
    host.onFinished = undefined;
    host.promises = [];
    const outcome = await this.#timed(test, limitMs, async () => {
      this.onBeforeTryTask(test, { retry: 0, repeats: 0 });
      for (const { task, beforeEach } of suites)
        for (const before of beforeEach) {
          const cleanUp: unknown = await before(test.context, task);
          if (typeof cleanUp === 'function') cleanUps.push(cleanUp as () => unknown);
        }
      await TestRunner.getTestFn(test)();
      this.onAfterTryTask(test);
    });
    const ended = await this.#timed(test, limitOf(expectedMs, LEAST_HOOK_LIMIT_MS), async () => {
      for (const { task, afterEach } of suites.toReversed())
        for (const after of afterEach.toReversed()) await after(test.context, task);
      for (const cleanUp of cleanUps.toReversed()) await cleanUp();
      for (const finished of (host.onFinished ?? []).toReversed()) await finished(test.context, test);
    });
    return { ms: outcome.ms + ended.ms, failure: outcome.failure ?? ended.failure };
  }

  async #timed(task: RunnerTask, limitMs: number, run: () => unknown): Promise<Timed> {
    const began = performance.now();
    let timer: NodeJS.Timeout | undefined;
    try {
      await Promise.race([
        Promise.resolve().then(run),
        new Promise((_, reject) => {
          timer = realTimeout(() => reject(new Error(`${NO_END} ${Math.round(limitMs)} ms`)), limitMs);
        }),
      ]);
      await turn();
      if (switches.stray !== undefined && switches.active !== undefined)
        throw new Error('nothing caught an error', { cause: switches.stray });
      return { ms: performance.now() - began, failure: undefined };
    } catch (error) {
      // a test skips itself by an exception
      if ((error as { code?: unknown } | undefined)?.code === 'VITEST_PENDING')
        return { ms: performance.now() - began, failure: undefined };
      const reason = String(error instanceof Error ? error.message : error).slice(0, 200);
      const failure = { test: nameOf(task), id: task.type === 'test' ? task.id : undefined, reason };
      return { ms: performance.now() - began, failure };
    } finally {
      realClearTimeout(timer);
    }
  }
}

/** The original function, because tests may replace `setTimeout` with a simulated one. */
const realTimeout = setTimeout;
const realClearTimeout = clearTimeout;

function limitOf(expectedMs: number | undefined, leastMs: number): number {
  return expectedMs === undefined ? FIRST_LIMIT_MS : Math.max(leastMs, SLOWNESS * expectedMs);
}

type Hook = (context: unknown, suite: unknown) => unknown;

interface Timed {
  readonly ms: number;
  readonly failure: Failure | undefined;
}

interface Watch {
  before(): void;
  /** @returns true if the remaining tests need not run */
  after(task: RunnerTask, ms: number, failure: Failure | undefined): boolean;
}

/** A suite with its hooks as declared in the file. */
interface KeptSuite extends Readonly<
  Record<'beforeAll' | 'afterAll' | 'beforeEach' | 'afterEach', readonly Hook[]>
> {
  readonly task: RunnerTestSuite | RunnerTestFile;
  readonly above: KeptSuite | undefined;
  readonly tasks: readonly (Test | KeptSuite)[];
  /** All selected tests of the suite and its inner suites. */
  readonly tests: readonly Test[];
}

function keep(task: RunnerTestSuite | RunnerTestFile, above?: KeptSuite): KeptSuite {
  const hooks = TestRunner.getSuiteHooks(task);
  const tasks: (Test | KeptSuite)[] = [];
  const tests = testsOf(task).filter(({ mode }) => mode === 'run' || mode === 'queued');
  const kept: KeptSuite = {
    task,
    above,
    tasks,
    tests,
    beforeAll: [...(hooks.beforeAll as Hook[])],
    afterAll: [...(hooks.afterAll as Hook[])],
    beforeEach: [...(hooks.beforeEach as Hook[])],
    afterEach: [...(hooks.afterEach as Hook[])],
  };
  for (const each of task.tasks) {
    if (each.type === 'suite') tasks.push(keep(each, kept));
    else if (tests.includes(each)) tasks.push(each);
  }
  return kept;
}

function dropHooks(task: RunnerTestSuite | RunnerTestFile): void {
  const { beforeAll, afterAll, beforeEach, afterEach } = TestRunner.getSuiteHooks(task);
  for (const hooks of [beforeAll, afterAll, beforeEach, afterEach]) hooks.length = 0;
  for (const each of task.tasks) if (each.type === 'suite') dropHooks(each);
}

function testsOf(task: RunnerTask): readonly Test[] {
  return task.type === 'test' ? [task] : task.tasks.flatMap(testsOf);
}

function nameOf(task: RunnerTask): string {
  return 'fullTestName' in task ? task.fullTestName || task.name : task.name;
}

/** Returns the changes that other processes have detected with other tests. */
function noticedMeanwhile(job: Job): ReadonlySet<string> {
  const notes = readFileSync(job.notes, 'utf8').split('\n').slice(0, -1);
  return new Set(
    notes
      .filter((line) => line.startsWith('{"kind":"noticed"'))
      .map((line) => (JSON.parse(line) as { readonly key: string }).key),
  );
}

function note(job: Job, what: Note): void {
  appendFileSync(job.notes, `${JSON.stringify(what)}\n`);
}
