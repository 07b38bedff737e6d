/**
 * Parses JSON of tailscaled without loss: 64-bit ids stay exact. Rejects repeated keys of an object, because
 * two parsers may use different values. Pure.
 */
import { parseJson } from '../wire/json-value.ts';
import { WireError } from '../wire/wire-error.ts';

/**
 * Parses `text`. Integers that a `number` cannot represent become `bigint`.
 *
 * @throws WireError `malformed` for invalid JSON or a repeated key; `limit` for more than 64 nested levels
 */
export function parseExactJson(text: string): unknown {
  const parsed: unknown = parseJson(text);
  const repeated = findRepeatedKey(text);
  if (repeated !== undefined)
    throw new WireError('malformed', `the key ${JSON.stringify(repeated)} occurs twice`);
  return parsed;
}

/**
 * Folds a key like Go's `encoding/json`. Converts to upper case first, so that the long s and the Kelvin sign
 * become s and k, as in Unicode simple folding.
 */
export function foldName(name: string): string {
  return name.toUpperCase().toLowerCase();
}

/**
 * Returns the first repeated key in an object of valid JSON. Needs one pass over strings and brackets. The
 * caller has already limited the nesting.
 */
function findRepeatedKey(text: string): string | undefined {
  const token = /"(?:[^"\\]|\\.)*"(?=(\s*:)?)|[{}[\]]/g;
  const open: (Set<string> | undefined)[] = [];
  for (let match = token.exec(text); match !== null; match = token.exec(text)) {
    const [lexeme, colon] = match;
    if (lexeme === '{') open.push(new Set());
    else if (lexeme === '[') open.push(undefined);
    else if (lexeme === '}' || lexeme === ']') open.pop();
    else if (colon !== undefined) {
      const key: unknown = JSON.parse(lexeme);
      const keys = open.at(-1);
      if (keys === undefined || typeof key !== 'string') continue;
      if (keys.has(key)) return key;
      keys.add(key);
    }
  }
  return undefined;
}
