/**
 * Wall-clock times of a recording, in English and in the 24-hour format. Pure. `Intl` is not used, because its first
 * use delays the first picture of the page by about 60 ms.
 */

export type Zone = 'local' | 'utc';

const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const MONTHS = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];

/** Parts of a wall-clock time. */
interface WallTime {
  /** Name of the day of the week. */
  readonly weekday: string;
  readonly year: number;
  /** Name of the month. */
  readonly month: string;
  readonly day: number;
  /** Hours, minutes and seconds: `08:14:05`. */
  readonly time: string;
  /** Difference from UTC: `UTC`, `UTC+2` or `UTC-03:30`. */
  readonly zone: string;
}

function wallTime(at: Date, zone: Zone): WallTime | undefined {
  if (Number.isNaN(at.getTime())) return undefined;
  const minutes = zone === 'utc' ? 0 : -at.getTimezoneOffset();
  // the UTC fields of this date contain the local time of `at`
  const local = new Date(at.getTime() + minutes * 60_000);
  return {
    weekday: DAYS[local.getUTCDay()] ?? '',
    year: local.getUTCFullYear(),
    month: MONTHS[local.getUTCMonth()] ?? '',
    day: local.getUTCDate(),
    time: [local.getUTCHours(), local.getUTCMinutes(), local.getUTCSeconds()].map(twoDigits).join(':'),
    zone: zoneText(minutes),
  };
}

function zoneText(minutes: number): string {
  if (minutes === 0) return 'UTC';
  const hours = Math.floor(Math.abs(minutes) / 60);
  const rest = Math.abs(minutes) % 60;
  return `UTC${minutes < 0 ? '-' : '+'}${rest === 0 ? hours : `${twoDigits(hours)}:${twoDigits(rest)}`}`;
}

function twoDigits(number: number): string {
  return String(number).padStart(2, '0');
}

/** Returns a wall-clock time with its time zone, optionally with the date. */
export function wallText(at: Date, zone: Zone, withDate = true): string {
  const wall = wallTime(at, zone);
  if (wall === undefined) return '';
  const date = `${wall.month.slice(0, 3)} ${twoDigits(wall.day)}, ${wall.year}, `;
  return `${withDate ? date : ''}${wall.time} ${wall.zone}`;
}

/** Returns a time as hours and minutes. */
export function clockOf(at: Date, zone: Zone): string {
  return secondOf(at, zone).slice(0, 5);
}

/** Returns a time as hours, minutes and seconds. */
export function secondOf(at: Date, zone: Zone): string {
  return wallTime(at, zone)?.time ?? '';
}

/** Returns the day of a time, for headings of groups: `Friday, November 27, 2026`. */
export function dayOf(at: Date, zone: Zone): string {
  const wall = wallTime(at, zone);
  return wall === undefined ? '' : `${wall.weekday}, ${wall.month} ${wall.day}, ${wall.year}`;
}

/** Returns the day, hour and minute of a time, for headlines: `Nov 27, 08:14`. */
export function momentOf(at: Date, zone: Zone): string {
  const wall = wallTime(at, zone);
  return wall === undefined ? '' : `${wall.month.slice(0, 3)} ${wall.day}, ${wall.time.slice(0, 5)}`;
}

/** Wall-clock time of a position in a recording. */
export function wallTimeOf(startedAt: string, seconds: number): Date {
  return new Date(Date.parse(startedAt) + seconds * 1000);
}
