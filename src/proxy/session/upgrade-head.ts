/** Heads of messages that are written by hand, because the connection is about to be something else than HTTP. */
import { formatWarning } from '../../kube/warning.ts';

/** @param fields flat list */
export function encodeUpgradeHead(status: string, fields: readonly string[]): Buffer {
  let head = `HTTP/1.1 ${status}\r\n`;
  for (let index = 0; index < fields.length; index += 2) head += `${fields[index]}: ${fields[index + 1]}\r\n`;
  return Buffer.from(`${head}\r\n`, 'latin1');
}

/** One `Warning` field per text, as a flat list. */
export function warningLines(warnings: readonly string[]): readonly string[] {
  return warnings.flatMap((text) => ['Warning', formatWarning(text)]);
}

/** A body in chunks (RFC 9112 §7.1); what breaks off has no last one. */
export async function* encodeChunks(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array | string> {
  for await (const piece of body) {
    if (piece.length === 0) continue;
    yield `${piece.length.toString(16)}\r\n`;
    yield piece;
    yield '\r\n';
  }
  yield '0\r\n\r\n';
}
