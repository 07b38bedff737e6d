/** Text inside binary output, as the program `strings` finds it. Pure. */

/** Minimum characters of a run. Of random bytes, runs of this length make up about 1 %. */
const MIN_RUN = 6;

/**
 * Returns the runs of printable characters in binary output, a line for each run with `\r\n` at its end; empty without a run.
 * A run consists of well-formed UTF-8 without control characters; a tab counts as printable.
 */
export function printableRuns(bytes: Uint8Array): string {
  const runs: string[] = [];
  const { buffer, byteOffset, length } = bytes;
  let start = 0;
  let characters = 0;
  let at = 0;
  const end = (): void => {
    if (characters >= MIN_RUN) runs.push(Buffer.from(buffer, byteOffset + start, at - start).toString());
    characters = 0;
  };
  while (at < length) {
    const size = printableSize(bytes, at);
    if (size === 0) {
      end();
      at += 1;
      start = at;
      continue;
    }
    characters += 1;
    at += size;
  }
  end();
  return runs.map((run) => `${run}\r\n`).join('');
}

const TAB = 0x09;
const FIRST_PRINTABLE = 0x20;
const DELETE = 0x7f;

/** Bytes of the printable character at `at`; 0 for a control character, and for bytes that are not UTF-8. */
function printableSize(bytes: Uint8Array, at: number): number {
  const first = bytes[at] ?? 0;
  if (first < 0x80) return first === TAB || (first >= FIRST_PRINTABLE && first !== DELETE) ? 1 : 0;
  // RFC 3629 §4: C0, C1 and F5 to FF never occur; the second byte excludes long forms, surrogates and planes above 16
  const size = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
  if (size === 0 || at + size > bytes.length) return 0;
  const second = bytes[at + 1] ?? 0;
  const lowest = first === 0xc2 || first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
  const highest = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
  if (second < lowest || second > highest) return 0;
  for (let next = at + 2; next < at + size; next += 1) if (((bytes[next] ?? 0) & 0xc0) !== 0x80) return 0;
  return size;
}
