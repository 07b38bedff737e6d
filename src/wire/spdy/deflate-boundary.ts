/**
 * Checks that compressed bytes end at the end of a deflate block (RFC 1951). Parses the deflate blocks without
 * producing output.
 *
 * The gateway inflates each header block separately, with the previous output as window. The result equals that of the
 * peer's continuous inflater only if every header block ends at the end of a deflate block, on a byte boundary.
 * Otherwise the peer would parse the first bytes of the next header block as a part of the current block. It is not
 * enough that the last bytes are `00 00 ff ff`, because these bytes may belong to a Huffman code or to stored bytes.
 */

/** Thrown if the bytes end too early or violate the format. The caller of this module never gets this error. */
class Stop extends Error {}

type BitReader = ReturnType<typeof createBitReader>;

/** Canonical Huffman code: the number of codes per length, and the symbols in order (RFC 1951 §3.2.2). */
interface HuffmanCode {
  readonly counts: readonly number[];
  readonly symbols: readonly number[];
}

/**
 * Maximum number of deflate blocks. Encoders write one compressed block and the empty stored block of the flush. A
 * compressed block with its own codes takes 30 µs to check, although it may have only 12 bytes.
 */
const MAX_BLOCKS = 16;
const MAX_CODE_BITS = 15;
const END_OF_BLOCK = 256;
const FIRST_LENGTH = 257;
/** Order in which the code lengths for the code length alphabet are sent (RFC 1951 §3.2.7). */
const LENGTH_ORDER = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
/** Extra bits of the length symbols 257–285 and of the distance symbols 0–29, RFC 1951 §3.2.5. */
const LENGTH_EXTRA = [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0];
const DISTANCE_EXTRA = [
  0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13,
];

const FIXED_LENGTHS = buildCode([
  ...Array.from({ length: 144 }, () => 8),
  ...Array.from({ length: 112 }, () => 9),
  ...Array.from({ length: 24 }, () => 7),
  ...Array.from({ length: 8 }, () => 8),
]);
const FIXED_DISTANCES = buildCode(Array.from({ length: 30 }, () => 5));

/**
 * True if the bytes are complete deflate blocks, at most {@link MAX_BLOCKS}, none is marked as final, and the last one
 * is an empty stored block. A sync flush produces such bytes (zlib `Z_SYNC_FLUSH`, Go `compress/flate` `Writer.Flush`).
 */
export function endsWithSyncFlush(deflated: Uint8Array): boolean {
  const reader = createBitReader(deflated);
  let storedBytes: number | undefined;
  try {
    for (let blocks = 0; !reader.done; blocks += 1) {
      if (blocks === MAX_BLOCKS) return false;
      storedBytes = walkBlock(reader);
    }
  } catch {
    return false;
  }
  return storedBytes === 0;
}

/** Parses one block. Returns the length of a stored block, or `undefined` for a compressed block. */
function walkBlock(reader: BitReader): number | undefined {
  const final = reader.bits(1);
  if (final === 1) throw new Stop(); // the stream ends only with the connection
  const type = reader.bits(2);
  if (type === 0) return walkStored(reader);
  if (type === 1) walkCompressed(reader, FIXED_LENGTHS, FIXED_DISTANCES);
  else if (type === 2) walkDynamic(reader);
  else throw new Stop();
  return undefined;
}

function walkStored(reader: BitReader): number {
  reader.align();
  const length = reader.bits(16);
  if ((length ^ reader.bits(16)) !== 0xffff) throw new Stop();
  reader.skipBytes(length);
  return length;
}

function walkCompressed(reader: BitReader, lengths: HuffmanCode, distances: HuffmanCode): void {
  for (;;) {
    const symbol = decodeSymbol(reader, lengths);
    if (symbol === END_OF_BLOCK) return;
    if (symbol > END_OF_BLOCK) {
      skipExtra(reader, LENGTH_EXTRA, symbol - FIRST_LENGTH);
      skipExtra(reader, DISTANCE_EXTRA, decodeSymbol(reader, distances));
    }
  }
}

function skipExtra(reader: BitReader, extra: readonly number[], index: number): void {
  const count = extra[index];
  if (count === undefined) throw new Stop(); // symbols 286 and 287 and distances 30 and 31 are invalid
  reader.bits(count);
}

function walkDynamic(reader: BitReader): void {
  const lengthCount = reader.bits(5) + 257;
  const distanceCount = reader.bits(5) + 1;
  const orderCount = reader.bits(4) + 4;
  const codeLengths = Array.from({ length: 19 }, () => 0);
  for (const symbol of LENGTH_ORDER.slice(0, orderCount)) codeLengths[symbol] = reader.bits(3);
  const lengths = readLengths(reader, buildCode(codeLengths), lengthCount + distanceCount);
  walkCompressed(reader, buildCode(lengths.slice(0, lengthCount)), buildCode(lengths.slice(lengthCount)));
}

/** Parses code lengths, which are run-length encoded (RFC 1951 §3.2.7). */
function readLengths(reader: BitReader, code: HuffmanCode, total: number): readonly number[] {
  const lengths: number[] = [];
  while (lengths.length < total) {
    const symbol = decodeSymbol(reader, code);
    if (symbol < 16) {
      lengths.push(symbol);
      continue;
    }
    const repeated = symbol === 16 ? lengths.at(-1) : 0;
    if (repeated === undefined) throw new Stop();
    const times =
      symbol === 16 ? reader.bits(2) + 3 : symbol === 17 ? reader.bits(3) + 3 : reader.bits(7) + 11;
    if (lengths.length + times > total) throw new Stop();
    for (let left = times; left > 0; left -= 1) lengths.push(repeated);
  }
  return lengths;
}

/** Builds the canonical code from the code length of each symbol. Symbols with length 0 are unused. */
function buildCode(lengths: readonly number[]): HuffmanCode {
  const symbolsOf = Array.from({ length: MAX_CODE_BITS + 1 }, (): number[] => []);
  for (const [symbol, length] of lengths.entries()) {
    if (length > 0) symbolsOf[length]?.push(symbol);
  }
  return { counts: symbolsOf.map((symbols) => symbols.length), symbols: symbolsOf.flat() };
}

/**
 * Decodes one symbol bit by bit. Does not check for over- and undersubscribed codes, because the inflater
 * rejects them.
 */
function decodeSymbol(reader: BitReader, { counts, symbols }: HuffmanCode): number {
  let code = 0;
  let first = 0;
  let index = 0;
  for (let bits = 1; bits <= MAX_CODE_BITS; bits += 1) {
    code |= reader.bits(1);
    const count = counts[bits] ?? 0;
    const symbol = code - first < count ? symbols[index + code - first] : undefined;
    if (symbol !== undefined) return symbol;
    index += count;
    first = (first + count) << 1;
    code <<= 1;
  }
  throw new Stop();
}

function createBitReader(bytes: Uint8Array) {
  let position = 0; // position in bits; each byte is read from its least significant bit (RFC 1951 §3.1.1)
  const end = bytes.length * 8;
  return {
    /** @throws Stop if no bytes are left. */
    bits(count: number): number {
      if (position + count > end) throw new Stop();
      let value = 0;
      for (let bit = 0; bit < count; bit += 1) {
        value |= (((bytes[position >>> 3] ?? 0) >>> (position & 7)) & 1) << bit;
        position += 1;
      }
      return value;
    },
    /** Skips to the next byte boundary. */
    align(): void {
      position = (position + 7) & ~7;
    },
    /** @throws Stop if fewer bytes are left. */
    skipBytes(count: number): void {
      position += count * 8;
      if (position > end) throw new Stop();
    },
    get done(): boolean {
      return position === end;
    },
  };
}
