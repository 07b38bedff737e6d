/** Sums V8's garbage collections from the output of `--trace-gc`. */

export interface Collections {
  /** Collections of the young generation. */
  readonly scavenges: number;
  readonly scavengeMs: number;
  /** Number and time of full collections. The time includes incremental marking. */
  readonly markCompacts: number;
  readonly markCompactMs: number;
  /** Duration of the longest collection of either kind. */
  readonly longestMs: number;
}

const LINE =
  /\] +\d+ ms: (?<kind>.*?) [\d.]+ \([\d.]+\) -> [^/]*? (?<ms>[\d.]+) \/ [\d.]+ ms +(?:\(\+ (?<steps>[\d.]+) ms)?/;

/** @param log complete output of a process; other lines are skipped */
export function addUp(log: string): Collections {
  const sums = { scavenges: 0, scavengeMs: 0, markCompacts: 0, markCompactMs: 0, longestMs: 0 };
  for (const line of log.split('\n')) {
    const found = LINE.exec(line)?.groups;
    if (found === undefined) continue;
    const ms = Number(found['ms']);
    sums.longestMs = Math.max(sums.longestMs, ms);
    if (found['kind']?.includes('Mark-Compact') === true) {
      sums.markCompacts += 1;
      sums.markCompactMs += ms + Number(found['steps'] ?? 0);
    } else {
      sums.scavenges += 1;
      sums.scavengeMs += ms;
    }
  }
  return sums;
}

/** Returns the sums as one line. */
export function describe(sums: Collections): string {
  const young = `${sums.scavenges} scavenges ${Math.round(sums.scavengeMs)} ms`;
  const whole = `${sums.markCompacts} mark-compacts ${Math.round(sums.markCompactMs)} ms`;
  return `${young}, ${whole}, longest ${Math.round(sums.longestMs)} ms`;
}
