/**
 * Converts files of asciicast version 1 (docs.asciinema.org) to version 2. A version-1 file is one JSON
 * document that contains the output as pairs of a delay and a text. Pure.
 */
import { jsonOrUndefined } from '../json-value.ts';
import { WireError } from '../wire-error.ts';
import { encodeCastEvent } from './event.ts';
import { isRecord } from '../is-record.ts';

/** Maximum length of a version-1 file, in bytes. The limit is needed because the complete file is read into memory. */
export const MAX_VERSION1_BYTES = 8 * 1024 ** 2;

/** True if a file with this beginning is a version-1 document. */
export function isVersion1(beginning: string): boolean {
  return /^\s*\{/.test(beginning) && /^[^[]*"version"\s*:\s*1\s*[,}]/.test(beginning.slice(0, 4096));
}

/**
 * Returns the header line and the asciicast events in version 2.
 *
 * @throws WireError `malformed` for a damaged document.
 */
export function castFromVersion1(text: string): string {
  const document: unknown = jsonOrUndefined(text);
  if (!isRecord(document) || document['version'] !== 1 || !isList(document['stdout']))
    throw new WireError('malformed', 'the file is not a document of asciicast version 1');
  const { stdout, ...header } = document;
  const lines = [`${JSON.stringify({ ...header, version: 2 })}\n`];
  let seconds = 0;
  for (const event of isList(stdout) ? stdout : []) {
    const [delay, data] = isList(event) ? event : [];
    if (typeof delay !== 'number' || !(delay >= 0) || typeof data !== 'string')
      throw new WireError('malformed', 'an event is not a delay and a text');
    seconds += delay;
    lines.push(encodeCastEvent(seconds, 'o', data));
  }
  return lines.join('');
}

function isList(value: unknown): value is readonly unknown[] {
  return Array.isArray(value);
}
