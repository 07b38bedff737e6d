/** Explains why a search does not find a secret. Pure. */
import { replaceSecrets, SECRET } from '../secrets.ts';
import type { Query } from './query.ts';

const NOTICE =
  'Values that look like secrets are not indexed. Search for a word next to the value, ' +
  'or for the user and the time, and read the transcript.';

/** Placeholder for a secret in the index. */
export const REDACTED = SECRET;

/** Description of the text in an index, as part of a sentence. */
export const COVERED_TEXT = 'names, commands and the text on the screens';
export const NOT_INDEXED =
  'The index has no keyboard input and no secrets. For long binary output, it contains only the printable text.';

/** Returns a notice if a query searches for text that looks like a secret. No index contains such text. */
export function secretNotice({ clauses }: Query): string | undefined {
  const isSecret = clauses
    .flat()
    .some((term) => term.kind === 'text' && !term.isNot && replaceSecrets(term.value) !== term.value);
  return isSecret ? NOTICE : undefined;
}
