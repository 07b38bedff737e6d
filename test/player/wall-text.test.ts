import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { clockOf, dayOf, momentOf, secondOf, wallText, type Zone } from '../../src/player/wall-text.ts';

const MORNING = new Date('2026-11-27T08:04:05.678Z');

describe('wall-clock times', () => {
  it('have the texts of English', () => {
    expect(wallText(MORNING, 'utc')).toBe('Nov 27, 2026, 08:04:05 UTC');
    expect(wallText(MORNING, 'utc', false)).toBe('08:04:05 UTC');
    expect(dayOf(MORNING, 'utc')).toBe('Friday, November 27, 2026');
    expect(momentOf(MORNING, 'utc')).toBe('Nov 27, 08:04');
    expect(secondOf(MORNING, 'utc')).toBe('08:04:05');
    expect(clockOf(MORNING, 'utc')).toBe('08:04');
  });

  it('name the difference of the local zone from UTC', () => {
    const localText = (offset: number): string =>
      wallText(Object.assign(new Date(MORNING), { getTimezoneOffset: () => offset }), 'local');
    expect(localText(-60)).toBe('Nov 27, 2026, 09:04:05 UTC+1');
    expect(localText(-16 * 60)).toBe('Nov 28, 2026, 00:04:05 UTC+16');
    expect(localText(210)).toBe('Nov 27, 2026, 04:34:05 UTC-03:30');
    expect(localText(0)).toBe('Nov 27, 2026, 08:04:05 UTC');
  });

  it('are those of Intl, for every time', () => {
    const format = (zone: Zone): Intl.DateTimeFormat =>
      new Intl.DateTimeFormat('en-US', {
        ...(zone === 'utc' ? { timeZone: 'UTC' } : {}),
        year: 'numeric',
        month: 'short',
        day: '2-digit',
        hour: '2-digit',
        minute: '2-digit',
        second: '2-digit',
        hourCycle: 'h23',
      });
    const formats = { utc: format('utc'), local: format('local') };
    const times = fc.date({ min: new Date('1971-01-01'), max: new Date('2100-01-01'), noInvalidDate: true });
    fc.assert(
      fc.property(times, fc.constantFrom<Zone>('utc', 'local'), (at, zone) => {
        expect(wallText(at, zone).replace(/ UTC\S*$/, '')).toBe(formats[zone].format(at));
      }),
    );
  });

  it('are empty for an invalid time', () => {
    for (const text of [wallText, dayOf, momentOf, secondOf, clockOf])
      expect(text(new Date(Number.NaN), 'utc')).toBe('');
  });
});
