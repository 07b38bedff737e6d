/** Messages about wrong arguments, which replace the messages of the argument parser. */
import type { CommanderError } from 'commander';
import { TailcastError } from '../errors.ts';
import { formatFailure } from './failure-text.ts';
import { print } from './output.ts';

/**
 * Patterns of the parser's messages, and the replacement for each. A replacement may contain the pattern's matched
 * groups.
 */
const SENTENCES: readonly (readonly [RegExp, string])[] = [
  [/^unknown option '(.+?)'/, 'there is no option $1'],
  [/^unknown command '(.+?)'/, 'there is no command $1'],
  [/^missing required argument '(.+?)'/, '<$1> is missing'],
  [/^required option '(.+?)' not specified/, '$1 is missing'],
  [/^option '(.+?)' argument missing/, '$1: a value is missing'],
  [/^option '(\S+).*?' argument '([^]*?)' is invalid\. Allowed choices are /, '$1: not $2, but one of: '],
  [/^option '(\S+).*?' argument '([^]*?)' is invalid\. /, '$1: '],
  [
    /^command-argument value '([^]*?)' is invalid for argument '(.+?)'\. Allowed choices are /,
    '<$2>: not $1, but one of: ',
  ],
  [/^command-argument value '([^]*?)' is invalid for argument '(.+?)'\. /, '<$2>: '],
  [
    /^too many arguments(?: for '.+?')?\. Expected (\d+) arguments? but got (\d+): /,
    '$2 arguments instead of $1: ',
  ],
];

function usageText(message: string): string {
  const text = message.replace(/^error: /, '').replace(/\n\(Did you mean ([^]*?)\?\)$/, '; did you mean $1?');
  const found = SENTENCES.find(([pattern]) => pattern.test(text));
  return (found === undefined ? text : text.replace(...found)).replace(/\.$/, '');
}

/**
 * Prints an error of the argument parser. The parser itself has already printed the help, if requested. @returns the
 * exit code
 */
export async function reportUsage(
  { exitCode, code, message }: CommanderError,
  stderr: Parameters<typeof print>[0],
): Promise<number> {
  if (exitCode === 0) return 0;
  if (code !== 'commander.help')
    await print(stderr, formatFailure(new TailcastError('USAGE', usageText(message))));
  return 2;
}
