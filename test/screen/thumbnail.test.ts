import { afterEach, describe, expect, it } from 'vitest';
import { createTerminal, type PlayTerminal } from '../../src/screen/terminal.ts';
import { thumbnailInk, thumbnailOf, type ThumbnailRows } from '../../src/screen/thumbnail.ts';

const terminals: PlayTerminal[] = [];
afterEach(() => terminals.splice(0).forEach((terminal) => terminal.dispose()));

async function thumbnail(columns: number, rows: number, text: string): Promise<ThumbnailRows> {
  const terminal = createTerminal({ columns, rows, withoutTerminal: false });
  terminals.push(terminal);
  await terminal.write(text);
  return thumbnailOf(terminal.emulator);
}

describe('a thumbnail', () => {
  it('has a symbol of the colour for each cell, and no text', async () => {
    const rows = await thumbnail(20, 4, 'ab c\r\n\x1b[31mred\x1b[0m \x1b[42m \x1b[0m\r\n\x1b[38;5;196mx');
    expect(rows).toEqual(['xx x', 'bbb C', 'j']);
    expect(thumbnailInk(rows)).toBe(8);
  });

  it('has no rows for an empty screen', async () => {
    expect(await thumbnail(20, 4, '\r\n\r\n')).toEqual([]);
  });

  it('has a limited size, also for the largest screen', async () => {
    const rows = await thumbnail(500, 200, `\x1b[7m${'漢x'.repeat(40_000)}`);
    expect(rows).toHaveLength(36);
    expect(Math.max(...rows.map((row) => row.length))).toBeLessThanOrEqual(100);
    expect(JSON.stringify(rows).length).toBeLessThan(4096);
    expect(rows.join('')).toMatch(/^[A-PX]+$/);
  });

  it('shows the last rows of a high screen', async () => {
    const rows = await thumbnail(10, 60, `${'a\r\n'.repeat(50)}\x1b[31mlast`);
    expect(rows).toHaveLength(36);
    expect(rows.at(-1)).toBe('bbbb');
  });
});
