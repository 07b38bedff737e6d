/**
 * Knows the annotations that hold the exact bytes of output, as gateways and `LineBatch` write them. Of output that is
 * not UTF-8 there is one for each line, longer than the output: as JSON they would take longer to read than to write.
 */

const START = Buffer.from('{"kind":"raw","base64":"', 'latin1');
const END = '"}\n';
/** For what is decoded, which nobody looks at. Longer output is read as JSON. */
const decoded = Buffer.allocUnsafeSlow(64 * 1024);

/** Whether an object line is such an annotation, letter by letter, and so JSON. Some that are may not be known. */
export function isRawAnnotation(line: Uint8Array): boolean {
  const bytes = Buffer.from(line.buffer, line.byteOffset, line.length);
  const end = bytes.length - END.length;
  const length = end - START.length;
  if (length <= 0 || length % 4 !== 0) return false;
  if (START.compare(bytes, 0, START.length) !== 0 || bytes.toString('latin1', end) !== END) return false;
  const text = bytes.toString('latin1', START.length, end);
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  const expected = (length / 4) * 3 - padding;
  // what is no base64 is left out
  return expected <= decoded.length && decoded.write(text, 'base64') === expected;
}
