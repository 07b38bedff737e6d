import fc from 'fast-check';
import { TailcastError } from '../../src/errors.ts';
import { parseTarget, type Target } from '../../src/kube/canonical-target.ts';

const REFUSALS: ReadonlySet<string> = new Set(['REQUEST_NOT_CANONICAL', 'TARGET_TOO_LONG']);

const SEGMENTS = [
  'api',
  'apis',
  'v1',
  'apps',
  'namespaces',
  'n',
  'pods',
  'p',
  'services',
  'nodes',
  'proxy',
  'watch',
  'status',
  'finalize',
  'exec',
  'attach',
  'portforward',
  'log',
  'ephemeralcontainers',
  'EXEC',
  '%65xec',
  'https:s:80',
  'a%3Ab',
  'foo.bar',
  '',
  '.',
  '..',
  '%2e%2e',
  '.%2E',
  '%2F',
  'a%2fb',
  '%5c',
  '\\',
  '%00',
  '%0a',
  '%25',
  '%252e',
  ';x',
  '%3b',
  '%c3%a9',
  '%ff',
  '%',
  '%zz',
  '€',
  '#',
  ' ',
] as const;

/** Random request targets, most of them similar to a Kubernetes path. */
export const oddTarget: fc.Arbitrary<string> = fc
  .tuple(
    fc.constantFrom(
      '/',
      '/',
      '/',
      '/api/v1/',
      '/api/v1/namespaces/n/',
      '/api/v1/namespaces/n/pods/p/proxy/',
      '/api/v1/nodes/n/proxy/',
      '//',
      '',
      'http://h/',
    ),
    fc.array(
      fc.oneof(
        { weight: 6, arbitrary: fc.constantFrom(...SEGMENTS.slice(0, 24)) },
        fc.constantFrom(...SEGMENTS),
      ),
      { maxLength: 7 },
    ),
    fc.constantFrom('', '', '/', '//'),
    fc.constantFrom(
      '',
      '',
      '?',
      '?watch=1',
      '?watch=0&fieldSelector=metadata.name%3Dx',
      '?command=a&command=b',
      '?a;b=%zz&tty',
      '?a#b',
    ),
  )
  .map(([start, segments, end, query]) => `${start}${segments.join('/')}${end}${query}`);

/** Returns undefined for a target that is not canonical; rethrows any other error. */
export function targetOf(raw: string): Target | undefined {
  try {
    return parseTarget(raw);
  } catch (error) {
    if (error instanceof TailcastError && REFUSALS.has(error.code)) return undefined;
    throw error;
  }
}
