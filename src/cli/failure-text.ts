/** Failures as a person reads them: one sentence, with what to do where that is known. Pure. */
import { adviceOn, type TailcastError } from '../errors.ts';

/** Several lines stay several. */
export function sentence(error: TailcastError): string {
  const lines = error.message.split('\n');
  if (lines.length > 1) return error.message.replace(': ', ':\n  ');
  return withAdvice(error.message, error);
}

export function withAdvice(said: string, error: unknown): string {
  const advice = adviceOn(error);
  return advice === undefined ? said : `${said}; ${advice}`;
}
