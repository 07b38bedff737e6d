/**
 * Text of bytes that are not UTF-8, with U+FFFD for what is not: the same as `TextDecoder` gives (WHATWG Encoding §8.1.1,
 * one replacement per maximal part of a sequence), written as the inside of a JSON string.
 *
 * A recorded `kubectl cp` is mostly such bytes, and no two of them are alike: whatever asks a question per byte is
 * guessed wrong by the processor every third time. So nothing is asked. Four bytes in a row say by tables what becomes of
 * the first (written, replaced, or part of what was replaced), and a table says what to write for it: at most six bytes,
 * always stored as eight. Decoding to a string, `JSON.stringify` and encoding to UTF-8 took six times as long
 * (22 ms/MB against 3.5 on a busy machine); the same tables with branches 5 to 7 ms.
 */

/** Most bytes that one byte of output can become (`\u001f`). */
export const MAX_ESCAPED_BYTES = 6;
/** How far behind its result `encodeLossy` may write. */
export const LOSSY_SLACK_BYTES = 8;

/** What becomes of a byte; the upper bits of an index into `FORMS` and `LENGTHS`. */
const FATE = { byItself: 0, inCharacter: 1, swallowed: 2 } as const;
const FATE_BITS = 2;
const FATE_MASK = (1 << FATE_BITS) - 1;

/** Eight bytes to store for a byte and its fate, and how many of them count. The last two are zero: none is a NaN. */
const FORMS = new Float64Array((FATE.swallowed + 1) * 256);
const LENGTHS = new Uint8Array(FORMS.length);
/** Of a lead byte: how many bytes follow it (RFC 3629 §4), as the upper bits of an index into `PLANS`. */
const KINDS = new Uint8Array(256);
/** RFC 3629 §4: lead bytes that do not allow every second byte; the ranges are 80–8F, 90–9F and A0–BF from low to high. */
const ALLOWED_SECOND: ReadonlyMap<number, number> = new Map([
  [0xe0, 0b100],
  [0xed, 0b011],
  [0xf0, 0b110],
  [0xf4, 0b001],
]);

/** Which ranges of second bytes a lead byte allows, and in which range a second byte is: no overlong forms, no surrogates. */
const ALLOWED = new Uint8Array(256);
const RANGE = new Uint8Array(256);
/** 1 for bytes that continue a sequence. */
const CONTINUES = new Uint8Array(256);
/** Fates of up to four bytes in a row, the first lowest: by the kind of a lead byte and which of the next three fit. */
const PLANS = new Uint8Array(32);
fillTables();

/**
 * Writes the text of `bytes` into `target` from `at` on, escaped for JSON, and returns the offset behind it. There must
 * be room for `MAX_ESCAPED_BYTES` per byte and `LOSSY_SLACK_BYTES`.
 */
export function encodeLossy(bytes: Uint8Array, target: Uint8Array, at: number): number {
  const view = new DataView(target.buffer, target.byteOffset, target.byteLength);
  const { length } = bytes;
  let end = at;
  let fates = 0;
  let first = byteAt(bytes, 0);
  let second = byteAt(bytes, 1);
  let third = byteAt(bytes, 2);
  for (let index = 3; index < length + 3; index += 1) {
    // zero behind the end: nothing continues there
    const fourth = index < length ? byteAt(bytes, index) : 0;
    const secondFits = (byteAt(ALLOWED, first) & byteAt(RANGE, second)) === 0 ? 0 : 4;
    const plan =
      byteAt(KINDS, first) | secondFits | (byteAt(CONTINUES, third) << 1) | byteAt(CONTINUES, fourth);
    // bytes whose fate is known already lead nowhere, so that theirs and the new one never overlap
    fates |= byteAt(PLANS, plan);
    const form = first | ((fates & FATE_MASK) << 8);
    fates >>= FATE_BITS;
    view.setFloat64(end, FORMS[form] ?? 0, true);
    end += byteAt(LENGTHS, form);
    first = second;
    second = third;
    third = fourth;
  }
  return end;
}

function byteAt(bytes: Uint8Array, index: number): number {
  return bytes[index] ?? 0;
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
    if (byte >= 0xc2 && byte <= 0xf4) {
      KINDS[byte] = (byte < 0xe0 ? 1 : byte < 0xf0 ? 2 : 3) << 3;
      ALLOWED[byte] = ALLOWED_SECOND.get(byte) ?? 0b111;
    }
    if (byte >= 0x80 && byte < 0xc0) {
      CONTINUES[byte] = 1;
      RANGE[byte] = byte < 0x90 ? 0b001 : byte < 0xa0 ? 0b010 : 0b100;
    }
  }
  for (let kind = 1; kind <= 3; kind += 1) {
    for (let fitting = 0; fitting < 8; fitting += 1) PLANS[(kind << 3) | fitting] = planOf(kind, fitting);
  }
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
