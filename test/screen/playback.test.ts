import { describe, expect, it } from 'vitest';
import type { CastBytes } from '../../src/screen/cast-lines.ts';
import { readCastStart } from '../../src/screen/cast-reader.ts';
import { screenText } from '../../src/screen/cells.ts';
import { createActivity, frameBefore } from '../../src/screen/play-index.ts';
import { Playback } from '../../src/screen/playback.ts';
import { createTerminal, type PlayTerminal } from '../../src/screen/terminal.ts';

const HEADER = '{"version":2,"width":20,"height":4}\n';

function open(
  lines: string,
  options: { seconds?: number; failing?: () => boolean; frames?: readonly string[] } = {},
): { playback: Playback; terminal: PlayTerminal; text: () => string; reads: () => number } {
  const bytes = new TextEncoder().encode(HEADER + lines);
  let reads = 0;
  const cast: CastBytes = {
    bytes: bytes.length,
    async read(start, end) {
      reads += 1;
      if (options.failing?.() === true) throw new Error('out of reach');
      return bytes.subarray(start, end);
    },
  };
  const terminal = createTerminal({ columns: 20, rows: 4, withoutTerminal: false });
  const playback = new Playback({
    cast,
    start: readCastStart(HEADER),
    headerBytes: HEADER.length,
    terminal,
    seconds: options.seconds,
    loadFrame: async (index) => options.frames?.[index] ?? '',
    onChange: () => undefined,
  });
  return { playback, terminal, text: () => screenText(terminal.emulator), reads: () => reads };
}

const EVENTS = '[1,"o","one "]\n[60,"o","two "]\n[62,"o","three"]\n';

describe('a playback', () => {
  it('shows what had happened at a moment, forwards and back', async () => {
    const { playback, text } = open(EVENTS);
    for (const [moment, shown] of [
      [61, 'one two'],
      [0, ''],
      [1, 'one'],
      [99, 'one two three'],
    ] as const) {
      await playback.seek(moment);
      expect(text()).toBe(shown);
    }
    expect(playback.state).toMatchObject({ position: 62, seconds: 62, ended: true });
  });

  it('asks for a keyframe and for what comes after it at once', async () => {
    const bytes = new TextEncoder().encode(HEADER + EVENTS);
    const asked: number[] = [];
    let given = (_screen: string): void => undefined;
    const frame = new Promise<string>((resolve) => {
      given = resolve;
    });
    const terminal = createTerminal({ columns: 20, rows: 4, withoutTerminal: false });
    const offset = HEADER.length + EVENTS.indexOf('[62');
    const playback = new Playback({
      cast: {
        bytes: bytes.length,
        read: async (start, end) => {
          asked.push(start);
          // the keyframe arrives only now, so both requests run at the same time
          if (start === offset) given('one two ');
          return bytes.subarray(start, end);
        },
      },
      start: readCastStart(HEADER),
      headerBytes: HEADER.length,
      terminal,
      seconds: 62,
      loadFrame: () => frame,
      onChange: () => undefined,
    });
    playback.useFrames([{ at: 60, offset, columns: 20, rows: 4 }], 62);
    await playback.seek(62);
    expect(screenText(terminal.emulator)).toBe('one two three');
    expect(asked).toEqual([offset]);
  });

  it('has the recording’s clock, and passes idle time quickly only when asked to', async () => {
    const { playback } = open(EVENTS, { seconds: 62 });
    await playback.seek(0);
    await playback.seek(1.6);
    playback.skipsIdle = false;
    playback.play();
    playback.tick(0.2);
    expect(playback.state.position).toBeCloseTo(1.8);
    await playback.seek(1);
    playback.skipsIdle = true;
    playback.play();
    for (let count = 0; count < 3; count += 1) {
      playback.tick(0.2);
      await playback.seek(playback.state.position);
      playback.play();
    }
    // idle time counts from the last seek
    expect(playback.state.position).toBeLessThan(2);
    playback.tick(0.25);
    while (playback.state.waiting) await new Promise(setImmediate);
    playback.tick(0.25);
    while (playback.state.waiting) await new Promise(setImmediate);
    expect(playback.state.position).toBe(59.5);
  });

  it('goes to the latest wish, and answers the others', async () => {
    const { playback, text } = open(EVENTS);
    await Promise.all([playback.seek(99), playback.seek(0.5), playback.seek(1)]);
    expect(text()).toBe('one');
    expect(playback.state.position).toBe(1);
  });

  it('begins at a keyframe', async () => {
    const { playback, text } = open(EVENTS, { frames: ['from the frame '] });
    await playback.seek(0);
    const offset = HEADER.length + EVENTS.indexOf('[62');
    playback.useFrames([{ at: 60, offset, columns: 20, rows: 4 }], 62);
    await playback.seek(61);
    expect(text()).toBe('from the frame');
    await playback.seek(62);
    expect(text()).toBe('from the frame three'.slice(0, 20));
  });

  it('reads the bytes between two keyframes with one request', async () => {
    const first = `[1,"o","${'y'.repeat(1000)}"]\n`.repeat(100);
    const second = `${`[2,"o","${'x'.repeat(1000)}"]\n`.repeat(300)}[3,"o","next"]\n`;
    const { playback, text, reads } = open(`${first}${second}[4,"o","end"]\n`, { seconds: 4 });
    const offset = HEADER.length + first.length;
    const size = { columns: 20, rows: 4 };
    const next = offset + second.length;
    playback.useFrames(
      [
        { at: 1, offset, ...size },
        { at: 3, offset: next, ...size },
      ],
      4,
    );
    await playback.seek(2);
    expect(text()).toContain('xxxx');
    expect(reads()).toBe(1);
  });

  it('stops where a recording costs too much to render, says where, and begins again from a keyframe', async () => {
    const costly = Array.from({ length: 400 }, (_, at) => [at + 1, 'o', '\x1b#8'.repeat(2000)]);
    const events = [[0.5, 'r', '1000x500'], ...costly, [500, 'o', '\x1b[H\x1b[2Jend']];
    const lines = events.map((event) => JSON.stringify(event)).join('\n');
    const { playback, terminal, text } = open(`${lines}\n`, { frames: ['from the frame'] });
    await playback.seek(1000);
    const { stoppedAt, playing } = playback.state;
    expect(stoppedAt).toBeLessThan(100);
    expect(playing).toBe(false);
    expect(text()).not.toContain('end');
    // a stopped screen stays unchanged
    await playback.seek(1001);
    expect(playback.state.stoppedAt).toBe(stoppedAt);
    const offset = HEADER.length + lines.indexOf('[500');
    playback.useFrames([{ at: 400, offset, columns: 20, rows: 4 }], 500);
    await playback.seek(450);
    expect(playback.state.stoppedAt).toBeUndefined();
    expect(text()).toBe('from the frame');
    expect(terminal.budget.isExhausted).toBe(false);
  });

  it('says why it cannot go on, and goes on when it can', async () => {
    let fails = true;
    const { playback, text } = open(EVENTS, { failing: () => fails });
    await playback.seek(1);
    expect(playback.state).toMatchObject({ problem: 'out of reach', playing: false });
    fails = false;
    await playback.seek(61);
    expect(playback.state.problem).toBeUndefined();
    expect(text()).toBe('one two');
  });

  it('shows what is whole of a recording that is not', async () => {
    const { playback, text } = open('[1,"o","a"]\nnonsense\n[2,"o","b"]\n[3,"o","lo');
    await playback.seek(99);
    expect(text()).toBe('ab');
    expect(playback.state).toMatchObject({ badLines: 1, isCut: true, ended: true });
  });

  it('takes a last line without a line feed for a whole one', async () => {
    const { playback, text } = open('[1,"o","a"]\n[2,"o","b"]');
    await playback.seek(99);
    expect(text()).toBe('ab');
    expect(playback.state.isCut).toBe(false);
  });

  it('goes on with a session that runs, and takes half of a line for no cut', async () => {
    const bytes = new TextEncoder().encode(`${HEADER}${EVENTS}[70,"o"," four"]\n`);
    const half = HEADER.length + EVENTS.length - 9;
    let known = half;
    const cast: CastBytes = {
      get bytes() {
        return known;
      },
      isGrowing: true,
      read: async (start, end) => bytes.subarray(start, end),
    };
    const terminal = createTerminal({ columns: 20, rows: 4, withoutTerminal: false });
    const playback = new Playback({
      cast,
      start: readCastStart(HEADER),
      headerBytes: HEADER.length,
      terminal,
      seconds: 65,
      loadFrame: async () => '',
      onChange: () => undefined,
    });
    await playback.seek(64);
    expect(screenText(terminal.emulator)).toBe('one two');
    expect(playback.state).toMatchObject({ seconds: 65, ended: false, isCut: false, badLines: 0 });
    known = bytes.length;
    playback.grow(71);
    await playback.seek(64);
    expect(screenText(terminal.emulator)).toBe('one two three');
    await playback.seek(70);
    expect(screenText(terminal.emulator)).toBe('one two three four');
    expect(playback.state).toMatchObject({ seconds: 71, ended: false, problem: undefined });
    // playback has reached the known duration and the last available event
    await playback.seek(71);
    expect(playback.state.ended).toBe(true);
    playback.grow(72);
    expect(playback.state.ended).toBe(false);
  });

  it('steps from one event to the next', async () => {
    const { playback, text } = open(EVENTS);
    await playback.seek(0);
    await playback.step();
    expect([playback.state.position, text()]).toEqual([1, 'one']);
    await playback.step();
    expect([playback.state.position, text()]).toEqual([60, 'one two']);
  });

  it('keeps a step when keyframes arrive before the replaced seek has stopped', async () => {
    const { playback, text } = open(EVENTS);
    await playback.seek(0);
    void playback.seek(1);
    const step = playback.step();
    expect(playback.isSeeking).toBe(true);
    playback.useFrames([], 62);
    await step;
    while (playback.state.waiting) await new Promise(setImmediate);
    expect([playback.state.position, text()]).toEqual([60, 'one two']);
  });

  it('continues an unfinished seek from a keyframe as soon as the keyframes are known', async () => {
    const lines = Array.from({ length: 60 }, (_, at) => `[${at},"o","${at} ${'x'.repeat(64 * 1024)}\\r"]\n`);
    const bytes = new TextEncoder().encode(HEADER + lines.join(''));
    const offset = bytes.length - lines.at(-1)!.length;
    const asked: number[] = [];
    const playback = new Playback({
      cast: {
        bytes: bytes.length,
        async read(start, end) {
          asked.push(start);
          if (asked.length === 2) playback.useFrames([{ at: 58, offset, columns: 20, rows: 4 }], 59);
          return bytes.subarray(start, end);
        },
      },
      start: readCastStart(HEADER),
      headerBytes: HEADER.length,
      terminal: createTerminal({ columns: 20, rows: 4, withoutTerminal: false }),
      seconds: 59,
      loadFrame: async () => '',
      onChange: () => undefined,
    });
    void playback.seek(59);
    expect(playback.isSeeking).toBe(true);
    while (playback.state.waiting) await new Promise(setImmediate);
    expect(playback.state).toMatchObject({ position: 59, ended: true });
    expect(playback.isSeeking).toBe(false);
    expect(asked).toContain(offset);
    expect(asked.length).toBeLessThan(8);
  });

  it('holds a piece of a large recording, and not all of it', async () => {
    const line = `[0.5,"o","${'x'.repeat(1000)}"]\n`;
    const { playback, reads } = open(`${line.repeat(5000)}[9,"o","end"]\n`);
    await playback.seek(0.1);
    expect(reads()).toBeLessThanOrEqual(3);
  });
});

describe('the index', () => {
  it('finds the frame before a moment', () => {
    const frames = [1, 2, 2, 5].map((at) => ({ at, offset: 0, columns: 1, rows: 1 }));
    expect([0, 1, 2, 4.9, 5, 9].map((at) => frameBefore(frames, at))).toEqual([-1, 0, 2, 2, 3, 3]);
    expect(frameBefore([], 3)).toBe(-1);
  });

  it('counts output over any length of time', () => {
    for (const seconds of [0, 0.01, 3, 86_400 * 30]) {
      const activity = createActivity();
      for (let step = 0; step <= 100; step += 1) activity.add((seconds * step) / 100, 10);
      const spans = activity.spans(seconds);
      expect(spans.length).toBeLessThanOrEqual(400);
      expect(spans.reduce((sum, count) => sum + count, 0)).toBeGreaterThan(1000 - 11);
    }
  });
});
