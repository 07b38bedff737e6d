/** What the command and the workers tell each other, by files. */
import { createHash } from 'node:crypto';
import { join } from 'node:path';

/** Where jobs lie, a file for each test file. Not `TAILCAST_…`: roles refuse what they do not know of those. */
export const JOBS_VARIABLE = 'MUTANTS_JOBS';

/** The change that processes switch on which tests start; unset while what they come past is recorded. */
export const ACTIVE_VARIABLE = 'MUTANTS_ACTIVE';
/** The file in which such processes write down what they come past, a line each. */
export const SEEN_VARIABLE = 'MUTANTS_SEEN';
/** In the folder of the jobs: files with all of their changes, for such processes. */
export const SWITCHED_FOLDER = 'switched';

/** In the folder of the jobs, once time is up: no further change is begun. */
export const STOP_FILE = 'stop';

/** Begins the reason when a test went on for longer than it may. */
export const NO_END = 'no end within';

export interface Job {
  readonly kind: 'record' | 'judge';
  /** The test file. */
  readonly file: string;
  /** Notes go there, a line each. */
  readonly notes: string;
  /** Switched on before anything is loaded: for what runs then and never again. */
  readonly atLoad?: string;
  /** Ids of the tests that a change is shown to. */
  readonly mutants: readonly { readonly key: string; readonly tests: readonly string[] }[];
  /** Milliseconds by id of a test, without a change. */
  readonly times: Readonly<Record<string, number>>;
  /** Of tests of which that is not known. */
  readonly usualMs?: number;
}

export interface TestCoverage {
  readonly id: string;
  readonly name: string;
  readonly ms: number;
  /** Hooks of a suite: what they come past concerns all tests of it. */
  readonly isSuite: boolean;
  /** Places in `keys`. */
  readonly seen: readonly number[];
}

export interface Coverage {
  readonly file: string;
  readonly keys: readonly string[];
  /** Come past while files were loaded. */
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
      /** The change was there when files were loaded. */
      readonly atLoad?: true;
    })
  /** The test fails without a change as well: something was left behind. */
  | (Judged & { readonly kind: 'dirty'; readonly test: string; readonly reason: string })
  /** It failed once. */
  | (Judged & { readonly kind: 'flaky'; readonly test: string; readonly reason: string });

export function jobPath(testFile: string): string {
  const folder = process.env[JOBS_VARIABLE];
  if (folder === undefined) throw new Error(`${JOBS_VARIABLE} is not set`);
  return join(folder, `${createHash('sha256').update(testFile).digest('hex').slice(0, 20)}.json`);
}
