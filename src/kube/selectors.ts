/**
 * Parses those parts of field and label selectors that RequestInfo needs. The field selector `metadata.name=x`
 * determines the name of the object if the field selector and the label selector are both valid. The parsers are ported
 * from `k8s.io/apimachinery/pkg/fields` and `pkg/labels`.
 */

/** One requirement of a field selector. Commas separate requirements. */
export interface FieldRequirement {
  readonly field: string;
  readonly equal: boolean;
  readonly value: string;
}

/**
 * Returns the requirements, sorted as in Kubernetes, or undefined for an invalid field selector. Source:
 * `fields.ParseSelector`.
 */
export function readFieldSelector(selector: string): readonly FieldRequirement[] | undefined {
  const terms: FieldRequirement[] = [];
  for (const text of splitTerms(selector).toSorted()) {
    if (text === '') continue;
    const operator = /!=|==|=/.exec(text);
    if (operator === null) return undefined;
    const value = unescapeValue(text.slice(operator.index + operator[0].length));
    if (value === undefined) return undefined;
    terms.push({ field: text.slice(0, operator.index), equal: operator[0] !== '!=', value });
  }
  return terms;
}

/** Splits at commas, except after a backslash. Backslashes are kept. */
function splitTerms(selector: string): string[] {
  const terms: string[] = [];
  let start = 0;
  for (let index = 0; index < selector.length; index++) {
    if (selector[index] === '\\') {
      index++;
    } else if (selector[index] === ',') {
      terms.push(selector.slice(start, index));
      start = index + 1;
    }
  }
  terms.push(selector.slice(start));
  return terms;
}

/** Unescapes `\\`, `\,` and `\=`. Any other backslash, and an unescaped `,` or `=`, make the selector invalid. */
function unescapeValue(escaped: string): string | undefined {
  if (!/^(?:[^\\,=]|\\[\\,=])*$/.test(escaped)) return undefined;
  return escaped.replaceAll(/\\(.)/g, '$1');
}

/** True if `labels.Parse` accepts the text. */
export function isLabelSelector(text: string): boolean {
  const tokens = scanLabelTokens(text);
  let position = 0;
  while (tokens[position] !== END) {
    const next = requirementEnd(tokens, position);
    if (next === undefined) return false;
    if (tokens[next] === END) return true;
    if (tokens[next] !== ',') return false;
    position = next + 1;
    const first = tokens[position] ?? END;
    if (first !== '!' && !isIdentifier(first)) return false;
  }
  return true;
}

const END = '';
const SYMBOLS = new Set(['=', '!', '(', ')', ',', '>', '<']);
const IDENTIFIER_END = /[\s=!(),><\0]/g;
const DOUBLE_SYMBOLS = new Set(['==', '!=']);

/** Returns symbols and identifiers in order, then {@link END}. */
function scanLabelTokens(text: string): readonly string[] {
  const tokens: string[] = [];
  let index = 0;
  while (index < text.length) {
    const character = text.charAt(index);
    if (' \t\r\n'.includes(character)) {
      index++;
    } else if (character === '\0') {
      break;
    } else if (SYMBOLS.has(character)) {
      const pair = text.slice(index, index + 2);
      const symbol = DOUBLE_SYMBOLS.has(pair) ? pair : character;
      tokens.push(symbol);
      index += symbol.length;
      // Go's lexer skips a NUL that ends a token. A NUL at the start of a token ends the text.
      if (text[index] === '\0') index++;
    } else {
      const start = index;
      IDENTIFIER_END.lastIndex = start;
      index = IDENTIFIER_END.exec(text)?.index ?? text.length;
      // Go's lexer treats other whitespace as part of an identifier, which makes the identifier invalid.
      if (index === start) return ['\0', END];
      tokens.push(text.slice(start, index));
      if (text[index] === '\0') index++;
    }
  }
  return [...tokens, END];
}

function isIdentifier(token: string): boolean {
  return token !== END && !SYMBOLS.has(token) && !DOUBLE_SYMBOLS.has(token);
}

/** Returns the position after the requirement that starts at `position`, or undefined if it is invalid. */
function requirementEnd(tokens: readonly string[], position: number): number | undefined {
  const negated = tokens[position] === '!';
  const keyAt = negated ? position + 1 : position;
  if (!isLabelKey(tokens[keyAt] ?? END)) return undefined;
  const operator = tokens[keyAt + 1] ?? END;
  if (negated || operator === END || operator === ',') return keyAt + 1;
  if (operator === 'in' || operator === 'notin') return valueSetEnd(tokens, keyAt + 2);
  if (EQUALITIES.has(operator)) return exactValueEnd(tokens, keyAt + 2);
  if (operator !== '>' && operator !== '<') return undefined;
  return isDecimal(tokens[keyAt + 2] ?? END) ? keyAt + 3 : undefined;
}

const EQUALITIES = new Set(['=', '==', '!=']);

/** Parses one value, which may be missing. */
function exactValueEnd(tokens: readonly string[], position: number): number | undefined {
  const value = tokens[position] ?? END;
  if (value === END || value === ',') return position;
  return isIdentifier(value) && isLabelValue(value) ? position + 1 : undefined;
}

/** Returns true if a label value is an int64. */
function isDecimal(value: string): boolean {
  return /^\d{1,63}$/.test(value) && BigInt(value) < 2n ** 63n;
}

/** Parses `(a,b)`; values may be empty. */
function valueSetEnd(tokens: readonly string[], position: number): number | undefined {
  if (tokens[position] !== '(') return undefined;
  for (let at = position + 1, afterValue = false; ; at++) {
    const token = tokens[at] ?? END;
    if (token === ')') return at + 1;
    if (token === ',') {
      afterValue = false;
    } else {
      if (afterValue || !isIdentifier(token) || !isLabelValue(token)) return undefined;
      afterValue = true;
    }
  }
}

const LABEL_NAME = /^(?:[A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$/;
const DNS_SUBDOMAIN = /^[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*$/;

function isLabelKey(key: string): boolean {
  const slash = key.indexOf('/');
  const prefix = slash === -1 ? undefined : key.slice(0, slash);
  if (prefix !== undefined && (prefix.length > 253 || !DNS_SUBDOMAIN.test(prefix))) return false;
  const name = key.slice(slash + 1);
  return name.length <= 63 && LABEL_NAME.test(name);
}

function isLabelValue(value: string): boolean {
  return value === '' || (value.length <= 63 && LABEL_NAME.test(value));
}
