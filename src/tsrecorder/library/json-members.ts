/**
 * Finds the top-level fields of a JSON object without changing the text.
 *
 * Headers and events contain unknown keys, and 64-bit integers that `JSON.parse` would round. For this reason, the
 * parsed value is never serialised. Fields are located, removed and added as text.
 */

/** A top-level field. Offsets are UTF-16 indexes of the text. `[start, end)` is the complete field without commas. */
export interface JsonMember {
  readonly name: string;
  readonly start: number;
  readonly valueStart: number;
  readonly end: number;
}

/** Valid text of one JSON object, with the positions of its fields. */
export interface JsonObjectText {
  /** Text without surrounding white space. The text starts with `{` and ends with `}`. */
  readonly text: string;
  /** Result of `JSON.parse`. Integers above 2^53 are rounded in `value` and exact in `text`. */
  readonly value: ReadonlyMap<string, unknown>;
  readonly members: readonly JsonMember[];
}

/**
 * Parses `text` and locates the fields.
 *
 * @returns undefined if `text` is not one JSON object (RFC 8259), or has a duplicate field
 */
export function readJsonObject(text: string): JsonObjectText | undefined {
  const trimmed = text.trim();
  let parsed: unknown;
  try {
    parsed = JSON.parse(trimmed);
  } catch {
    return undefined;
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) return undefined;
  const members = locateMembers(trimmed);
  const value = new Map<string, unknown>(Object.entries(parsed));
  return value.size === members.length ? { text: trimmed, value, members } : undefined;
}

/**
 * Sets fields to raw JSON texts. An existing field keeps its position, and a new field is appended. All other bytes
 * stay the same.
 */
export function spliceMembers(object: JsonObjectText, replacements: ReadonlyMap<string, string>): string {
  const parts: string[] = [];
  const placed = new Set<string>();
  let position = 0;
  for (const member of object.members) {
    const replacement = replacements.get(member.name);
    if (replacement === undefined) continue;
    parts.push(object.text.slice(position, member.valueStart), replacement);
    position = member.end;
    placed.add(member.name);
  }
  parts.push(object.text.slice(position, -1));
  let separator = object.members.length === 0 ? '' : ',';
  for (const [name, json] of replacements) {
    if (placed.has(name)) continue;
    parts.push(separator, JSON.stringify(name), ':', json);
    separator = ',';
  }
  parts.push('}');
  return parts.join('');
}

/** Locates the fields. `text` is valid JSON, so the scan only tracks strings and nesting. */
function locateMembers(text: string): JsonMember[] {
  const members: JsonMember[] = [];
  let position = skipSpace(text, 1);
  while (text[position] === '"') {
    const start = position;
    const nameEnd = skipString(text, position);
    const valueStart = skipSpace(text, skipSpace(text, nameEnd) + 1);
    const end = skipValue(text, valueStart);
    members.push({ name: String(JSON.parse(text.slice(start, nameEnd))), start, valueStart, end });
    position = skipSpace(text, end);
    if (text[position] === ',') position = skipSpace(text, position + 1);
  }
  return members;
}

function skipSpace(text: string, position: number): number {
  while (' \t\r\n'.includes(text[position] ?? 'x')) position += 1;
  return position;
}

/** Skips from quote to quote, because strings may be megabytes long. */
function skipString(text: string, start: number): number {
  for (let quote = text.indexOf('"', start + 1); ; quote = text.indexOf('"', quote + 1)) {
    let backslashes = 0;
    while (text[quote - 1 - backslashes] === '\\') backslashes += 1;
    if (backslashes % 2 === 0) return quote + 1;
  }
}

function skipValue(text: string, position: number): number {
  let depth = 0;
  for (;;) {
    const character = text[position];
    if (character === '"') {
      position = skipString(text, position);
      if (depth === 0) return position;
      continue;
    }
    if (character === '{' || character === '[') depth += 1;
    else if (character === '}' || character === ']') {
      if (depth === 0) return position;
      depth -= 1;
      if (depth === 0) return position + 1;
    } else if (depth === 0 && (character === undefined || ', \t\r\n'.includes(character))) return position;
    position += 1;
  }
}
