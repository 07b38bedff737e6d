/** Formats all errors for users: what happened, the value that caused it, the advice and the code. Pure. */
import { TailcastError, adviceOn, errorText } from '../errors.ts';
import { WireError } from '../wire/wire-error.ts';
import { ERROR_ADVICE } from './error-advice.ts';

/**
 * Returns the lines on stderr for an error that stopped a command. Line breaks in details are kept. For a defect of
 * tailcast, the lines include the stack.
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
