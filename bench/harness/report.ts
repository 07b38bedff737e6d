/** Results as text: a table for the terminal, and `results.md`. */
import { comparisonsOf, inWords, type PeerComparison } from './comparisons.ts';
import { COMPARED, type CaseResult, type ComparedFigure, type Row, type RunResults } from './results.ts';
import type { Spread } from './statistics.ts';
import { GOALS, judge, verdictWord } from './goals.ts';

type Column = readonly [head: string, cell: (row: Row) => string];

/** Returns the table of a case. Columns without results are omitted. */
export function tableOf(result: CaseResult): { readonly head: readonly string[]; readonly rows: string[][] } {
  const direct = result.rows.find(({ peer }) => peer === 'direct');
  const go = result.rows.find(({ peer }) => peer === 'go');
  const speed: readonly Column[] = [
    [result.unit.rate, (row) => range(row.rate)],
    ['of direct', (row) => ratio(row.rate, direct?.rate)],
    ['of go', (row) => ratio(row.rate, go?.rate)],
  ];
  const columns: readonly Column[] = [
    ['', (row) => row.peer],
    ...(result.constantLoad ? [] : speed),
    [result.unit.cpu, (row) => range(row.cpu)],
    ['of go', (row) => ratio(row.cpu, go?.cpu)],
    [`recorder's ${result.unit.cpu}`, (row) => range(row.recorderCpu)],
    ['p50 ms', (row) => range(row.p50Ms)],
    ['p90 ms', (row) => range(row.p90Ms)],
    ['p99 ms', (row) => range(row.p99Ms)],
    [`KB/${result.memoryOf ?? ''}`, (row) => range(row.memoryKb)],
    [`KB/${result.memoryOf ?? ''} above idle`, (row) => range(row.memoryAddedKb)],
    ['peak MB', (row) => range(row.peakRssMb)],
    ['MB at rest', (row) => range(row.restMb)],
    ['MB above idle', (row) => range(row.restAddedMb)],
  ];
  const filled = columns.filter(([, cell]) => result.rows.some((row) => cell(row) !== ''));
  return {
    head: filled.map(([head]) => head),
    rows: result.rows.map((row) => filled.map(([, cell]) => cell(row))),
  };
}

/** Returns the table of a case for the terminal. */
export function printable(result: CaseResult): string {
  const { head, rows } = tableOf(result);
  const widths = head.map((_, index) => Math.max(...[head, ...rows].map((row) => (row[index] ?? '').length)));
  const line = (row: readonly string[]): string =>
    row
      .map((cell, index) =>
        index === 0 ? cell.padEnd(widths[index] ?? 0) : cell.padStart((widths[index] ?? 0) + 2),
      )
      .join('');
  const title = `\n${result.name}: ${result.title} (${result.rounds} rounds)`;
  return [title, line(head), ...rows.map(line), ...comparisonsOf(result).map(comparisonLine)].join('\n');
}

const FIGURES: Readonly<Record<ComparedFigure, string>> = {
  rate: 'rate',
  cpu: 'CPU',
  recorderCpu: 'recorder’s CPU',
  p50Ms: 'p50',
  p90Ms: 'p90',
  p99Ms: 'p99',
  peakRssMb: 'peak memory',
  memoryKb: 'memory',
  restMb: 'memory at rest',
};

/** Returns for example `tailcast against go: rate 1.14x [1.02–1.27] faster, …`. */
function comparisonLine({ peer, against, figures }: PeerComparison): string {
  const each = figures.map(({ figure: name, comparison }) => `${FIGURES[name]} ${inWords(name, comparison)}`);
  return `${peer} against ${against}: ${each.join(', ')}`;
}

/** Returns the comparisons as a table, or an empty text if no results can be compared. */
function comparisonTable(result: CaseResult): string {
  const comparisons = comparisonsOf(result);
  const present = COMPARED.filter((name) =>
    comparisons.some(({ figures }) => figures.some(({ figure: other }) => other === name)),
  );
  if (present.length === 0) return '';
  const rows = comparisons.map(({ peer, against, figures }) => [
    `${peer} against ${against}`,
    ...present.map((name) => {
      const found = figures.find(({ figure: other }) => other === name);
      return found === undefined ? '' : inWords(name, found.comparison);
    }),
  ]);
  return `\n${markdownTable(['', ...present.map((name) => FIGURES[name])], rows)}\n`;
}

/** Returns the results of a run as Markdown. */
export function markdown(results: RunResults): string {
  const versions = Object.entries(results.versions).map(([name, version]) => `${name} ${version}`);
  const missing = Object.entries(results.missing).map(([name, why]) => `- ${name}: ${why}`);
  return `# Benchmark results

Written by \`npm run bench${results.quick ? ' -- --quick' : ''}\` on ${results.startedAt.slice(0, 10)}.
A figure is the median of interleaved rounds. The brackets contain the lowest and the highest round.
The load generator compares every response byte by byte. Compare only figures of one table.

- ${results.machine.join('\n- ')}
- ${versions.join(', ')}

Peers:

- *direct*: no proxy, the limit of load generator and upstream.
- *go*: \`httputil.ReverseProxy\` with a large pool, flushed writes and GOMAXPROCS=2.
- *go-default*: Go's default transport. *go-h2*: HTTP/2 upstream.
- *tls-hop*: plain Node that ends TLS and starts it again, the minimum cost of a gateway in Node.
- *reference*: the reference's proxy behind a PROXY header, without TLS in front and without a tailnet.
- *tailcast-plain*: the gateway in the same setup as *reference*.
- *-recorded*: a recorder stores every session durably. A figure counts only if the recorder has the bytes.

Memory per watch or shell is the memory of the process divided by the number of watches or shells. For *above idle*,
the memory of the idle process is subtracted first.

A comparison (*tailcast against go*) shows the geometric mean of the ratios of the rounds. The brackets contain the 95 %
confidence interval (Student's t over logarithms). *faster*, *slower*, *more* and *less*: the interval excludes 1; one
in twenty of these words may be wrong. *cannot tell*: the interval includes 1. A goal is *uncertain* if its bound is in
the interval.
${missing.length === 0 ? '' : `\nNot measured:\n\n${missing.join('\n')}\n`}
## Goals

${goalsTable(results)}
${results.facts.length === 0 ? '' : `\n${results.facts.map(({ name, value, unit }) => `- ${name}: ${figure(value)} ${unit}`).join('\n')}\n`}
${results.cases.map(section).join('\n')}`;
}

function goalsTable(results: RunResults): string {
  const rows = GOALS.map((goal) => {
    const verdict = judge(goal, results);
    return [
      goal.text,
      verdict?.figures ?? 'not measured',
      verdict === undefined ? '–' : verdict.met ? verdictWord(verdict) : `**${verdictWord(verdict)}**`,
    ];
  });
  return markdownTable(['goal', 'measured', ''], rows);
}

function section(result: CaseResult): string {
  const { head, rows } = tableOf(result);
  return (
    `## ${result.title}\n\n\`${result.name}\`, ${result.rounds} ` +
    `rounds\n\n${markdownTable(head, rows)}\n${comparisonTable(result)}`
  );
}

function markdownTable(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const align = head.map((_, index) => (index === 0 ? ':--' : '--:'));
  return [head, align, ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n');
}

function range(spread: Spread | undefined): string {
  if (spread === undefined) return '';
  const { median, lowest, highest } = spread;
  return lowest === highest ? figure(median) : `${figure(median)} [${figure(lowest)}–${figure(highest)}]`;
}

function ratio(value: Spread | undefined, base: Spread | undefined): string {
  if (value === undefined || base === undefined || base.median === 0) return '';
  return `${(value.median / base.median).toFixed(2)}x`;
}

/** Formats a value with few digits, because a benchmark on a shared machine is not precise. */
export function figure(value: number): string {
  if (value >= 100) return Math.round(value).toLocaleString('en-US');
  return value >= 10 ? value.toFixed(1) : value.toFixed(2);
}
