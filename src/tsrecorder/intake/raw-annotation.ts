/**
 * Recognises annotations with exact output bytes in the form that gateways and `LineBatch` write. Binary output causes
 * one long annotation per line. Parsing each annotation as JSON would be slow.
 */

const START = Buffer.from('{"kind":"raw","base64":"', 'latin1');
const END = '"}\n';
/** Scratch buffer for decoding. Annotations whose decoded bytes do not fit are parsed as JSON. */
const decoded = Buffer.allocUnsafeSlow(64 * 1024);

/**
 * True if an object line is an annotation with exact output bytes in this form. Such a line is valid JSON. If the
 * result is false for a valid annotation, the caller parses the annotation as JSON.
 */
export function isRawAnnotation(line: Uint8Array): boolean {
  const bytes = Buffer.from(line.buffer, line.byteOffset, line.length);
  const end = bytes.length - END.length;
  const length = end - START.length;
  if (length <= 0 || length % 4 !== 0) return false;
  if (START.compare(bytes, 0, START.length) !== 0 || bytes.toString('latin1', end) !== END) return false;
  const text = bytes.toString('latin1', START.length, end);
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  const expected = (length / 4) * 3 - padding;
  // The decoder skips invalid characters, so a shorter result means invalid base64.
  return expected <= decoded.length && decoded.write(text, 'base64') === expected;
}
