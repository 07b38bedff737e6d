/** Writes the results of the cells as a table and as a file. */
import { readFileSync, writeFileSync } from 'node:fs';
import { cpus, loadavg } from 'node:os';
import type { Cell } from './cells.ts';
import type { SessionResult } from './session.ts';

export const RESULTS = new URL('../../../bench/load-results.md', import.meta.url);

export interface CellResult {
  readonly cell: Cell;
  readonly results: readonly SessionResult[];
  /** One-minute load average at the end of the cell. */
  readonly load: number;
}

export function finish(cell: Cell, results: readonly SessionResult[]): CellResult {
  return { cell, results, load: loadavg()[0] ?? 0 };
}

/** Returns the results that make the test fail. Direct cells never fail, because they are the control group. */
export function faultsOf({ cell, results }: CellResult): readonly string[] {
  if (cell.way === 'direct') return [];
  // With `beyond`, the API server has to wait and may discard output. In that case kubectl reports an error.
  const allowed = cell.condition === 'beyond' ? ['exact', 'reported'] : ['exact'];
  return results
    .filter(({ verdict }) => !allowed.includes(verdict))
    .map(({ verdict, problem }) => `${verdict}: ${problem}`);
}

export function rowOf({ cell, results, load }: CellResult): string {
  const count = (verdict: string): number => results.filter((result) => result.verdict === verdict).length;
  const missing = results.map(({ missingBytes }) => missingBytes).filter((bytes) => bytes > 0);
  const seconds = results.map((result) => result.seconds).toSorted((a, b) => a - b);
  const cells = [
    cell.condition,
    cell.way,
    `${cell.transport === 'spdy' ? 'SPDY' : 'WebSocket'} ${cell.kubectl.minor}`,
    cell.content === 'text' || cell.content === 'random'
      ? `${cell.content} ${cell.megabytes} MB`
      : cell.content,
    results.length,
    count('exact'),
    count('reported'),
    count('silent'),
    missing.length === 0
      ? ''
      : `${(Math.min(...missing) / 1e6).toFixed(2)}–${(Math.max(...missing) / 1e6).toFixed(2)}`,
    (seconds[Math.floor(seconds.length / 2)] ?? 0).toFixed(1),
    load.toFixed(1),
  ];
  return `| ${cells.join(' | ')} |`;
}

const HEAD = [
  '| condition | path | client | content | runs | exact | short, reported | short, silent | MB missing | median ' +
    's | load |',
  '| --- | --- | --- | --- | --: | --: | --: | --: | --: | --: | --: |',
];

export function tableOf(cells: readonly CellResult[]): string {
  return [...HEAD, ...cells.map(rowOf)].join('\n');
}

/** Writes the table of results. Rows of cells that did not run stay unchanged. */
export function updateResults(cells: readonly CellResult[]): void {
  const keyOf = (row: string): string => row.split('|').slice(1, 5).join('|');
  const rows = new Map<string, string>();
  for (const row of readRows()) rows.set(keyOf(row), row);
  for (const cell of cells) rows.set(keyOf(rowOf(cell)), rowOf(cell));
  const text = [
    '# Sessions under load',
    '',
    'Written by `REAL_LOAD_UPDATE=1 npm run test:real -- load` ([meaning of the ' +
      'columns](../test/real/README.md#sessions-under-load)).',
    `${cpus().length} processors, Kubernetes 1.36. Direct sessions run without a gateway, and show how much output ` +
      'kubectl and the API server lose.',
    '',
    ...HEAD,
    ...rows.values(),
    '',
  ];
  writeFileSync(RESULTS, text.join('\n'));
}

function readRows(): readonly string[] {
  try {
    const lines = readFileSync(RESULTS, 'utf8').split('\n');
    return lines.filter((line) => line.startsWith('| ') && !HEAD.includes(line));
  } catch {
    return [];
  }
}
