/**
 * Reads a table of test cases. Each line is a row, and ` | ` separates its cells. `-` is an empty cell. Lines that
 * start with `#` are comments.
 */
export function rowsOf(table: string): string[][] {
  return table
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'))
    .map((line) => line.split(' | ').map((cell) => (cell === '-' ? '' : cell)));
}
