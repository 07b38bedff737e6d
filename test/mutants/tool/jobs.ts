/** Files and variables through which the command and its workers exchange data. */
import { createHash } from 'node:crypto';
import { join } from 'node:path';

/**
 * Folder of the jobs, with one file for each test file. The name does not start with `TAILCAST_`, because roles
 * reject unknown variables with that prefix.
 */
export const JOBS_VARIABLE = 'MUTANTS_JOBS';

/** The active change of processes that tests start; unset while the tool records the changes whose code is executed. */
export const ACTIVE_VARIABLE = 'MUTANTS_ACTIVE';
/** File in which processes that tests start record each change whose code they executed, one per line. */
export const SEEN_VARIABLE = 'MUTANTS_SEEN';
/**
 * Subfolder of the folder of the jobs, with source files that contain all changes. Processes that tests start load the
 * source files from there.
 */
export const SWITCHED_FOLDER = 'switched';

/** Marker file in the folder of the jobs, created when the time is over. Workers then start no further change. */
export const STOP_FILE = 'stop';

/** Prefix of the reason if a test exceeded its time limit. */
export const NO_END = 'no end within';

export interface Job {
  readonly kind: 'record' | 'judge';
  /** The test file. */
  readonly file: string;
  /** File for notes, one per line. */
  readonly notes: string;
  /** Change that is enabled before any file is loaded, because its code runs only during loading. */
  readonly atLoad?: string;
  /** Ids of the tests that run with a change. */
  readonly mutants: readonly { readonly key: string; readonly tests: readonly string[] }[];
  /** Duration of each test without a change, in milliseconds, by id. */
  readonly times: Readonly<Record<string, number>>;
  /** Duration of tests without an entry in `times`, in milliseconds. */
  readonly usualMs?: number;
}

export interface TestCoverage {
  readonly id: string;
  readonly name: string;
  readonly ms: number;
  /**
   * True if this entry is for the hooks of a suite. All tests of the suite may detect changes in code that its hooks
   * run.
   */
  readonly isSuite: boolean;
  /** Indexes in `keys` of the changes whose code the test executes. */
  readonly seen: readonly number[];
}

export interface Coverage {
  readonly file: string;
  readonly keys: readonly string[];
  /** Indexes in `keys` of the changes whose code runs while a file is loaded. */
  readonly load: readonly number[];
  readonly tests: readonly TestCoverage[];
  /** Tests that fail without a change. */
  readonly broken: readonly string[];
}

export interface Judged {
  readonly key: string;
  readonly file: string;
}

export type Note =
  | { readonly kind: 'coverage'; readonly coverage: Coverage }
  | (Judged & { readonly kind: 'begin'; readonly pid: number })
  | (Judged & { readonly kind: 'survived' })
  | (Judged & {
      readonly kind: 'noticed';
      readonly test: string;
      readonly reason: string;
      /** True if the change was active while files were loaded. */
      readonly atLoad?: true;
    })
  /** `dirty`: the test also fails without a change, because an earlier change left state behind. */
  | (Judged & { readonly kind: 'dirty'; readonly test: string; readonly reason: string })
  /** `flaky`: the test failed once, and then passed with the same change. */
  | (Judged & { readonly kind: 'flaky'; readonly test: string; readonly reason: string });

export function jobPath(testFile: string): string {
  const folder = process.env[JOBS_VARIABLE];
  if (folder === undefined) throw new Error(`${JOBS_VARIABLE} is not set`);
  return join(folder, `${createHash('sha256').update(testFile).digest('hex').slice(0, 20)}.json`);
}
