/**
 * The seventeen attacks that an independent review demonstrated, each with the rule and the tests that prevent it. The
 * second list contains lines that the review removed without causing any test to fail. A check consists of a line, its
 * replacement, and the test that must fail after the replacement (`run.ts`).
 */
import { readFileSync } from 'node:fs';

export interface Demonstration {
  readonly number: number;
  /** The demonstrated attack. */
  readonly hole: string;
  /** General rule that prevents this kind of attack. */
  readonly rule: string;
  readonly checks: readonly Check[];
  /**
   * More tests that prevent the attack, as file and part of the test's name. These tests fail only if several lines
   * change, or need real peers.
   */
  readonly also?: readonly (readonly [file: string, test: string])[];
}

export interface Check {
  readonly file: string;
  readonly find: string;
  readonly replace: string;
  readonly testFile: string;
  /** Part of a test's name; ` > ` matches any text. If empty, any test of the file may fail. */
  readonly test: string;
}

/** A line that no test covered, its purpose, and the test that covers it now. */
export interface NoticedLine extends Check {
  readonly does: string;
}

export const { demonstrations: DEMONSTRATIONS, noticedLines: NOTICED_LINES } = JSON.parse(
  readFileSync(new URL('demonstrations.json', import.meta.url), 'utf8'),
) as { readonly demonstrations: readonly Demonstration[]; readonly noticedLines: readonly NoticedLine[] };
