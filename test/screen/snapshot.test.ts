import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { screenText } from '../../src/screen/cells.ts';
import { createScratch, describeState, takeSnapshot } from '../../src/screen/snapshot.ts';
import { createTerminal, type PlayTerminal } from '../../src/screen/terminal.ts';
import { MAX_SIZE, shownSize } from '../../src/terminal/size.ts';

const SIZE = { columns: 20, rows: 6, withoutTerminal: false };

/** Output of programs: text of several widths, and every sequence that changes more than cells. */
const PIECES = [
  'plain text',
  'a line that is longer than the terminal is wide\r\n',
  '\r\n',
  '\n',
  '\t',
  '\b',
  '漢字',
  'e\u0301',
  '👍',
  '\x1b[31m',
  '\x1b[38;5;200;1m',
  '\x1b[48;2;1;2;3m',
  '\x1b[7;4m',
  '\x1b[0m',
  '\x1b[2;4r',
  '\x1b[r',
  '\x1b[3;7H',
  '\x1b[6;20Hz',
  '\x1b7',
  '\x1b8',
  '\x1b[?1049h',
  '\x1b[?1049l',
  '\x1b[?47h',
  '\x1b[?47l',
  '\x1b[K',
  '\x1b[2J',
  '\x1b[1L',
  '\x1b[2M',
  '\x1b[3@',
  '\x1b[2P',
  '\x1b[4h',
  '\x1b[4l',
  '\x1b[?6h',
  '\x1b[?6l',
  '\x1b[?7l',
  '\x1b[?7h',
  '\x1b[?25l',
  '\x1b(0lqqk',
  '\x1b(B',
  '\x1b)0\x0e',
  '\x0f',
  '\x1bM',
  '\x1bH',
  '\x1b[3g',
  '\x1b[2S',
  '\x1b[20h',
] as const;

const anyOutput = fc.array(fc.constantFrom(...PIECES), { maxLength: 40 }).map((pieces) => pieces.join(''));

async function play(text: string): Promise<PlayTerminal> {
  const terminal = createTerminal(SIZE);
  await terminal.write(text);
  return terminal;
}

describe('a snapshot', () => {
  it('goes on as if everything before had been played', async () => {
    const scratch = createScratch();
    let taken = 0;
    await fc.assert(
      fc.asyncProperty(anyOutput, anyOutput, async (before, after) => {
        const whole = await play(before);
        const snapshot = await takeSnapshot(whole, scratch);
        if (snapshot === undefined) return;
        taken += 1;
        const restored = await play(snapshot);
        await whole.write(after);
        await restored.write(after);
        expect(describeState(restored.emulator)).toBe(describeState(whole.emulator));
      }),
      {
        numRuns: 400,
        // the second half of a wrapped line has left the screen, and the first half returns
        examples: [
          ['a line that is longer than the terminal is wide\r\n\x1b[2S', '\x1bM'],
          // the cursor is next to a blank row of the normal screen, and then the alternate screen is shown
          ['\x1b[6;20Hz\x1b[2S', '\x1b[?47h'],
          // the cursor was saved on the alternate screen before the program left that screen
          ['\x1b[?1049hplain text\x1b[?1049h\x1b[?47l', '\x1b[?47h\x1b8'],
          ['\x1b[?1049ha line that is longer than the terminal is wide\r\n\x1b[2S', '\x1b[1L'],
        ],
      },
    );
    // most of the states must have a snapshot, otherwise the comparison proves nothing
    expect(taken).toBeGreaterThan(340);
  });

  it('is not taken inside of an escape sequence', async () => {
    const terminal = await play('text\x1b[3');
    expect(await takeSnapshot(terminal, createScratch())).toBeUndefined();
    await terminal.write('1m');
    expect(await takeSnapshot(terminal, createScratch())).toBeDefined();
  });

  it('keeps margins, the hidden cursor and the screen below the alternate one', async () => {
    const terminal = await play('shell\x1b[?1049h\x1b[?25l\x1b[2;4r\x1b[2;1Hin the box');
    const snapshot = await takeSnapshot(terminal, createScratch());
    const restored = await play(snapshot ?? '');
    for (const each of [terminal, restored]) await each.write('\r\n1\r\n2\r\n3');
    expect(screenText(restored.emulator)).toBe(screenText(terminal.emulator));
    expect(screenText(restored.emulator)).toBe('\n1\n2\n3');
    for (const each of [terminal, restored]) await each.write('\x1b[?1049l');
    expect(screenText(restored.emulator)).toBe('shell');
  });

  it('is brought back by a terminal that has shown something else', async () => {
    const terminal = await play('\x1b[31mred\x1b[?7l');
    const snapshot = await takeSnapshot(terminal, createScratch());
    const other = await play('\x1b[?1049h\x1b[2;3r\x1b[?25l\x1b(0other\x1b[20h');
    await other.reset(terminal.size, snapshot);
    expect(describeState(other.emulator)).toBe(describeState(terminal.emulator));
  });
});

describe('a terminal', () => {
  it('has a size that costs little, whatever was recorded', () => {
    expect(shownSize({ columns: 0, rows: 0 })).toEqual({ columns: 80, rows: 24 });
    expect(shownSize({ columns: 1e9, rows: 1e9 })).toEqual(MAX_SIZE);
    expect(shownSize({ columns: Number.NaN, rows: 5 })).toEqual({ columns: 80, rows: 24 });
    expect(shownSize({ columns: 1, rows: 0.5 })).toEqual({ columns: 2, rows: 1 });
  });

  it('keeps few marks on one letter', async () => {
    const terminal = await play(`a${'\u0301'.repeat(10_000)}b`);
    expect(screenText(terminal.emulator).length).toBeLessThan(20);
  });
});
