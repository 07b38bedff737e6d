import { describe, expect, it } from 'vitest';
import { parseQuery, printQuery, QueryError } from '../../src/search/query.ts';

const NOW = Date.parse('2026-02-01T00:00:00Z');
const parse = (text: string) => parseQuery(text, NOW);

function refusal(text: string): string {
  try {
    parse(text);
  } catch (error) {
    if (error instanceof QueryError) return error.message;
    throw error;
  }
  return 'no refusal';
}

describe('a query', () => {
  it('is read term by term', () => {
    expect(
      parse('user:alice ns:prod OR namespace:dev -pod:web-* "rm -rf" kube* cmd:"kubectl delete"'),
    ).toEqual({
      clauses: [
        [{ isNot: false, kind: 'field', field: 'user', value: 'alice', isPrefix: true }],
        [
          { isNot: false, kind: 'field', field: 'ns', value: 'prod', isPrefix: false },
          { isNot: false, kind: 'field', field: 'ns', value: 'dev', isPrefix: false },
        ],
        [{ isNot: true, kind: 'field', field: 'pod', value: 'web-', isPrefix: true }],
        [{ isNot: false, kind: 'text', field: 'any', value: 'rm -rf', isPrefix: false }],
        [{ isNot: false, kind: 'text', field: 'any', value: 'kube', isPrefix: true }],
        [{ isNot: false, kind: 'text', field: 'cmd', value: 'kubectl delete', isPrefix: false }],
      ],
    });
    expect(parse('  ')).toEqual({ clauses: [] });
  });

  it('matches a user by the beginning of the name, unless the name is complete or in quotes', () => {
    const users = parse('user:alice user:"alice" user:alice@example.com user:bob*').clauses.flat();
    expect(users.map((term) => 'isPrefix' in term && term.isPrefix)).toEqual([true, false, false, true]);
    expect(printQuery(parse('user:alice user:"alice" user:a@b'))).toBe('user:alice* user:"alice" user:a@b');
  });

  it('excludes a term after NOT, after ! and, if it has a key, after a dash', () => {
    const excluded = (text: string) =>
      parse(text)
        .clauses.flat()
        .map(({ isNot, value }) => [isNot, value]);
    expect(excluded('NOT rm !mv -pod:web NOT pod:db !pod:dns')).toEqual([
      [true, 'rm'],
      [true, 'mv'],
      [true, 'web'],
      [true, 'db'],
      [true, 'dns'],
    ]);
  });

  it('takes a dash before a word as text, as in a command line', () => {
    expect(parse('rm -rf --force').clauses.flat()).toEqual(
      ['rm', '-rf', '--force'].map((value) => ({
        isNot: false,
        kind: 'text',
        field: 'any',
        value,
        isPrefix: false,
      })),
    );
    expect(printQuery(parse('rm -rf NOT "-rf" !"a b" "NOT" "!x" "-pod:a"'))).toBe(
      'rm -rf NOT -rf NOT "a b" "NOT" "!x" "-pod:a"',
    );
  });

  it('has times, durations and exit codes', () => {
    const [after, before, duration, exit] = parse(
      'after:2026-01-01 before:7d duration:>1h exit:!=0',
    ).clauses.flat();
    expect(after).toMatchObject({ kind: 'time', atMs: Date.parse('2026-01-01') });
    expect(before).toMatchObject({ kind: 'time', atMs: NOW - 7 * 86_400_000 });
    expect(duration).toMatchObject({ kind: 'compare', operator: '>', number: 3600 });
    expect(exit).toMatchObject({ kind: 'compare', operator: '!=', number: 0 });
  });

  it.each([
    ['usr:alice', 'did you mean user:?'],
    ['http://host', 'write "http://host"'],
    ['kind:shell', 'kind: is one of exec, attach, ssh, unknown'],
    ['state:done', 'state: is one of'],
    ['state:open', 'state: is one of running, completed, interrupted, violated, damaged'],
    ['trust:sound', 'trust: is one of verified, unverified, failed'],
    ['result:fine', 'result: is an exit code, "failed to start" or "client disconnected"'],
    ['result:client*', 'result: is an exit code'],
    ['result:!=0', 'use exit:!=0'],
    ['user:', 'user: needs a value'],
    ['"open', 'a quote is not closed'],
    ['OR a', 'OR must be between two terms'],
    ['a OR', 'OR must be between two terms'],
    ['a OR OR b', 'OR must be between two terms'],
    ['ku*', 'at least 3 characters'],
    ['--', 'there is no word'],
    ['-usr:alice', 'did you mean user:?'],
    ['-"rm -rf"', 'write NOT before it'],
    ['a NOT', 'NOT must be before a term'],
    ['NOT NOT a', 'NOT must be before a term'],
    ['NOT OR b', 'OR must be between two terms'],
    ['(rm OR mv) -rf', 'parentheses do not group terms; to search for (rm, write it in quotes'],
    ['NEAR(', 'parentheses do not group terms'],
    ['user:a)', 'parentheses do not group terms'],
    ['before:yesterday', 'takes a date'],
    ['after:2026-13-45', 'takes a date'],
    ['exit:x', 'exit: takes a code'],
    ['duration:>', 'duration: takes a time'],
    ['x'.repeat(600), 'at most 512 characters'],
    [`x${'"'.repeat(300)}`, 'at most 512 characters'], // 301 characters, but more than 512 after the quotes are escaped
    [Array.from({ length: 17 }, (_, index) => `w${index}`).join(' '), 'at most 16 terms'],
    [`"${'w '.repeat(33)}"`, 'at most 32 words'],
  ])('that cannot be understood says so: %s', (text, message) => {
    expect(refusal(text)).toContain(message);
  });

  it('takes what means something to engines for what it is: text', () => {
    for (const text of [
      'NEAR()',
      'main()',
      'a AND b',
      '10.0.0.1:80',
      "';drop",
      'x^2',
      '{a}',
      'a+b',
      '\0x',
      '\ud800x',
      'c:\\x y',
    ])
      expect(() => printQuery(parse(text.startsWith('c:') ? `"${text}` + '"' : text)), text).not.toThrow();
  });
});
