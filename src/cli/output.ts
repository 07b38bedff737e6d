import type { Writable } from 'node:stream';

/** Writes and waits for the reader when it is slow; a reader that went away (`| head`) is not an error. */
export async function print(stream: Writable, text: string | Uint8Array): Promise<void> {
  if (stream.write(text) || stream.destroyed) return;
  await new Promise<void>((resolve) => {
    stream.once('drain', resolve);
    stream.once('close', resolve);
  });
}

/**
 * Columns as wide as their widest cell, two spaces apart; the last column is not padded.
 *
 * @param paint what a cell looks like, once it has its width: colours take no columns.
 */
export function formatTable(
  header: readonly string[],
  rows: readonly (readonly string[])[],
  paint: (cell: string, column: number) => string = (cell) => cell,
): string {
  const widths = header.map((cell, column) =>
    Math.max(cell.length, ...rows.map((row) => row[column]?.length ?? 0)),
  );
  const format = (row: readonly string[], painted: typeof paint): string => {
    const last = row.findLastIndex((cell) => cell !== '');
    const cells = row
      .slice(0, last + 1)
      .map((cell, column) => painted(column === last ? cell : cell.padEnd(widths[column] ?? 0), column));
    return `${cells.join('  ')}\n`;
  };
  return [format(header, (cell) => cell), ...rows.map((row) => format(row, paint))].join('');
}

/** `95.2` → `1m35s`; one unit below the largest. */
export function formatDuration(seconds: number): string {
  if (seconds < 10) return `${seconds.toFixed(1)}s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${whole % 60}s`;
  return `${Math.floor(whole / 3600)}h${Math.floor((whole % 3600) / 60)}m`;
}

/** `1536` → `1.5 KiB`. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const unit = bytes < 1024 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${unit === 0 ? bytes : (bytes / 1024 ** unit).toFixed(1)} ${units[unit] ?? ''}`;
}

/** Removes control characters, so that a name from a recording cannot move the cursor. */
export function plain(text: string): string {
  // oxlint-disable-next-line no-control-regex -- controls are what this removes
  return text.replaceAll(/[\x00-\x1f\x7f-\x9f]/g, '�');
}
