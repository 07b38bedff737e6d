/** Output that makes the terminal emulator throw must not stop a view, and must not hide later output silently. */
import { Terminal as Emulator } from '@xterm/headless/lib-headless/xterm-headless.mjs';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { screenText } from '../../src/screen/cells.ts';
import { readCastStart } from '../../src/screen/cast-reader.ts';
import { CLUSTER_WIDTHS } from '../../src/screen/cluster-widths.ts';
import { clipCast, clipSvg } from '../../src/screen/clip.ts';
import { Playback } from '../../src/screen/playback.ts';
import { createTerminal, type PlayTerminal } from '../../src/screen/terminal.ts';
import { buildPlayIndex } from '../../src/bundle/build-index.ts';
import { createRandom, runSeed, type Random } from '../support/random.ts';
import { terminalPiece } from '../support/terminal-oracle.ts';

const SESSIONS = 40;

type Step = string | { readonly columns: number; readonly rows: number };

async function play(terminal: PlayTerminal, steps: readonly Step[]): Promise<void> {
  for (const step of steps)
    if (typeof step === 'string') await terminal.write(step);
    else terminal.resize(step);
}

describe('a terminal whose window changes', () => {
  const scrolled = [
    { columns: 16, rows: 11 },
    { columns: 11, rows: 8 },
    `\x1b[?1049h${'\n'.repeat(20)}`,
    { columns: 26, rows: 16 },
    `\x1b[13;15r${'\n'.repeat(20)}`,
  ];
  it.each<[how: string, steps: readonly Step[]]>([
    ['erases the alternate screen', [{ columns: 12, rows: 1 }, '\x1b[?1049h\x1b[99;999H\x1b[1J']],
    ['scrolls the alternate screen', scrolled],
  ])('shows the output after a program %s', async (_how, steps) => {
    const terminal = createTerminal({ columns: 20, rows: 4, withoutTerminal: false });
    await play(terminal, [...steps, '\x1b[?1049l', { columns: 20, rows: 4 }, '\x1b[r\x1b[2J\x1b[Hlater']);
    expect(screenText(terminal.emulator)).toBe('later');
    expect(terminal.isStopped).toBe(false);
    terminal.dispose();
  });

  it('shows every random session completely', async () => {
    const seed = runSeed();
    for (let session = 0; session < SESSIONS; session += 1) {
      const random = createRandom(seed + session);
      const steps = Array.from({ length: 80 }, () => randomStep(random));
      const terminal = createTerminal({ ...randomSize(random), withoutTerminal: false });
      await play(terminal, steps);
      expect(terminal.isStopped, `TEST_SEED=${seed + session} ${JSON.stringify(steps)}`).toBe(false);
      terminal.dispose();
    }
  });
});

function randomSize(random: Random): { readonly columns: number; readonly rows: number } {
  return { columns: 1 + random.below(30), rows: 1 + random.below(20) };
}

function randomStep(random: Random): Step {
  if (random.oneIn(6)) return randomSize(random);
  return Array.from({ length: 1 + random.below(5) }, () => randomPiece(random)).join('');
}

function randomPiece(random: Random): string {
  const number = (): number => random.below(30);
  switch (random.below(8)) {
    case 0:
      return '\n'.repeat(number());
    case 1:
      return `\x1b[${number()};${number()}r`;
    case 2:
      return `\x1b[?${random.pick([6, 45, 47, 1047, 1049])}${random.pick(['h', 'l'])}`;
    case 3:
      return random.pick(['\x1b[99;999H', '\x1b[1J', '\x1b[3J', '\x1b[40b', 'x'.repeat(200)]);
    default:
      return terminalPiece(random);
  }
}

/** Makes the emulator throw an error at the character U+2717. */
function failAtCross(): void {
  const original = CLUSTER_WIDTHS.charProperties;
  const spy = vi.spyOn(CLUSTER_WIDTHS, 'charProperties').mockImplementation((character, preceding) => {
    if (character === 0x2717) throw new Error('failed');
    return original(character, preceding);
  });
  onTestFinished(() => spy.mockRestore());
}

describe('a failure of the emulator', () => {
  it('stops the terminal until its next reset', async () => {
    failAtCross();
    const terminal = createTerminal({ columns: 20, rows: 4, withoutTerminal: false });
    await terminal.write('before\u2717lost');
    await terminal.write('later');
    terminal.resize({ columns: 10, rows: 2 });
    await terminal.end();
    expect(terminal.isStopped).toBe(true);
    expect(screenText(terminal.emulator)).toBe('before');
    await terminal.reset({ columns: 20, rows: 4 });
    await terminal.write('again');
    expect(terminal.isStopped).toBe(false);
    expect(screenText(terminal.emulator)).toBe('again');
  });

  it('during a resize stops the terminal', () => {
    const resize = vi.spyOn(Emulator.prototype, 'resize').mockImplementation(() => {
      throw new Error('failed');
    });
    onTestFinished(() => resize.mockRestore());
    const terminal = createTerminal({ columns: 20, rows: 4, withoutTerminal: false });
    terminal.resize({ columns: 10, rows: 2 });
    expect(terminal.isStopped).toBe(true);
  });
});

describe('a recording with a failure of the emulator', () => {
  const header = '{"version":2,"width":20,"height":4}';
  const events = ['[1,"o","before\\r\\n"]', '[2,"o","\\u2717"]', '[3,"o","secret actions\\r\\n"]'];

  it('has a play index that states where the screen stops, and a complete transcript', async () => {
    failAtCross();
    const { index, transcript } = await buildPlayIndex({
      chunks: (async function* () {
        yield Buffer.from(`${[header, ...events].join('\n')}\n`);
      })(),
      places: [],
      onFrame: async () => undefined,
      onProgress: () => undefined,
    });
    expect(index.stoppedAt).toBe(1);
    expect(transcript.isPartial).toBe(false);
    expect(transcript.rows.map(([, text]) => text)).toContain('\u2717secret actions');
  });

  it('is played until the failure', async () => {
    failAtCross();
    const bytes = Buffer.from(`${[header, ...events].join('\n')}\n`);
    const terminal = createTerminal({ columns: 20, rows: 4, withoutTerminal: false });
    const playback = new Playback({
      cast: { bytes: bytes.length, read: async (start, end) => bytes.subarray(start, end) },
      start: readCastStart(header),
      headerBytes: header.length + 1,
      terminal,
      seconds: 3,
      loadFrame: async () => '',
      onChange: () => undefined,
    });
    await playback.seek(3);
    expect(playback.state).toMatchObject({ stoppedAt: 1, playing: false, problem: undefined });
    expect(screenText(terminal.emulator)).toBe('before');
  });

  it('has no clip after the failure', async () => {
    failAtCross();
    for (const make of [clipSvg, clipCast]) {
      const lines = (async function* () {
        yield* events;
      })();
      const clip = make({ start: readCastStart(header), lines, from: 2.5, to: 5 });
      await expect(clip).rejects.toThrow(/cannot be drawn/);
    }
  });
});
