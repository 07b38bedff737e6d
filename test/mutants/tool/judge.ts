/** Runs the tests that reach each change. */
import { createHash } from 'node:crypto';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { createVitest } from 'vitest/node';
import { LEFT_OUT, filesBelow, createImportGraph } from './covering-tests.ts';
import {
  JOBS_VARIABLE,
  jobPath,
  STOP_FILE,
  SWITCHED_FOLDER,
  type Coverage,
  type Job,
  type Note,
} from './jobs.ts';
import type { KnownMutant } from './known.ts';
import { changedFiles } from './judging.ts';
import { mutantsOf, type Mutant } from './operators.ts';
import { keyOf, withSwitches } from './schemata.ts';
import { shown, Trial, type Outcome } from './trial.ts';
import { Verdicts, type State } from './verdicts.ts';

/**
 * Maximum time that a process may spend on one change. After this time, the tool assumes that the change has caused an
 * endless loop.
 */
const HANGING_MS = 150_000;
const WATCH_MS = 2_000;
/** Expected duration of one test in `judgeKnown`. */
const KNOWN_TEST_MS = 1_000;
const CACHE = 'node_modules/.cache/tailcast/mutants';
const RECORDED_AT_ONCE = 30;
/** Number of test files that each change runs with in a round: first one file, then three more, then all others. */
const WIDTHS = [1, 3, 1000];

export interface Judge {
  /** Judges changes. A change whose judgement was interrupted is `open` or missing in the result. */
  judge(mutants: readonly Mutant[]): Promise<ReadonlyMap<Mutant, Outcome>>;
  /** Returns the results of earlier runs without running tests. */
  kept(mutants: readonly Mutant[]): ReadonlyMap<Mutant, Outcome>;
  /** Runs one test for each change. Unjudged changes are missing in the result. */
  judgeKnown(known: readonly KnownMutant[]): Promise<ReadonlyMap<Mutant, Outcome>>;
  close(): Promise<void>;
}

export async function createJudge(options: {
  readonly root: string;
  readonly signal: AbortSignal;
  readonly say: (line: string) => void;
  /** True if this test file may run. */
  readonly isAsked: (file: string) => boolean;
  /**
   * True if the recorded coverage of a test is reused while the test file is unchanged, even if other files have
   * changed.
   */
  readonly keepCoverage: boolean;
  /** Number of test files that run at the same time. */
  readonly workers: number;
}): Promise<Judge> {
  const { root, signal, say, isAsked } = options;
  const temporary = tmpdir();
  const scratch = mkdtempSync(join(temporary, 'tailcast-mutants-'));
  /** Folder for the temporary files of the tests, because stopped tests do not remove their files. */
  const left = join(scratch, 'tmp');
  mkdirSync(left);
  process.env['TMPDIR'] = left;
  process.env[JOBS_VARIABLE] = scratch;
  writeSwitched(root, join(scratch, SWITCHED_FOLDER));
  process.env['NODE_OPTIONS'] = `--import ${pathToFileURL(join(import.meta.dirname, 'child-hook.ts')).href}`;
  const notes = join(scratch, 'notes.jsonl');
  writeFileSync(notes, '');
  const vitest = await createVitest('test', {
    config: join(import.meta.dirname, 'vitest.config.ts'),
    root,
    watch: false,
    maxWorkers: options.workers,
    reporters: [{}],
  });

  /** Runs the test file of each job, and returns the notes that the tests wrote. */
  async function run(jobs: readonly Job[]): Promise<readonly Note[]> {
    if (signal.aborted || jobs.length === 0) return [];
    const before = readNotes(notes).length;
    for (const job of jobs) writeFileSync(jobPath(join(root, job.file)), JSON.stringify(job));
    const project = vitest.getRootProject();
    const cancel = (): void => {
      writeFileSync(join(scratch, STOP_FILE), '');
      void vitest.cancelCurrentRun('keyboard-input');
    };
    const watch = setInterval(() => endHanging(notes, before), WATCH_MS);
    signal.addEventListener('abort', cancel, { once: true });
    try {
      await vitest.runTestSpecifications(
        jobs.map(({ file }) => project.createSpecification(join(root, file))),
        false,
      );
    } finally {
      clearInterval(watch);
      signal.removeEventListener('abort', cancel);
      for (const name of readdirSync(left))
        rmSync(join(left, name), { recursive: true, force: true, maxRetries: 3 });
    }
    return readNotes(notes).slice(before);
  }

  const cache = join(root, CACHE);
  mkdirSync(cache, { recursive: true });
  const fingerprint = createFingerprint(root);
  const pathOf = (file: string): string => join(cache, `${file.replaceAll('/', '+')}.json`);
  const keptCoverage = (file: string): KeptCoverage | undefined =>
    existsSync(pathOf(file)) ? (JSON.parse(readFileSync(pathOf(file), 'utf8')) as KeptCoverage) : undefined;
  const isAsItWas = (file: string): boolean => {
    const { whole, own } = fingerprint(file);
    const found = keptCoverage(file);
    return found !== undefined && (found.whole === whole || (options.keepCoverage && found.own === own));
  };
  const testFiles = filesBelow(root, 'test').filter(
    (file) => file.endsWith('.test.ts') && !LEFT_OUT.test(file),
  );
  const verdictsAbout = (mutants: readonly Mutant[]): Verdicts =>
    new Verdicts(join(cache, 'verdicts.jsonl'), {
      stateOf: createStates(root, mutants),
      ownIsEnough: options.keepCoverage,
    });

  async function coverages(files: readonly string[]): Promise<readonly Coverage[]> {
    // coverage is not reliable if a test of the file fails without a change
    const isGood = (file: string): boolean =>
      isAsItWas(file) && keptCoverage(file)?.coverage.broken.length === 0;
    const missing = files.filter((file) => !isGood(file));
    if (missing.length > 0)
      say(`${missing.length} test files are run without a change, to see what they come past`);
    // results are stored after each step, so that an interrupted run keeps them
    for (let from = 0; from < missing.length; from += RECORDED_AT_ONCE) {
      const some = missing.slice(from, from + RECORDED_AT_ONCE);
      const found = await run(
        some.map((file) => ({ kind: 'record', file, notes, mutants: [], times: {} }) satisfies Job),
      );
      for (const note of found) {
        if (note.kind !== 'coverage') continue;
        const { coverage } = note;
        for (const broken of coverage.broken) say(`FAILS WITHOUT A CHANGE: ${coverage.file}: ${broken}`);
        const keeping: KeptCoverage = { ...fingerprint(coverage.file), coverage };
        writeFileSync(pathOf(coverage.file), JSON.stringify(keeping));
      }
    }
    return files.flatMap((file) => keptCoverage(file)?.coverage ?? []);
  }

  return {
    async judge(mutants) {
      const covering = await coverages(testFiles.filter(isAsked));
      if (signal.aborted) return new Map();
      const verdicts = verdictsAbout(mutants);
      const trial = new Trial({ mutants, covering, notes, run, say, signal, verdicts });
      say(`${mutants.length - trial.open.length} were noticed before, by tests that are the same`);
      for (const width of WIDTHS) {
        if (signal.aborted) break;
        say(`${trial.open.length} of ${mutants.length} are left; each is shown to ${width} more test files`);
        if (trial.open.length < mutants.length)
          for (const mutant of trial.open) say(`not noticed so far: ${shown(mutant)}`);
        await trial.show(width);
      }
      return trial.outcomes();
    },
    kept(mutants) {
      const known = testFiles.filter(isAsItWas);
      const trial = new Trial({
        mutants,
        covering: known.flatMap((file) => keptCoverage(file)?.coverage ?? []),
        notes,
        run,
        say,
        signal: new AbortController().signal,
        verdicts: verdictsAbout(mutants),
      });
      const unknown = testFiles.length - known.length;
      if (unknown > 0) say(`what ${unknown} test files come past is not known`);
      return new Map(
        [...trial.outcomes()].map(([mutant, outcome]) => [
          mutant,
          unknown === 0 || outcome.kind === 'noticed' ? outcome : { ...outcome, kind: 'open' },
        ]),
      );
    },
    async judgeKnown(known) {
      const outcomes = new Map<Mutant, Outcome>();
      const byKey = new Map(known.map(({ mutant }) => [keyOf(mutant), mutant]));
      const jobs = [...Map.groupBy(known, ({ by }) => by.file)].map(([file, some]): Job => ({
        kind: 'judge',
        file,
        notes,
        mutants: some.map(({ mutant, by }) => ({ key: keyOf(mutant), tests: [by.test] })),
        times: {},
        usualMs: KNOWN_TEST_MS,
      }));
      for (const note of await run(jobs)) {
        const mutant = note.kind === 'coverage' ? undefined : byKey.get(note.key);
        if (mutant === undefined || (note.kind !== 'noticed' && note.kind !== 'survived')) continue;
        outcomes.set(mutant, { kind: note.kind, text: `${note.kind} ${note.file}` });
      }
      return outcomes;
    },
    async close() {
      await vitest.close();
      process.env['TMPDIR'] = temporary;
      rmSync(scratch, { recursive: true, force: true });
    },
  };
}

/** Writes source files with all changes, because processes that tests start load the files themselves. */
function writeSwitched(root: string, folder: string): void {
  mkdirSync(folder);
  for (const file of changedFiles(filesBelow(root, 'src'))) {
    const code = readFileSync(join(root, file), 'utf8');
    writeFileSync(join(folder, file.replaceAll('/', '+')), withSwitches(code, mutantsOf(file, code)));
  }
}

interface KeptCoverage extends State {
  readonly coverage: Coverage;
}

function createFingerprint(root: string): (file: string) => State {
  const importsOf = createImportGraph(root);
  const tool = ['schemata', 'operators'].map((name) => `test/mutants/tool/${name}.ts`);
  return (file) => ({
    own: digest(root, [file]),
    whole: digest(root, [...tool, ...importsOf(file)]),
  });
}

/**
 * Creates a function that returns the hashes of the files on which the result of a test file for a change depends. The
 * hashes include the changed file, because a test file may start the changed file as a program without importing it.
 */
function createStates(root: string, mutants: readonly Mutant[]): (key: string, file: string) => State {
  const fingerprints = new Map<string, State>();
  const fingerprint = createFingerprint(root);
  const sources = new Map(mutants.map((mutant) => [keyOf(mutant), mutant.file]));
  const digests = new Map([...new Set(sources.values())].map((source) => [source, digest(root, [source])]));
  return (key, file) => {
    const found = fingerprints.get(file) ?? fingerprint(file);
    fingerprints.set(file, found);
    return { own: found.own, whole: `${found.whole} ${digests.get(sources.get(key) ?? '')}` };
  };
}

function digest(root: string, paths: readonly string[]): string {
  const hash = createHash('sha256');
  for (const path of paths)
    hash
      .update(`${path}\0`)
      .update(readFileSync(join(root, path)))
      .update('\0');
  return hash.digest('hex');
}

function readNotes(path: string): readonly Note[] {
  return readFileSync(path, 'utf8')
    .split('\n')
    .slice(0, -1)
    .map((line) => JSON.parse(line) as Note);
}

const seenSince = new Map<string, number>();

/** Kills processes that write no note for too long. The change that such a process tests counts as detected. */
function endHanging(notes: string, from: number): void {
  const last = new Map<string, Exclude<Note, { kind: 'coverage' }>>();
  for (const note of readNotes(notes).slice(from)) if (note.kind !== 'coverage') last.set(note.file, note);
  for (const note of last.values()) {
    if (note.kind !== 'begin') continue;
    const place = `${note.pid} ${note.key}`;
    const since = seenSince.get(place) ?? performance.now();
    seenSince.set(place, since);
    if (performance.now() - since < HANGING_MS) continue;
    seenSince.delete(place);
    try {
      process.kill(note.pid, 'SIGKILL');
    } catch {
      // the process has exited
    }
  }
}
