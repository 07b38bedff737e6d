/**
 * JSON as tailscaled writes it, read without losing anything that decides who somebody is: 64-bit IDs stay exact and a
 * name that occurs twice in one object is refused, because two readers of such a text may believe different values.
 * Pure.
 */
import { parseJson } from '../wire/json-value.ts';
import { WireError } from '../wire/wire-error.ts';

/**
 * Parses `text`. Integers that a `number` cannot hold become `bigint`.
 *
 * @throws WireError `malformed` when it is no JSON or names a key twice in one object; `limit` when it is nested more than 64 deep
 */
export function parseExactJson(text: string): unknown {
  const parsed: unknown = parseJson(text);
  const repeated = findRepeatedKey(text);
  if (repeated !== undefined)
    throw new WireError('malformed', `the key ${JSON.stringify(repeated)} occurs twice`);
  return parsed;
}

/**
 * The name of an object member as Go's `encoding/json` compares it with the fields it looks for. Through upper case
 * first, as Unicode simple folding does: the long s and the Kelvin sign are s and k.
 */
export function foldName(name: string): string {
  return name.toUpperCase().toLowerCase();
}

/**
 * The first key that occurs twice in one object of a text already known to be valid JSON. One pass over the strings and
 * brackets; nesting is bounded by `JSON.parse`, which ran before.
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
