/**
 * Response heads for connections that leave HTTP. They are encoded here, because Node's HTTP server no longer owns the
 * socket.
 */
import { formatWarning } from '../../kube/warning.ts';

/** Encodes a response head. @param fields flat list of header names and values */
export function encodeUpgradeHead(status: string, fields: readonly string[]): Buffer {
  let head = `HTTP/1.1 ${status}\r\n`;
  for (let index = 0; index < fields.length; index += 2) head += `${fields[index]}: ${fields[index + 1]}\r\n`;
  return Buffer.from(`${head}\r\n`, 'latin1');
}

/** Returns one `Warning` header per text, as a flat list. */
export function warningLines(warnings: readonly string[]): readonly string[] {
  return warnings.flatMap((text) => ['Warning', formatWarning(text)]);
}

/** Encodes a body with chunked transfer coding (RFC 9112 §7.1). A body that breaks off gets no last chunk. */
export async function* encodeChunks(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array | string> {
  for await (const piece of body) {
    if (piece.length === 0) continue;
    yield `${piece.length.toString(16)}\r\n`;
    yield piece;
    yield '\r\n';
  }
  yield '0\r\n\r\n';
}
