/**
 * Writes `test/real/compatibility.md`: the operations that each client performed. A suite publishes its rows after a
 * complete run. In CI the page must already contain the rows; elsewhere the suite writes them. Rows of clients that
 * are missing on this machine stay unchanged.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

const PAGE = fileURLToPath(new URL('../compatibility.md', import.meta.url));

/** Columns of the table of clients other than kubectl. Several suites add rows to this table. */
export const CLIENT_COLUMNS = ['get', 'watch', 'exec', 'port-forward'] as const;

export interface CompatibilityTable {
  /** Heading of the table. */
  readonly heading: string;
  readonly columns: readonly string[];
  /** Client → one cell for each column. */
  readonly rows: ReadonlyMap<string, readonly string[]>;
}

/**
 * @returns the differing content of the page, for the message of a test; `undefined` if the page matches the table
 */
export function publish(table: CompatibilityTable): string | undefined {
  const page = readFileSync(PAGE, 'utf8');
  const updated = replaceTable(page, table);
  if (updated === page) return undefined;
  if ((process.env['CI'] ?? '') !== '') return updated;
  writeFileSync(PAGE, updated);
  return undefined;
}

/** Returns the page with the rows of `table` instead of the old ones. */
export function replaceTable(page: string, { heading, columns, rows }: CompatibilityTable): string {
  const lines = page.split('\n');
  const start = lines.indexOf(`## ${heading}`);
  if (start < 0) throw new Error(`test/real/compatibility.md has no heading "${heading}"`);
  const first = lines.findIndex((line, index) => index > start && line.startsWith('|'));
  const nextHeading = lines.findIndex((line, index) => index > start && line.startsWith('## '));
  if (first < 0 || (nextHeading >= 0 && first > nextHeading)) throw new Error(`"${heading}" has no table`);
  const length = lines.slice(first).findIndex((line) => !line.startsWith('|'));
  const end = length < 0 ? lines.length : first + length;
  const [oldHead, , ...oldRows] = lines.slice(first, end).map(cellsOf);
  const sameColumns = oldHead?.slice(1).join('|') === columns.join('|');
  const all = new Map(sameColumns ? oldRows.map(([client = '', ...cells]) => [client, cells]) : []);
  for (const [client, cells] of rows) all.set(client, [...cells]);
  const table = [
    ['client', ...columns],
    Array.from({ length: columns.length + 1 }, () => '---'),
    ...[...all]
      .toSorted(([a], [b]) => a.localeCompare(b, 'en', { numeric: true }))
      .map(([client, cells]) => [client, ...cells]),
  ];
  return [
    ...lines.slice(0, first),
    ...table.map((cells) => `| ${cells.join(' | ')} |`),
    ...lines.slice(end),
  ].join('\n');
}

function cellsOf(line: string): string[] {
  return line
    .replace(/^\|/, '')
    .replace(/\|\s*$/, '')
    .split('|')
    .map((cell) => cell.trim());
}
