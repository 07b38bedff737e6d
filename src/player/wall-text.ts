/** Wall-clock times of a recording. Pure. */

export type Zone = 'local' | 'utc';

/** Cache of date formats, because creating a format is slow and a list shows many timestamps. */
const formats = new Map<string, Intl.DateTimeFormat>();

/** Returns a wall-clock time with its time zone, optionally with the date. */
export function wallText(at: Date, zone: Zone, withDate = true): string {
  return formatted(at, zone, `wall ${withDate}`, {
    ...(withDate ? { year: 'numeric', month: 'short', day: '2-digit' } : {}),
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    hour12: false,
    timeZoneName: 'short',
  });
}

function formatted(at: Date, zone: Zone, name: string, options: Intl.DateTimeFormatOptions): string {
  if (Number.isNaN(at.getTime())) return '';
  const key = `${zone} ${name}`;
  const format =
    formats.get(key) ??
    new Intl.DateTimeFormat(undefined, { ...options, ...(zone === 'utc' ? { timeZone: 'UTC' } : {}) });
  formats.set(key, format);
  return format.format(at);
}

/** Returns a time as hours and minutes. */
export function clockOf(at: Date, zone: Zone): string {
  return formatted(at, zone, 'clock', { hour: '2-digit', minute: '2-digit', hour12: false });
}

/** Returns a time as hours, minutes and seconds. */
export function secondOf(at: Date, zone: Zone): string {
  return formatted(at, zone, 'time', {
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    hour12: false,
  });
}

/** Returns the day of a time, for headings of groups. */
export function dayOf(at: Date, zone: Zone): string {
  return formatted(at, zone, 'day', { weekday: 'long', year: 'numeric', month: 'long', day: 'numeric' });
}

/** Returns a key for comparisons of days. The key is much faster to create than the text of the day. */
export function dayKeyOf(at: Date, zone: Zone): string {
  return zone === 'utc' ? at.toUTCString().slice(0, 16) : at.toDateString();
}

/** Returns the day, hour and minute of a time, for headlines. */
export function momentOf(at: Date, zone: Zone): string {
  return formatted(at, zone, 'moment', {
    month: 'short',
    day: 'numeric',
    hour: '2-digit',
    minute: '2-digit',
    hour12: false,
  });
}

/** Wall-clock time of a position in a recording. */
export function wallTimeOf(startedAt: string, seconds: number): Date {
  return new Date(Date.parse(startedAt) + seconds * 1000);
}
