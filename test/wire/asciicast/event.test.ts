import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  encodeCastEvent,
  formatResize,
  parseCastEvent,
  parseResize,
} from '../../../src/wire/asciicast/event.ts';
import { hasReversedResize, parseCastHeader } from '../../../src/wire/asciicast/header.ts';
import { thrownBy } from '../bytes.ts';
import { golden, GOLDEN_CASTS } from './golden.ts';
import { parseLikePlayer } from './player-parser.ts';

describe('cast events of the reference', () => {
  it.each(GOLDEN_CASTS.map((cast) => [cast.name, cast] as const))(
    'reads the events of %s as asciinema-player does',
    async (_name, cast) => {
      const player = await parseLikePlayer(cast.text);
      const ours = cast.eventLines.map(parseCastEvent);
      expect(ours.map(({ seconds, code, data }) => [seconds * 1000, code, data])).toEqual(player.events);
    },
  );

  it('turns reversed resize events round', () => {
    const { headerLine, eventLines } = golden('tty-resize-ws');
    const reversed = hasReversedResize(parseCastHeader(headerLine));
    const sizes = eventLines.map(parseCastEvent).filter(({ code }) => code === 'r');
    expect(sizes.map(({ data }) => parseResize(data, { reversed }))).toEqual([
      { columns: 120, rows: 44 },
      { columns: 80, rows: 24 },
    ]);
  });

  it('reads text with U+FFFD, escapes and characters beyond ASCII', () => {
    expect(golden('notty-spdy').eventLines.map(parseCastEvent).at(-1)?.data).toBe('out2\nbin\ufffd\ufffdx\n');
    expect(
      golden('tty-resize-ws')
        .eventLines.map(parseCastEvent)
        .map(({ data }) => data),
    ).toContain('héllo \u001b[31mred\u001b[0m\r\n# ');
  });
});

describe('encoding a cast event', () => {
  it('is a JSON list with the time first, and a line break', () => {
    expect(encodeCastEvent(0.124251, 'o', 'hello\r\n')).toBe('[0.124251,"o","hello\\r\\n"]\n');
    expect(encodeCastEvent(0, 'i', '')).toBe('[0,"i",""]\n');
  });

  it.each([
    [0, '0'],
    [1e-7, '0'],
    [5e-7, '0.000001'],
    [1e-6, '0.000001'],
    [0.0000123, '0.000012'],
    [1.9492421800000002, '1.949242'],
    [86_400.000001, '86400.000001'],
    [1_795_245_118.123456, '1795245118.123456'],
    [999_999_999_999_999, '999999999999999'],
  ])('writes %d as %s, never with an exponent', (seconds, text) => {
    expect(encodeCastEvent(seconds, 'o', '')).toBe(`[${text},"o",""]\n`);
  });

  it.each([-1, -1e-9, Number.NaN, Number.POSITIVE_INFINITY, 1e15])('refuses the time %d', (seconds) => {
    expect(thrownBy(() => encodeCastEvent(seconds, 'o', '')).code).toBe('malformed');
  });

  it('never lets time run backwards by rounding', () => {
    fc.assert(
      fc.property(
        fc.double({ min: 0, max: 1e6, noNaN: true }),
        fc.double({ min: 0, max: 1e-5, noNaN: true }),
        (start, step) => {
          const [first, second] = [start, start + step].map((time) =>
            parseCastEvent(encodeCastEvent(time, 'o', '')),
          );
          expect(second!.seconds).toBeGreaterThanOrEqual(first!.seconds);
        },
      ),
    );
  });

  it('is read by asciinema-player', async () => {
    const text = '{"version":2,"width":80,"height":24}\n';
    const lines = [
      encodeCastEvent(0.5, 'o', 'héllo \u001b[31m'),
      encodeCastEvent(1.25, 'r', formatResize({ columns: 100, rows: 30 })),
    ];
    const { events } = await parseLikePlayer(text + lines.join(''));
    expect(events).toEqual([
      [500, 'o', 'héllo \u001b[31m'],
      [1250, 'r', '100x30'],
    ]);
  });
});

describe('reading a cast event', () => {
  it('takes codes it does not know, and times with an exponent', () => {
    expect(parseCastEvent('[1e-06,"z","?"]\n')).toEqual({ seconds: 0.000001, code: 'z', data: '?' });
  });

  it.each([
    '',
    'x',
    '{}',
    '[]',
    '[1,"o"]',
    '[1,"o","a","b"]',
    '["1","o","a"]',
    '[-1,"o","a"]',
    '[1e999,"o","a"]',
    '[null,"o","a"]',
    '[1,2,"a"]',
    '[1,"o",2]',
    '[1,"o",null]',
    '[1,"o","a"',
    '# comment',
  ])('refuses %s', (line) => {
    expect(thrownBy(() => parseCastEvent(line)).code).toBe('malformed');
  });
});

describe('resize data', () => {
  it('is COLSxROWS, and reads back', () => {
    expect(formatResize({ columns: 80, rows: 24 })).toBe('80x24');
    expect(parseResize('80x24', { reversed: false })).toEqual({ columns: 80, rows: 24 });
    expect(parseResize('24x80', { reversed: true })).toEqual({ columns: 80, rows: 24 });
  });

  it.each([
    '',
    '80',
    '80x',
    'x24',
    '80X24',
    '80x24x1',
    '-80x24',
    '8.0x24',
    ' 80x24',
    '80x24\n',
    '99999999999x1',
  ])('refuses %j', (text) => {
    expect(thrownBy(() => parseResize(text, { reversed: false })).code).toBe('malformed');
  });
});
