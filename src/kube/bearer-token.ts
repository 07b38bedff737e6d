/** Comparison of bearer tokens with a fixed secret. */
import { hash, timingSafeEqual } from 'node:crypto';
import { headerLines } from './headers.ts';

/**
 * True if the request has exactly one `Authorization` header, and it is the bearer token `token`. Takes constant
 * time.
 */
export function hasBearerToken(rawHeaders: readonly string[], token: string): boolean {
  const [authorization = '', ...more] = headerLines(rawHeaders, 'authorization');
  const presented = /^bearer +(\S+)$/i.exec(authorization)?.[1];
  return presented !== undefined && more.length === 0 && isSameSecret(presented, token);
}

/** Compares in constant time, for any lengths. */
export function isSameSecret(left: string, right: string): boolean {
  const digest = (text: string): Buffer => hash('sha256', text, 'buffer');
  return timingSafeEqual(digest(left), digest(right));
}
