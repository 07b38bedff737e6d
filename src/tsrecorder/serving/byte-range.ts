/** Parses the `Range` header of a request for one range (RFC 9110 14.1.2). */
import type { ByteRange } from '../files/file-range.ts';

/**
 * Parses a Range header.
 * @param header header as received
 * @param bytes length of the content
 * @returns the range; `'whole'` if there is no header, or if the header has another unit or several ranges;
 *   `'unsatisfiable'` if the range is outside the content
 */
export function parseRange(header: string | undefined, bytes: number): ByteRange | 'whole' | 'unsatisfiable' {
  const match = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header?.trim() ?? '');
  if (match === null) return 'whole';
  const [, first = '', last = ''] = match;
  if (first === '' && last === '') return 'whole';
  if (first === '') {
    const suffix = Math.min(Number(last), bytes);
    return suffix === 0 ? 'unsatisfiable' : { start: bytes - suffix, end: bytes };
  }
  const start = Number(first);
  if (last !== '' && Number(last) < start) return 'whole';
  if (start >= bytes) return 'unsatisfiable';
  return { start, end: last === '' ? bytes : Math.min(Number(last) + 1, bytes) };
}
