/** Wall-clock times of a recording. Pure. */

export type Zone = 'local' | 'utc';

/** Cache of formats: creating one is slow, and a list shows many times. */
const formats = new Map<string, Intl.DateTimeFormat>();

/** Wall-clock time with its zone, because even a time without a date needs one. */
export function wallText(at: Date, zone: Zone, withDate = true): string {
  if (Number.isNaN(at.getTime())) return '';
  const name = `${zone} ${withDate}`;
  const format = formats.get(name) ?? formatFor(zone, withDate);
  formats.set(name, format);
  return format.format(at);
}

function formatFor(zone: Zone, withDate: boolean): Intl.DateTimeFormat {
  return new Intl.DateTimeFormat(undefined, {
    ...(withDate ? { year: 'numeric', month: 'short', day: '2-digit' } : {}),
    hour: '2-digit',
    minute: '2-digit',
    second: '2-digit',
    hour12: false,
    timeZoneName: 'short',
    ...(zone === 'utc' ? { timeZone: 'UTC' } : {}),
  });
}

/** Wall-clock time of a position in a recording. */
export function wallTimeOf(startedAt: string, seconds: number): Date {
  return new Date(Date.parse(startedAt) + seconds * 1000);
}
