/** The one formatter of errors for people: what happened with which value, what to do, the code. Pure. */
import { TailcastError, adviceOn, errorText } from '../errors.ts';
import { WireError } from '../wire/wire-error.ts';
import { ERROR_ADVICE } from './error-advice.ts';

/**
 * The lines that a command writes to stderr for an error that ended it. Details in several lines stay several lines. A
 * defect of tailcast shows its stack as well.
 */
export function formatFailure(error: unknown): string {
  if (error instanceof TailcastError) {
    const advice = adviceOn(error) ?? ERROR_ADVICE[error.code];
    const lines = error.message.replace(/: (?=[^\n]*\n)/, ':\n  ');
    return `tailcast: ${lines}\n  ${asSentence(advice)} [${error.code}]\n`;
  }
  if (error instanceof WireError) {
    const code = error.code === 'limit' ? 'WIRE_LIMIT' : 'WIRE_MALFORMED';
    return formatFailure(new TailcastError(code, error.message, { cause: error }));
  }
  const advice = adviceOn(error);
  if (advice !== undefined || (error instanceof Error && 'code' in error))
    return `tailcast: ${errorText(error)}\n${advice === undefined ? '' : `  ${asSentence(advice)}\n`}`;
  const stack = error instanceof Error ? (error.stack ?? error.message) : errorText(error);
  return `tailcast: ${stack}\n  ${ERROR_ADVICE.INTERNAL} [INTERNAL]\n`;
}

function asSentence(text: string): string {
  return `${text.slice(0, 1).toUpperCase()}${text.slice(1)}${text.endsWith('.') ? '' : '.'}`;
}
