/**
 * Regular expressions of rules. `re2js` matches all patterns in linear time, in one pass over the text. Each session
 * has a CPU budget for each group of patterns. If a session exceeds the budget of a group, it uses the two halves of
 * the group separately from then on. If a session exceeds the budget of a single pattern, it no longer uses this
 * pattern. Other sessions still use the group or pattern, so the output of one user never switches off a rule for other
 * users.
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
  /** Time in seconds of the session. */
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

/**
 * CPU budget of a session for a group of patterns. With 200 patterns, one character of a log typically costs 10 to 20
 * ns.
 */
const PATTERN_LIMITS = {
  /** Maximum unused CPU time that a session can accumulate for a single pattern, in milliseconds. */
  reserveMs: 200,
  /**
   * Maximum unused CPU time for a group of several patterns, in milliseconds. This limit is smaller than the limit for
   * a single pattern, because a session that exceeds this limit still uses all patterns of the group, in two halves.
   */
  sharedReserveMs: 50,
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

/** A group of patterns that are compiled together. */
interface Group {
  readonly patterns: readonly NamedPattern[];
  readonly set: RE2Set;
  /** The two halves of the group, which are compiled on first use. */
  halves?: readonly Group[];
}

/**
 * A set of compiled patterns, which contains either all patterns for output or all patterns for commands. All sessions
 * of a process use the same sets.
 */
export class PatternSet {
  readonly #cpuMs: () => number;
  readonly #stateBytes: number;
  readonly #groups: readonly Group[];

  /** @param cpuMs CPU time of this thread, in milliseconds */
  constructor(patterns: readonly NamedPattern[], cpuMs: () => number) {
    this.#cpuMs = cpuMs;
    this.#stateBytes = MAX_STATE_BYTES / Math.max(1, patterns.length);
    this.#groups = patterns.length === 0 ? [] : [this.#groupOf(patterns)];
  }

  /** Returns all patterns for a new session. */
  forSession(): SessionPatterns {
    return new SessionPatterns(this.#groups, (group) => this.#halvesOf(group), this.#cpuMs);
  }

  /** Returns the halves of a group, or nothing if the group has only one pattern. */
  #halvesOf(group: Group): readonly Group[] {
    const { patterns } = group;
    if (patterns.length === 1) return [];
    const middle = Math.ceil(patterns.length / 2);
    group.halves ??= [patterns.slice(0, middle), patterns.slice(middle)].map((half) => this.#groupOf(half));
    return group.halves;
  }

  #groupOf(patterns: readonly NamedPattern[]): Group {
    const bytes = Math.max(MIN_STATE_BYTES, Math.floor(this.#stateBytes * patterns.length));
    const set = new RE2Set(RE2Set.UNANCHORED, 0, bytes);
    for (const { source } of patterns) set.add(source);
    set.compile();
    return { patterns, set };
  }
}

/** A group, and the CPU time that the session may still use for the group. */
interface BudgetedGroup {
  readonly group: Group;
  readonly creditMs: number;
}

/** The patterns that one session uses. */
export class SessionPatterns {
  readonly #halvesOf: (group: Group) => readonly Group[];
  readonly #cpuMs: () => number;
  #groups: readonly BudgetedGroup[];
  #slow: readonly string[] = [];

  constructor(groups: readonly Group[], halvesOf: (group: Group) => readonly Group[], cpuMs: () => number) {
    this.#halvesOf = halvesOf;
    this.#cpuMs = cpuMs;
    this.#groups = groups.map(withReserve);
  }

  /** True if the session uses no pattern. */
  get isEmpty(): boolean {
    return this.#groups.length === 0;
  }

  /** Rule ids of all patterns that the session no longer uses, because it exceeded the budget of the pattern. */
  get slow(): readonly string[] {
    return this.#slow;
  }

  /** Returns the first matching line of each matching pattern, keyed by rule id. */
  match(lines: readonly PatternLine[]): ReadonlyMap<string, PatternLine> {
    const found = new Map<string, PatternLine>();
    const characters = lines.reduce((sum, { text }) => sum + text.length, 0);
    const earnedMs = (characters * PATTERN_LIMITS.nsPerCharacter) / 1e6;
    const groups: BudgetedGroup[] = [];
    for (const { group, creditMs } of this.#groups) {
      const startMs = this.#cpuMs();
      for (const line of lines) {
        for (const index of group.set.match(line.text)) {
          const id = group.patterns[index]?.id ?? '';
          if (!found.has(id)) found.set(id, line);
        }
      }
      const usedMs = this.#cpuMs() - startMs;
      const leftMs = Math.min(reserveMsOf(group), creditMs + earnedMs) - usedMs;
      groups.push(...(leftMs < 0 ? this.#divided(group) : [{ group, creditMs: leftMs }]));
    }
    this.#groups = groups;
    return found;
  }

  /**
   * Returns the halves of a group whose budget was exceeded. A group with a single pattern has no halves, so the
   * session no longer uses the pattern.
   */
  #divided(group: Group): readonly BudgetedGroup[] {
    const halves = this.#halvesOf(group);
    if (halves.length === 0) this.#slow = [...this.#slow, ...group.patterns.map(({ id }) => id)];
    return halves.map(withReserve);
  }
}

function withReserve(group: Group): BudgetedGroup {
  return { group, creditMs: reserveMsOf(group) };
}

function reserveMsOf({ patterns }: Group): number {
  return patterns.length === 1 ? PATTERN_LIMITS.reserveMs : PATTERN_LIMITS.sharedReserveMs;
}
