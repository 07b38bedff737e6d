/** Heads of messages that are written by hand, because the connection is about to be something else than HTTP. */
import { formatWarning } from '../../kube/warning.ts';

/** @param fields flat list */
export function encodeHead(status: string, fields: readonly string[]): Buffer {
  let head = `HTTP/1.1 ${status}\r\n`;
  for (let index = 0; index < fields.length; index += 2) head += `${fields[index]}: ${fields[index + 1]}\r\n`;
  return Buffer.from(`${head}\r\n`, 'latin1');
}

/** One `Warning` field per text, as a flat list. */
export function warningLines(warnings: readonly string[]): readonly string[] {
  return warnings.flatMap((text) => ['Warning', formatWarning(text)]);
}
