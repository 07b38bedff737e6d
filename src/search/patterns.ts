/**
 * Regular expressions of rules. `re2js` matches all patterns in linear time, in one pass over the text. A CPU budget
 * limits each set of patterns. A set that exceeds its budget is divided until the slow pattern is the only one in its
 * set. Only this pattern is switched off.
 */
import { RE2JS, RE2Set } from 're2js';

/** A pattern of a rule. Plain data. */
export interface RulePattern {
  /**
   * - `output`: rows of the screen and written lines
   * - `command`: the command of the session, and commands in its shell
   */
  readonly in: 'output' | 'command';
  /** Regular expression in the syntax of RE2. */
  readonly source: string;
}

/** A line of a session, for comparison with patterns. */
export interface PatternLine {
  /** Second of the session. */
  readonly at: number;
  readonly text: string;
}

const MAX_SOURCE = 1000;
/**
 * Maximum size of a compiled pattern, in instructions. Each character of text costs at most one step per instruction.
 */
const MAX_PROGRAM = 2000;
/** Maximum memory for the states of all patterns, in bytes as counted by the library. */
const MAX_STATE_BYTES = 4 * 1024 ** 2;
const MIN_STATE_BYTES = 64 * 1024;

/** CPU budget of a set of patterns. For comparison: 200 patterns take 10 to 20 ns per character of a log. */
const PATTERN_LIMITS = {
  /** Maximum unused CPU time that a set can accumulate, in milliseconds. */
  reserveMs: 200,
  nsPerCharacter: 100,
} as const;

/** Returns the reason why a pattern cannot be used, or undefined. */
export function patternProblem(source: string): string | undefined {
  if (source.length > MAX_SOURCE) return `has more than ${MAX_SOURCE} characters`;
  try {
    const compiled = RE2JS.compile(source);
    if (compiled.programSize() > MAX_PROGRAM) return 'is too costly; use smaller repetitions';
    return compiled.test('') ? 'matches an empty line, so it would match every session' : undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

/** Returns the position of the first match in a text, or undefined. */
export function findPattern(source: string, text: string): readonly [number, number] | undefined {
  const matcher = RE2JS.compile(source).matcher(text);
  return matcher.find() ? [matcher.start(), matcher.end()] : undefined;
}

/** A pattern with the id of its rule. */
export interface NamedPattern {
  readonly id: string;
  readonly source: string;
}

interface Group {
  readonly patterns: readonly NamedPattern[];
  readonly set: RE2Set;
  creditMs: number;
}

/** All patterns for output, or all for commands. The sessions of a process share the set. */
export class PatternSet {
  readonly #cpuMs: () => number;
  readonly #stateBytes: number;
  #groups: readonly Group[];
  #slow: string[] = [];

  /** @param cpuMs CPU time of this thread, in milliseconds */
  constructor(patterns: readonly NamedPattern[], cpuMs: () => number) {
    this.#cpuMs = cpuMs;
    this.#stateBytes = MAX_STATE_BYTES / Math.max(1, patterns.length);
    this.#groups = patterns.length === 0 ? [] : [this.#groupOf(patterns)];
  }

  /** True if no pattern is in use. */
  get isEmpty(): boolean {
    return this.#groups.length === 0;
  }

  /** Rule ids of all patterns that were switched off because they exceeded their budget. */
  get slow(): readonly string[] {
    return this.#slow;
  }

  /** Returns the first matching line of each matching pattern, keyed by rule id. */
  match(lines: readonly PatternLine[]): ReadonlyMap<string, PatternLine> {
    const found = new Map<string, PatternLine>();
    const characters = lines.reduce((sum, { text }) => sum + text.length, 0);
    const earnedMs = (characters * PATTERN_LIMITS.nsPerCharacter) / 1e6;
    const groups: Group[] = [];
    for (const group of this.#groups) {
      const startMs = this.#cpuMs();
      for (const line of lines) {
        for (const index of group.set.match(line.text)) {
          const id = group.patterns[index]?.id ?? '';
          if (!found.has(id)) found.set(id, line);
        }
      }
      const usedMs = this.#cpuMs() - startMs;
      group.creditMs = Math.min(PATTERN_LIMITS.reserveMs, group.creditMs + earnedMs) - usedMs;
      groups.push(...(group.creditMs < 0 ? this.#divided(group) : [group]));
    }
    this.#groups = groups;
    return found;
  }

  /** Divides a group that exceeded its budget into two. If the group has only one pattern, switches the pattern off. */
  #divided({ patterns }: Group): readonly Group[] {
    if (patterns.length === 1) {
      this.#slow = [...this.#slow, ...patterns.map(({ id }) => id)];
      return [];
    }
    const middle = Math.ceil(patterns.length / 2);
    return [this.#groupOf(patterns.slice(0, middle)), this.#groupOf(patterns.slice(middle))];
  }

  #groupOf(patterns: readonly NamedPattern[]): Group {
    const bytes = Math.max(MIN_STATE_BYTES, Math.floor(this.#stateBytes * patterns.length));
    const set = new RE2Set(RE2Set.UNANCHORED, 0, bytes);
    for (const { source } of patterns) set.add(source);
    set.compile();
    return { patterns, set, creditMs: PATTERN_LIMITS.reserveMs };
  }
}
