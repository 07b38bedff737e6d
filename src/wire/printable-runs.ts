/** Finds text inside binary output, like the program `strings`. Pure. */

/** Minimum characters of a run. About 1 % of random bytes belong to a run of this length. */
const MIN_RUN = 6;

/**
 * Returns the runs of printable characters in binary output, each as a line that ends with `\r\n`. Returns an
 * empty text if there is no run. A run consists of valid UTF-8 without control characters. A tab is
 * printable.
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
const MAX_SECOND = 0xbf;
const MIN_SECOND = 0x80;
/**
 * Size of a UTF-8 character by its first byte. 0 for control characters and for bytes that cannot begin a
 * character (RFC 3629 §4).
 */
const SIZES = Uint8Array.from({ length: 256 }, (_, first) => {
  if (first < 0x80) return first === TAB || (first >= FIRST_PRINTABLE && first !== DELETE) ? 1 : 0;
  if (first < 0xc2 || first > 0xf4) return 0;
  return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
});
/** Lowest valid second byte after each first byte, if it is not 0x80. Excludes C1 controls and overlong forms. */
const LOWEST_SECOND: ReadonlyMap<number, number> = new Map([
  [0xc2, 0xa0],
  [0xe0, 0xa0],
  [0xf0, 0x90],
]);
/** Highest valid second byte after each first byte, if it is not 0xbf. Excludes surrogates and planes above 16. */
const HIGHEST_SECOND: ReadonlyMap<number, number> = new Map([
  [0xed, 0x9f],
  [0xf4, 0x8f],
]);

/** Returns the size of the printable character at offset `at`; 0 if no printable character begins there. */
function printableSize(bytes: Uint8Array, at: number): number {
  const first = bytes[at] ?? 0;
  const size = SIZES[first] ?? 0;
  if (size < 2) return size;
  // Missing bytes count as 0, which never continues a character.
  const second = bytes[at + 1] ?? 0;
  const lowest = LOWEST_SECOND.get(first) ?? MIN_SECOND;
  if (second < lowest || second > (HIGHEST_SECOND.get(first) ?? MAX_SECOND)) return 0;
  for (let next = at + 2; next < at + size; next += 1)
    if (((bytes[next] ?? 0) & 0xc0) !== MIN_SECOND) return 0;
  return size;
}
