/** Makes text from clients, clusters and recorders safe for terminals. Pure. */

/**
 * Characters that control a terminal or are invisible: C0 and C1 controls, DEL, line and paragraph separators,
 * bidirectional controls, zero-width and tag characters, lone surrogates.
 */
export const UNSAFE_CHARACTERS =
  // oxlint-disable-next-line no-control-regex -- controls are what this matches
  /[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]|\p{Cs}/gu;

/** Replaces unsafe characters by U+FFFD, including line feeds and tabs. */
export function safeLine(text: string): string {
  return text.replaceAll(UNSAFE_CHARACTERS, '\ufffd');
}

/** Replaces unsafe characters by U+FFFD, except line feeds and tabs. */
export function safeLines(text: string): string {
  return text.replaceAll(UNSAFE_CHARACTERS, (found) => (found === '\n' || found === '\t' ? found : '\ufffd'));
}

/** Matches text that needs no escaping. This check is fast, and most text is printable ASCII. */
const PRINTABLE = /^[\x20-\x7e\n]*$/;

/**
 * Escapes the unsafe characters in lines of JSON. The result represents the same JSON values and is safe to print in
 * terminals.
 */
export function escapeLogLines(lines: string): string {
  if (PRINTABLE.test(lines)) return lines;
  return lines.replaceAll(UNSAFE_CHARACTERS, (found) =>
    found === '\n'
      ? found
      : Array.from(
          { length: found.length },
          (_, at) => `\\u${found.charCodeAt(at).toString(16).padStart(4, '0')}`,
        ).join(''),
  );
}
