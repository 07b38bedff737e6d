/** Each rule of `src/secrets.ts` reads a line in linear time, even if a program repeats text that matches the rule. */
import { expect, it, vi } from 'vitest';
import { parseTarget } from '../../src/kube/canonical-target.ts';
import { parseRequestInfo } from '../../src/kube/request-info.ts';
import { redactBody } from '../../src/recording/redact-body.ts';
import { SECRET_RULES } from '../../src/secret-rules.ts';
import { createSecretFilter, replaceSecrets, replaceSecretWords, showWords } from '../../src/secrets.ts';
import { sampleOf } from '../support/pattern-samples.ts';
import { createRandom, runSeed, type Random } from '../support/random.ts';

const SAMPLES = 60;
const SHORT = 4096;

function replaceAll(line: string): void {
  replaceSecrets(line);
  replaceSecretWords(line.split('\u2028'));
}

/** Returns the CPU time of the fastest of several runs, in milliseconds. */
function cpuOf(line: string, runs: number, run = replaceAll): number {
  const times = Array.from({ length: runs }, () => {
    const before = process.cpuUsage();
    run(line);
    const { user, system } = process.cpuUsage(before);
    return (user + system) / 1000;
  });
  return Math.min(...times);
}

/** Returns a few complete or incomplete matches of the patterns. */
function repeatedText(patterns: readonly string[], random: Random): string {
  const pieces = Array.from({ length: 1 + random.below(3) }, () => {
    const piece = sampleOf(random.pick(patterns), random);
    const begin = random.oneIn(2) ? piece : piece.slice(0, random.below(piece.length) + 1);
    return begin + random.pick(['', '', ' ', '"', "'", '\u2028']);
  });
  return pieces.join('') || ' ';
}

it.each([
  '-----BEGIN PRIVATE KEY-----',
  '-----BEGIN PRIVATE KEY-----Comment: ',
  '-----BEGIN PRIVATE KEY----- aaaaaaaaaaaaaaa',
  '\nPrivate-Lines: 1\n',
  ' aaaaaaaaaaaaaaaa\\n',
  'token="$(',
  'token=$(',
])('a key with %j needs CPU in proportion to its length', (text) => {
  const keyOf = (length: number): string => `-----BEGIN PRIVATE KEY-----${text.repeat(length / text.length)}`;
  expect(cpuOf(keyOf(16 * SHORT), 3)).toBeLessThan(8 * cpuOf(keyOf(4 * SHORT), 3) + 8);
});

it.each(
  SECRET_RULES.map(({ words, shape, after }) => {
    const patterns = [after?.option.source ?? shape.source, after?.command.source ?? shape.source];
    return [words.join(' '), [...patterns, shape.source]] as const;
  }),
)('the rule about %j needs CPU in proportion to the length of a line', (_, patterns) => {
  const seed = runSeed();
  const random = createRandom(seed);
  for (let sample = 0; sample < SAMPLES; sample += 1) {
    const text = repeatedText(patterns, random);
    const end = random.oneIn(3) ? ` ${sampleOf(random.pick(patterns), random)}` : '';
    const lineOf = (length: number): string => text.repeat(Math.ceil(length / text.length)) + end;
    const long = lineOf(4 * SHORT);
    if (cpuOf(long, 1) < 8) continue;
    // the line is four times as long, so quadratic time would be 16 times as long
    const limit = 8 * cpuOf(lineOf(SHORT), 3) + 4;
    expect(cpuOf(long, 3), `TEST_SEED=${seed} ${JSON.stringify([text, end])}`).toBeLessThan(limit);
  }
});

/** Returns the regular expressions that the functions of `secrets.ts` and `redact-body.ts` run, except the rules. */
function otherExpressions(): readonly RegExp[] {
  const found = new Map<string, RegExp>();
  const rules = new Set(SECRET_RULES.flatMap(({ shape, after }) => [shape, after?.option, after?.command]));
  const exec = RegExp.prototype.exec;
  const spy = vi.spyOn(RegExp.prototype, 'exec').mockImplementation(function (this: RegExp, text) {
    if (!rules.has(this)) found.set(String(this), new RegExp(this.source, this.flags));
    return exec.call(this, text);
  });
  const filter = createSecretFilter();
  for (const line of ['-----BEGIN PRIVATE KEY-----', 'a b', '-----END PRIVATE KEY-----']) filter(line);
  showWords(['app', '--password', 'hunter2'], undefined, false);
  const args = { op: 'add', path: '/spec/containers/0/args/-', value: '--token=hunter2' };
  const path = { op: 'add', path: '/spec/containers/0/livenessProbe/httpGet/path', value: '/?a' };
  for (const body of [[args, path], { spec: { containers: [{ command: ['app', '--token=a'] }] } }])
    redactBody(POD, new TextEncoder().encode(JSON.stringify(body)), false);
  spy.mockRestore();
  return [...found.values()];
}
const POD = parseRequestInfo('PATCH', parseTarget('/api/v1/namespaces/n/pods/p'));

it.each(otherExpressions().map((expression) => [String(expression).slice(0, 60), expression] as const))(
  'the regular expression %s needs CPU in proportion to the length of a text',
  (_, expression) => {
    const seed = runSeed();
    const random = createRandom(seed);
    const match = (text: string): unknown => text.search(expression);
    for (let sample = 0; sample < 4 * SAMPLES; sample += 1) {
      const text = repeatedText([expression.source], random);
      const end = random.pick(['', '\n', ' ', '!', '\u2028']);
      const textOf = (length: number): string => text.repeat(Math.ceil(length / text.length)) + end;
      if (cpuOf(textOf(4 * SHORT), 1, match) < 8) continue;
      const limit = 8 * cpuOf(textOf(SHORT), 3, match) + 4;
      const cpu = cpuOf(textOf(4 * SHORT), 3, match);
      expect(cpu, `TEST_SEED=${seed} ${JSON.stringify([text, end])}`).toBeLessThan(limit);
    }
  },
);
