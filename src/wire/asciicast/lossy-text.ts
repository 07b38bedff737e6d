/**
 * Converts bytes that are not UTF-8 into the content of a JSON string, with U+FFFD for invalid bytes: the same as
 * `TextDecoder` (WHATWG Encoding §8.1.1, one replacement per maximal part of a sequence).
 *
 * A recorded `kubectl cp` is mostly random bytes, so a branch per byte is mispredicted about every third time.
 * This code has no branches: tables map four consecutive bytes to the fate of the first byte (written, replaced,
 * or part of a replaced sequence), and another table has the output, at most six bytes, always stored as eight.
 * Decoding, `JSON.stringify` and encoding took six times as long (22 ms/MB instead of 3.5 on a busy machine); the
 * same tables with branches took 5 to 7 ms.
 */

/** Maximum output bytes of one input byte (`\u001f`). */
export const MAX_ESCAPED_BYTES = 6;
/** Bytes that `encodeLossy` may write after its result. */
export const LOSSY_SLACK_BYTES = 8;

/** Fate of a byte; the upper bits of an index into `FORMS` and `LENGTHS`. */
const FATE = { byItself: 0, inCharacter: 1, swallowed: 2 } as const;
const FATE_BITS = 2;
const FATE_MASK = (1 << FATE_BITS) - 1;

/** Eight output bytes for each byte and fate, of which `LENGTHS` count. The last two are zero, so no value is NaN. */
const FORMS = new Float64Array((FATE.swallowed + 1) * 256);
const LENGTHS = new Uint8Array(FORMS.length);
/**
 * Role of a byte in UTF-8 (RFC 3629 §4), in bits: 0–2 ranges of second bytes that it allows as a lead byte (no
 * overlong forms, no surrogates), 3–5 its range as a second byte, 6 whether it continues a sequence, 7–8 number
 * of following bytes. One table, because separate tables took a quarter longer.
 */
const MEANINGS = new Uint16Array(256);
const RANGES = 0b111;
const RANGE_SHIFT = 3;
const CONTINUES_SHIFT = 6;
const FOLLOWING_SHIFT = 7;
/** Lead bytes that allow only some second bytes; the ranges are 80–8F, 90–9F and A0–BF. */
const ALLOWED_SECOND: ReadonlyMap<number, number> = new Map([
  [0xe0, 0b100],
  [0xed, 0b011],
  [0xf0, 0b110],
  [0xf4, 0b001],
]);
/**
 * Fates of up to four consecutive bytes, the first lowest, by the number of bytes that follow a lead byte and
 * those that fit.
 */
const PLANS = new Uint8Array(32);
fillTables();

/**
 * Writes the text of `bytes` into `target` from `at`, escaped for JSON, and returns the offset after it. `target`
 * needs `MAX_ESCAPED_BYTES` per byte and `LOSSY_SLACK_BYTES`.
 */
export function encodeLossy(bytes: Uint8Array, target: Uint8Array, at: number): number {
  const view = new DataView(target.buffer, target.byteOffset, target.byteLength);
  const { length } = bytes;
  let end = at;
  let fates = 0;
  let first = bytes[0] ?? 0;
  let second = bytes[1] ?? 0;
  let third = bytes[2] ?? 0;
  let lead = MEANINGS[first] ?? 0;
  let next = MEANINGS[second] ?? 0;
  let afterNext = MEANINGS[third] ?? 0;
  for (let index = 3; index < length + 3; index += 1) {
    // zero after the end: a zero byte continues no sequence
    const fourth = index < length ? (bytes[index] ?? 0) : 0;
    const last = MEANINGS[fourth] ?? 0;
    // 8 if the second byte is in a range that the lead byte allows, else 0
    const secondFits = ((lead & (next >> RANGE_SHIFT) & RANGES) + RANGES) & 8;
    const plan =
      ((lead >> (FOLLOWING_SHIFT - 3)) & 24) |
      (secondFits >> 1) |
      ((afterNext >> (CONTINUES_SHIFT - 1)) & 2) |
      ((last >> CONTINUES_SHIFT) & 1);
    // a byte with a known fate leads no sequence, so both fates never overlap
    fates |= PLANS[plan] ?? 0;
    const form = first | ((fates & FATE_MASK) << 8);
    fates >>= FATE_BITS;
    view.setFloat64(end, FORMS[form] ?? 0, true);
    end += LENGTHS[form] ?? 0;
    first = second;
    second = third;
    third = fourth;
    lead = next;
    next = afterNext;
    afterNext = last;
  }
  return end;
}

function fillTables(): void {
  const forms = new Uint8Array(FORMS.buffer);
  for (let byte = 0; byte < 256; byte += 1) {
    const text = byte < 0x80 ? JSON.stringify(String.fromCharCode(byte)).slice(1, -1) : '\ufffd';
    const form = new TextEncoder().encode(text);
    forms.set(form, byte * 8);
    LENGTHS[byte] = form.length;
    forms[(256 * FATE.inCharacter + byte) * 8] = byte;
    LENGTHS[256 * FATE.inCharacter + byte] = 1;
    MEANINGS[byte] = meaningOf(byte);
  }
  for (let following = 1; following <= 3; following += 1) {
    for (let fitting = 0; fitting < 8; fitting += 1)
      PLANS[(following << 3) | fitting] = planOf(following, fitting);
  }
}

function meaningOf(byte: number): number {
  if (byte >= 0xc2 && byte <= 0xf4) {
    const following = byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3;
    return (ALLOWED_SECOND.get(byte) ?? RANGES) | (following << FOLLOWING_SHIFT);
  }
  if (byte < 0x80 || byte >= 0xc0) return 0;
  const range = byte < 0x90 ? 0b001 : byte < 0xa0 ? 0b010 : 0b100;
  return (range << RANGE_SHIFT) | (1 << CONTINUES_SHIFT);
}

function planOf(following: number, fitting: number): number {
  let found = 0;
  while (found < following && (fitting & (4 >> found)) !== 0) found += 1;
  const whole = found === following;
  let plan: number = whole ? FATE.inCharacter : FATE.byItself;
  for (let index = 1; index <= found; index += 1)
    plan |= (whole ? FATE.inCharacter : FATE.swallowed) << (FATE_BITS * index);
  return plan;
}
