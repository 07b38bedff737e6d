/** Judges many changes. Each change runs with one test file after another until a test detects the change. */
import { basename, dirname } from 'node:path';
import { NO_END, type Coverage, type Job, type Judged, type Note } from './jobs.ts';
import { acceptedReason } from './judging.ts';
import type { Mutant } from './operators.ts';
import { keyOf } from './schemata.ts';
import type { Said, Verdicts } from './verdicts.ts';

/** Maximum number of tests of one file that run with a change. The fastest tests are selected. */
const MAX_TESTS = 60;
/**
 * Weight of `distance` in the order of test files. The faster and the nearer to the change, the earlier a file
 * runs: one step of distance counts as much as a factor of 2^3 = 8 in time. Tests that start processes run late.
 */
const NEARER = 3;
/**
 * Penalty in the order of test files for a trial in a separate process, which loads all files again: such a trial ranks
 * as if it took 2^10 times as long.
 */
const OWN_PROCESS = 10;

export interface Outcome {
  /** `open`: some tests that reach the change have not run. */
  readonly kind: 'noticed' | 'survived' | 'broken' | 'open';
  readonly text: string;
  /**
   * File and name of the test that detected the change; undefined if the change was detected in a separate process or
   * by a time limit.
   */
  readonly by?: { readonly file: string; readonly test: string };
}

export interface TrialOptions {
  readonly mutants: readonly Mutant[];
  /** Changes that each test reaches. */
  readonly covering: readonly Coverage[];
  /** File to which workers append notes. */
  readonly notes: string;
  /** Runs the test file of each job, and returns the results. */
  readonly run: (jobs: readonly Job[]) => Promise<readonly Note[]>;
  readonly say: (line: string) => void;
  readonly signal: AbortSignal;
  /** Earlier results. The test file that last detected a change runs first. */
  readonly verdicts: Verdicts;
}

/** State of one change: its result so far, and the tests that still have to run. */
interface Case {
  readonly mutant: Mutant;
  /** Test files without a result for this change. */
  readonly queue: Show[];
  outcome: Outcome | undefined;
  asked: number;
  unjudged: number;
}

export class Trial {
  readonly #options: TrialOptions;
  readonly #cases: ReadonlyMap<string, Case>;
  readonly #times: ReadonlyMap<string, Readonly<Record<string, number>>>;
  /** Test files that failed without an active change, each with the change that was active before. */
  readonly #soiled = new Set<string>();

  constructor(options: TrialOptions) {
    this.#options = options;
    this.#cases = casesOf(options);
    this.#times = new Map(
      options.covering.map(({ file, tests }) => [
        file,
        Object.fromEntries(tests.map(({ id, ms }) => [id, ms])),
      ]),
    );
  }

  /** Changes without a result. */
  get open(): readonly Mutant[] {
    return [...this.#cases.values()]
      .filter(({ outcome }) => outcome === undefined)
      .map(({ mutant }) => mutant);
  }

  /**
   * Runs each open change with the next `width` test files of its queue. Each test file is loaded once for all changes
   * that need it.
   */
  async show(width: number): Promise<void> {
    const perFile = new Map<string, { key: string; tests: readonly string[] }[]>();
    const loaded: Job[] = [];
    for (const [key, each] of this.#cases) {
      if (each.outcome !== undefined) continue;
      for (const { file, tests, atLoad } of each.queue.splice(0, width)) {
        each.asked += 1;
        if (tests.length > 0) perFile.set(file, [...(perFile.get(file) ?? []), { key, tests }]);
        if (atLoad.length > 0) loaded.push({ ...this.#job(file, [{ key, tests: atLoad }]), atLoad: key });
      }
    }
    const jobs = [...perFile].map(([file, mutants]) => this.#job(file, mutants));
    await this.#showRunning(jobs.toSorted((a, b) => leastMs(a) - leastMs(b)));
    await this.#showLoading(loaded);
  }

  outcomes(): ReadonlyMap<Mutant, Outcome> {
    const found = new Map<Mutant, Outcome>();
    for (const { mutant, outcome, queue, asked, unjudged } of this.#cases.values()) {
      if (outcome !== undefined) found.set(mutant, outcome);
      else if (this.#options.signal.aborted) found.set(mutant, { kind: 'open', text: 'NOT NOTICED SO FAR' });
      else if (queue.length > 0)
        found.set(mutant, {
          kind: 'open',
          text: `NOT NOTICED BY ${asked} of ${asked + queue.length} test files, and the others were not asked`,
        });
      else if (asked > 0 && unjudged >= asked)
        found.set(mutant, { kind: 'broken', text: 'CANNOT BE JUDGED' });
      else
        found.set(mutant, {
          kind: 'survived',
          text: asked === 0 ? 'SURVIVED, as no test comes past it' : `SURVIVED ${asked} test files`,
        });
    }
    return found;
  }

  #job(file: string, mutants: Job['mutants']): Job {
    return { kind: 'judge', file, notes: this.#options.notes, mutants, times: this.#times.get(file) ?? {} };
  }

  /** Runs jobs. If a change leaves state behind, a new process continues with the next change. */
  async #showRunning(first: readonly Job[]): Promise<void> {
    for (let jobs = first; jobs.length > 0 && !this.#options.signal.aborted;) {
      const found = await this.#options.run(jobs);
      this.#settle(found);
      jobs = jobs.flatMap((job) => this.#rest(job, found.filter(isJudged)));
    }
  }

  /**
   * Runs jobs whose change is active while files are loaded. Each change needs its own process. Only one process per
   * test file runs at a time.
   */
  async #showLoading(jobs: readonly Job[]): Promise<void> {
    const isOpen = ({ atLoad }: Job): boolean => this.#cases.get(atLoad ?? '')?.outcome === undefined;
    for (let left = jobs.filter(isOpen); left.length > 0 && !this.#options.signal.aborted;) {
      const next = [...new Map(left.toReversed().map((job) => [job.file, job])).values()];
      this.#settle(await this.#options.run(next));
      left = left.filter((job) => !next.includes(job) && isOpen(job));
    }
  }

  #settle(found: readonly Note[]): void {
    const begun = new Map<string, Judged>();
    for (const note of found.filter(isJudged)) {
      const place = `${note.file} ${note.key}`;
      if (note.kind === 'begin') begun.set(place, note);
      else begun.delete(place);
      if (note.kind === 'noticed') this.#noticed(note, note.test, isQuick(note));
      if (note.kind === 'flaky') this.#options.say(`flaky: ${note.file}: ${note.test}: ${note.reason}`);
    }
    // a process was killed during the job
    const ended = this.#options.signal.aborted ? [] : [...begun.values()];
    for (const note of ended) this.#noticed(note, undefined, false);
    this.#options.verdicts.keep([
      ...found.filter(isJudged).flatMap(saidBy),
      ...ended.map(({ key, file }) => ({ key, file, noticed: true })),
    ]);
  }

  #noticed({ key, file }: Judged, test: string | undefined, quick: boolean): void {
    const found = this.#cases.get(key);
    if (found === undefined || found.outcome !== undefined) return;
    found.outcome = noticedBy(file, test, quick);
    this.#options.say(`${this.open.length} left; ${shown(found.mutant)} ${found.outcome.text}`);
  }

  /** Returns the unfinished part of a job whose process exited early. */
  #rest(job: Job, found: readonly JudgedNote[]): readonly Job[] {
    const own = found.filter(({ file }) => file === job.file);
    if (own.length === 0) return [];
    const done = new Set(own.filter(({ kind }) => kind !== 'dirty').map(({ key }) => key));
    const soiled = own.find((note) => note.kind === 'dirty');
    // the change is retried once in a new process; after that, this test file cannot judge the change
    if (soiled !== undefined && (job.mutants[0]?.key === soiled.key || this.#isKnown(soiled))) {
      this.#options.say(`cannot be judged by ${job.file}: ${soiled.test}: ${soiled.reason}`);
      const unjudged = this.#cases.get(soiled.key);
      if (unjudged !== undefined) unjudged.unjudged += 1;
    } else if (soiled !== undefined) done.delete(soiled.key);
    const left = job.mutants.filter(
      ({ key }) => !done.has(key) && this.#cases.get(key)?.outcome === undefined,
    );
    if (left.length === 0) return [];
    return [
      { ...job, mutants: left.toSorted((a, b) => rankOf(a.key, soiled?.key) - rankOf(b.key, soiled?.key)) },
    ];
  }

  /** @returns true if this change has left state behind in an earlier process, too */
  #isKnown({ file, key }: Judged): boolean {
    const place = `${file} ${key}`;
    const known = this.#soiled.has(place);
    this.#soiled.add(place);
    return known;
  }
}

/**
 * Returns the shortest possible duration of a job in milliseconds, which assumes that the first test of each change
 * detects the change. Fast jobs start first, because the time for all jobs is limited.
 */
function leastMs({ mutants, times }: Job): number {
  return mutants.reduce((sum, { tests: [first] }) => sum + (times[first ?? ''] ?? 0), 0);
}

type JudgedNote = Exclude<Note, { readonly kind: 'coverage' }>;

function isJudged(note: Note): note is JudgedNote {
  return note.kind !== 'coverage';
}

type Noticed = Extract<Note, { readonly kind: 'noticed' }>;

function isQuick({ atLoad, reason }: Noticed): boolean {
  return atLoad !== true && !reason.startsWith(NO_END);
}

function saidBy(note: JudgedNote): readonly Said[] {
  const { key, file } = note;
  if (note.kind === 'survived') return [{ key, file, noticed: false }];
  return note.kind === 'noticed'
    ? [{ key, file, noticed: true, test: note.test, isQuick: isQuick(note) }]
    : [];
}

function noticedBy(file: string, test: string | undefined, quick: boolean): Outcome {
  return {
    kind: 'noticed',
    text: `noticed by ${file}: ${test ?? 'it does not end'}`,
    ...(test === undefined || !quick ? {} : { by: { file, test } }),
  };
}

function rankOf(key: string, first: string | undefined): number {
  return key === first ? 0 : 1;
}

/** Returns 0 for the test of the source file, 1 for tests of its folder, and up to 4 for other tests. */
function distance(file: string, test: string): number {
  const [folder, mirrored] = [dirname(file).replace(/^src/, 'test'), dirname(test)];
  if (mirrored === folder && basename(test).startsWith(`${basename(file, '.ts')}.`)) return 0;
  if (mirrored === folder) return 1;
  if (mirrored.split('/')[1] === folder.split('/')[1]) return 2;
  return /^test\/(?:attack|cli|e2e)\//.test(test) ? 4 : 3;
}

function casesOf({ mutants, covering, verdicts }: TrialOptions): ReadonlyMap<string, Case> {
  const byKey = new Map(mutants.map((mutant) => [keyOf(mutant), mutant]));
  const wanted = new Set(byKey.keys());
  const shows = new Map<string, Show[]>();
  for (const coverage of covering)
    for (const [key, show] of showsOf(coverage, wanted)) shows.set(key, [...(shows.get(key) ?? []), show]);
  const cases = new Map<string, Case>();
  for (const [key, mutant] of byKey) {
    const last = verdicts.noticedLast(key);
    const rank = ({ file, tests, ms }: Show): number =>
      file === last
        ? -1
        : Math.log2(Math.max(ms, 1)) +
          NEARER * distance(mutant.file, file) +
          (tests.length === 0 ? OWN_PROCESS : 0);
    const all = (shows.get(key) ?? []).toSorted((a, b) => rank(a) - rank(b));
    const unasked = all.filter(({ file }) => verdicts.of(key, file) === undefined);
    // an accepted change runs with only one test file, which may detect it after all; more test files would take hours
    const queue =
      acceptedReason(mutant) === undefined ? unasked : unasked.slice(0, all.length > unasked.length ? 0 : 1);
    const noticed = all.map(({ file }) => verdicts.of(key, file)).find((said) => said?.noticed === true);
    const outcome =
      noticed === undefined ? undefined : noticedBy(noticed.file, noticed.test, noticed.isQuick === true);
    cases.set(key, { mutant, queue, outcome, asked: all.length - unasked.length, unjudged: 0 });
  }
  return cases;
}

/** A test file that may detect a change, with the tests to run. */
interface Show {
  readonly file: string;
  /** Ids of the tests that reach the change. */
  readonly tests: readonly string[];
  /** Tests for a change that runs only while files are loaded. */
  readonly atLoad: readonly string[];
  /** Duration of the fastest test, in milliseconds. */
  readonly ms: number;
}

function showsOf(
  { keys, load, tests, file, broken }: Coverage,
  wanted: ReadonlySet<string>,
): Map<string, Show> {
  const byKey = new Map<string, Set<string>>();
  const names = new Map(tests.map(({ id, name }) => [id, name]));
  const good = tests.filter(
    ({ id, isSuite }) => !isSuite && !broken.some((text) => text.startsWith(`${names.get(id) ?? ''}:`)),
  );
  const add = (place: number, ids: readonly string[]): void => {
    const key = keys[place];
    if (key === undefined || !wanted.has(key)) return;
    const known = byKey.get(key) ?? new Set();
    for (const id of ids) known.add(id);
    byKey.set(key, known);
  };
  for (const { id, isSuite, seen } of tests) {
    // ids of tests start with the id of their suite
    const ids = isSuite
      ? good.filter((test) => test.id.startsWith(`${id}_`)).map((test) => test.id)
      : good.filter((test) => test.id === id).map((test) => test.id);
    for (const place of seen) add(place, ids);
  }
  const times = new Map(tests.map(({ id, ms }) => [id, ms]));
  const fastest = (ids: Iterable<string>): readonly string[] =>
    [...ids].toSorted((a, b) => (times.get(a) ?? 0) - (times.get(b) ?? 0)).slice(0, MAX_TESTS);
  const found = new Map<string, Show>();
  for (const [key, ids] of byKey) {
    const some = fastest(ids);
    if (some.length > 0) found.set(key, { file, tests: some, atLoad: [], ms: times.get(some[0]!) ?? 0 });
  }
  for (const place of load) {
    const key = keys[place];
    if (key === undefined || !wanted.has(key) || found.has(key)) continue;
    const some = fastest(good.map(({ id }) => id));
    found.set(key, { file, tests: [], atLoad: some, ms: 0 });
  }
  return found;
}

/** Returns a line for the report. */
export function shown({ file, line, operator, original, replacement }: Mutant): string {
  const short = (text: string): string => {
    const flat = text.replaceAll(/\s+/g, ' ');
    return flat.length > 90 ? `${flat.slice(0, 87)}…` : flat;
  };
  return `${file}:${line} ${operator}: ${short(original)} → ${short(replacement)}`;
}
