/** Results of test files for changes, stored between runs, so that an interrupted run continues. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';

export interface Said {
  /** Key of the change. */
  readonly key: string;
  /** The test file. */
  readonly file: string;
  readonly noticed: boolean;
  /** The test that detected the change; undefined if no test did, or if the process had to be killed. */
  readonly test?: string | undefined;
  /** True if the change was detected without a separate process, and not by a time limit. */
  readonly isQuick?: boolean;
}

/** Hashes of the files on which a result depends, at the time of the result. */
export interface State {
  /** Hash of the test file only. */
  readonly own: string;
  /** Hash of the changed file and of all imports of the test file. */
  readonly whole: string;
}

interface Kept extends Said, State {}

interface Options {
  readonly stateOf: (key: string, file: string) => State;
  /** True to trust results while the test file is unchanged, even if other files changed. */
  readonly ownIsEnough: boolean;
}

export class Verdicts {
  readonly #path: string;
  readonly #options: Options;
  /** Kept results by change, then by test file. */
  readonly #kept = new Map<string, Map<string, Kept>>();

  constructor(path: string, options: Options) {
    this.#path = path;
    this.#options = options;
    const text = existsSync(path) ? readFileSync(path, 'utf8') : '';
    for (const line of text.split('\n').slice(0, -1)) this.#put(JSON.parse(line) as Kept);
  }

  /**
   * @returns undefined if the test file has not run with this change, or if a file on which the result depends has
   * changed
   */
  of(key: string, file: string): Said | undefined {
    const kept = this.#kept.get(key)?.get(file);
    if (kept === undefined) return undefined;
    const { stateOf, ownIsEnough } = this.#options;
    const { own, whole } = stateOf(key, file);
    return kept.whole === whole || (ownIsEnough && kept.own === own) ? kept : undefined;
  }

  /** Returns the test file that last detected the change, even if files have changed since then. */
  noticedLast(key: string): string | undefined {
    return [...(this.#kept.get(key)?.values() ?? [])].findLast(({ noticed }) => noticed)?.file;
  }

  keep(said: readonly Said[]): void {
    for (const each of said) this.#put({ ...each, ...this.#options.stateOf(each.key, each.file) });
    const all = [...this.#kept.values()].flatMap((files) => [...files.values()]);
    writeFileSync(this.#path, all.map((each) => `${JSON.stringify(each)}\n`).join(''));
  }

  #put(kept: Kept): void {
    const files = this.#kept.get(kept.key) ?? new Map<string, Kept>();
    files.delete(kept.file);
    files.set(kept.file, kept);
    this.#kept.set(kept.key, files);
  }
}
