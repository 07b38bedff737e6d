import { describe, expect, it } from 'vitest';
import { readCastStart } from '../../src/screen/cast-reader.ts';
import { clipCast, ClipError, clipStills, clipSvg, type ClipOptions } from '../../src/screen/clip.ts';

const HEADER = '{"version":2,"width":20,"height":4}';
const EVENTS = [
  '[1,"o","before\\r\\n"]',
  '[5,"o","\\u001b[31mred\\u001b[0m "]',
  '[6,"o","<script>&\\u0007"]',
  'not an event',
  '[9,"o","\\r\\nafter"]',
];

function clip(from: number, to: number, events: readonly string[] = EVENTS): ClipOptions {
  async function* lines(): AsyncGenerator<string> {
    yield* events;
  }
  return { start: readCastStart(HEADER), lines: lines(), from, to };
}

/** Returns the text of an SVG, without markup. */
function textsOf(svg: string): readonly string[] {
  return [...svg.matchAll(/<text [^>]*>([^<]*)<\/text>/g)].map(([, text = '']) => text);
}

describe('an SVG clip', () => {
  it('starts with the screen at the start, and contains nothing after the end', async () => {
    const svg = await clipSvg(clip(4, 8));
    expect(textsOf(svg)).toContain('before');
    expect(svg).toContain('red');
    expect(svg).not.toContain('after');
    // the steps are the screens at 4, 5 and 6 seconds, and the end of the clip
    const [, steps = ''] = /@keyframes clip\{(.*)\}/.exec(svg) ?? [];
    expect([...steps.matchAll(/([\d.]+)%/g)].map(([, share]) => Math.round(Number(share)))).toEqual([
      0, 25, 50, 100,
    ]);
    expect(svg).toContain('animation:clip 4.00s');
    expect(svg).toContain('#e5534b');
  });

  it('contains recorded text only as escaped text', async () => {
    const svg = await clipSvg(clip(0, 8));
    expect(svg).not.toContain('<script');
    expect(svg).toContain('&lt;script&gt;&amp;');
    // oxlint-disable-next-line no-control-regex -- XML allows no control characters
    expect(svg).not.toMatch(/[\u0000-\u0009\u000b-\u001f]/);
  });

  it('has a valid range of limited length', async () => {
    for (const [from, to] of [
      [5, 5],
      [-1, 5],
      [Number.NaN, 5],
      [0, 601],
    ] as const)
      await expect(clipSvg(clip(from, to))).rejects.toThrow(ClipError);
  });

  it('has a limited number of frames and limited text', async () => {
    const many = Array.from({ length: 20_000 }, (_, index) => `[${index / 100},"o","\\r${index % 10}"]`);
    const svg = await clipSvg(clip(0, 200, many));
    expect(svg.split('translateX').length).toBeLessThanOrEqual(1503);
    expect(svg.length).toBeLessThan(1024 ** 2);
  });
});

describe('a clip of costly output', () => {
  const costly = JSON.stringify([1, 'o', '\x1b[2J'.repeat(160)]);
  const wide = { start: readCastStart('{"version":2,"width":1000,"height":500}') };

  it('is rejected instead of showing an old screen', async () => {
    const lines = [costly, '[3,"o","later"]'];
    for (const make of [clipSvg, clipStills])
      await expect(make({ ...clip(0, 5, lines), ...wide })).rejects.toThrow(/cannot be drawn/);
    await expect(clipCast({ ...clip(2, 5, lines), ...wide })).rejects.toThrow(/cannot be drawn/);
  });

  it('is possible before the costly output', async () => {
    const lines = ['[0,"o","first"]', costly, '[3,"o","later"]'];
    expect(textsOf(await clipSvg({ ...clip(0, 0.5, lines), ...wide }))).toContain('first');
    expect(await clipCast({ ...clip(0, 5, lines), ...wide })).toContain('later');
  });

  it('has a limited number of cells', async () => {
    const lines = Array.from({ length: 60 }, (_, index) => `[${index / 10},"o","\\r${index}"]`);
    await expect(clipSvg({ ...clip(0, 6, lines), ...wide })).rejects.toThrow(/too large/);
  });
});

describe('the screens of a clip', () => {
  it('have their durations, and a position for each character', async () => {
    const stills = [...(await clipStills(clip(4, 8, ['[1,"o","x"]', '[6,"o","\\r漢y"]'])))];
    expect(stills.map(({ svg, seconds }) => [textsOf(svg), Math.round(seconds)])).toEqual([
      [['x'], 2],
      [['漢', 'y'], 2],
    ]);
    expect(stills[1]?.svg).toMatch(/<text x="0.0"[^>]*>漢<.*<text x="16.8"[^>]*>y</);
  });
});

describe('an asciicast clip', () => {
  it('starts with the screen at the start, with its clock at zero', async () => {
    const [header = '', first = '', ...rest] = (await clipCast(clip(4, 8))).trim().split('\n');
    expect(JSON.parse(header)).toEqual({ version: 2, width: 20, height: 4 });
    expect(JSON.parse(first)).toEqual([0, 'o', expect.stringContaining('before')]);
    expect(rest.map((line) => JSON.parse(line))).toEqual([
      [1, 'o', '\u001b[31mred\u001b[0m '],
      [2, 'o', '<script>&\u0007'],
    ]);
  });
});
