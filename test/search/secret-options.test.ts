/**
 * The rules about `vault login` and `mkpasswd`, whose options may have a value in the next word. A plain expression for
 * such options tries all ways to read them. The rules must find the same secrets with less CPU.
 */
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { BETWEEN_WORDS, SECRET_RULES } from '../../src/secret-rules.ts';

const VALUE = String.raw`"(?:\\[^\u2028]|[^"\\\u2028])+"?|'(?:[^'\u2028]|'')+'?`;
const valueOf = (first: string): string => String.raw`(?:${VALUE}|(?<=\u2028)${first}[^\u2028]*|${first}\S*)`;
const COMMANDS = [
  {
    word: 'vault',
    plain: new RegExp(
      String.raw`(?<keep>\bvault\s{1,4}login(?:\s{1,4}-(?:method\s{1,4})?\S+){0,8}\s{1,4})` +
        valueOf(String.raw`[^\s=-](?![^\s=]*=)`),
      'g',
    ),
    begin: ['vault login', 'vault   login', 'vault'],
    words: ['-method', '-method=a', '-methoda', '=', 'a=b', '"a=b"', 'login'],
    slow: `vault login${' -method'.repeat(9)} -${'a'.repeat(40)} = `,
    quick: `vault login${' -methods'.repeat(9)} -${'a'.repeat(40)} = `,
  },
  {
    word: 'passwd',
    plain: new RegExp(
      String.raw`(?<keep>\b(?:openssl\s{1,4}passwd|mkpasswd)(?:\s{1,4}(?:-[mSR]\s{1,4}|-)\S{1,32}){0,6}\s{1,4})` +
        valueOf(String.raw`[^\s|;&>-]`),
      'g',
    ),
    begin: ['mkpasswd', 'openssl passwd', 'passwd'],
    words: ['-m', '-S', '-R', '-mx', '|', '|x', ';', ...lengths('-'), ...lengths('a'), ...lengths('|')],
    slow: `mkpasswd${' -m'.repeat(12)} -x | `,
    quick: `mkpasswd${' -n'.repeat(12)} -x | `,
  },
] as const;

function lengths(first: string): readonly string[] {
  return [30, 31, 32, 33].map((rest) => first + 'a'.repeat(rest));
}

function ruleOf(word: string): RegExp {
  return SECRET_RULES.find(({ words, after }) => after === undefined && words.includes(word))!.shape;
}

it.each(COMMANDS)('the rule about $word finds the secrets of the plain expression', (command) => {
  const rule = ruleOf(command.word);
  const others = ['-x', '-x', '-', '--', 'foo', '"a b"', '""', '"', "'", "''x", ...command.begin];
  const space = fc.constantFrom(' ', ' ', ' ', '    ', '     ', BETWEEN_WORDS, '');
  const word = fc.oneof(fc.constantFrom(...command.words), fc.constantFrom(...others));
  const line = fc.tuple(
    fc.constantFrom(...command.begin),
    fc.array(fc.tuple(space, word), { maxLength: 24 }),
  );
  fc.assert(
    fc.property(line, ([begin, rest]) => {
      const text = begin + rest.flat().join('');
      expect(text.replace(rule, '$<keep>[secret]')).toBe(text.replace(command.plain, '$<keep>[secret]'));
    }),
    { numRuns: 20_000 },
  );
});

it.each(COMMANDS)(
  'the rule about $word reads options with values as quickly as others',
  ({ word, slow, quick }) => {
    const cpuOf = (text: string): number => {
      const line = text.repeat(Math.ceil(131_072 / text.length));
      const times = Array.from({ length: 4 }, () => {
        const before = process.cpuUsage();
        expect(line.search(ruleOf(word))).toBe(-1);
        const { user, system } = process.cpuUsage(before);
        return user + system;
      });
      return Math.min(...times);
    };
    expect(cpuOf(slow)).toBeLessThan(4 * cpuOf(quick));
  },
);
