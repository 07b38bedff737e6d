/**
 * Index of an archive. An archive consists of independent zstd frames and the seek table of the zstd seekable
 * format (0.1.1). `zstd -d` decompresses the complete archive. With the seek table, this module finds the
 * frame of any position. Pure.
 *
 * ```
 * archive    = *frame  guard  table
 * frame      = a zstd frame (RFC 8878), with its content checksum
 * guard      = 51 2A 4D 18  08 00 00 00  "TCA1"  crc32(table)          a skippable frame, because a table has no checksum
 * table      = 5E 2A 4D 18  size  *(compressed, plain)  count  00  B1 EA 92 8F      numbers: 32 bits, little endian
 * ```
 *
 * The guard is a frame that contains the checksum of the table. The table also has an entry for the guard, with a
 * content of 0 bytes, so that the sum of the compressed sizes is the start of the table.
 *
 * A sealed (encrypted) archive consists only of skippable frames, so `zstd -d` returns no content. Readers
 * without the key can still learn the length of the content from the table:
 *
 * ```
 * sealed     = seal  *(53 2A 4D 18  size  ciphertext(frame)  tag(16))  guard  table
 * seal       = 52 2A 4D 18  size  "TCS1"  key id(16)  wrapped data key(60)       the first frame in the table, without content
 * guard      = 51 2A 4D 18  18 00 00 00  "TCA2"  crc32(table)  tag of table(16)
 * ```
 */

/** Number of uncompressed bytes of each frame. The last frame may be shorter. */
export const FRAME_BYTES = 256 * 1024;
/** Maximum compressed size of a frame, in bytes. It limits allocations. */
export const MAX_COMPRESSED_BYTES = 2 * FRAME_BYTES;
/** Maximum number of frames, enough for the largest possible recording (1 TiB). */
export const MAX_FRAMES = 4_194_304;

const ZSTD_MAGIC = [0x28, 0xb5, 0x2f, 0xfd] as const;
const GUARD_MAGIC = [0x51, 0x2a, 0x4d, 0x18] as const;
const TABLE_MAGIC = 0x18_4d_2a_5e;
const SEEKABLE_MAGIC = 0x8f_92_ea_b1;
const GUARD_NAME = 0x31_41_43_54; // "TCA1", little endian
const SEALED_GUARD_NAME = 0x32_41_43_54; // "TCA2"
const SEAL_MAGIC = [0x52, 0x2a, 0x4d, 0x18] as const;
const SEAL_NAME = 0x31_53_43_54; // "TCS1"
const SEALED_FRAME_MAGIC = [0x53, 0x2a, 0x4d, 0x18] as const;

const HEADER_BYTES = 8;
const ENTRY_BYTES = 8;
export const FOOTER_BYTES = 9;
const GUARD_BYTES = 16;
export const TAG_BYTES = 16;
const KEY_ID_BYTES = 16;
/** Size of a wrapped data key, in bytes: nonce, key and tag of AES-256-GCM. */
const WRAPPED_KEY_BYTES = 60;
export const SEAL_BYTES = HEADER_BYTES + 4 + KEY_ID_BYTES + WRAPPED_KEY_BYTES;

export interface ArchivedFrame {
  readonly compressed: number;
  readonly plain: number;
}

/**
 * Start of each frame in the archive (`compressedStarts`) and in the content (`plainStarts`). The last item
 * is the end of the last frame.
 */
export interface SeekTable {
  readonly frames: number;
  /** Bytes of the table and its authentication tag. Present only in a sealed archive. */
  readonly sealed?: { readonly table: Uint8Array; readonly tag: Uint8Array };
  readonly compressedStarts: readonly number[];
  readonly plainStarts: readonly number[];
}

/** Thrown for data that is not an archive of this format. */
export class ArchiveFormatError extends Error {}

/**
 * Returns guard and table. The writer appends them to the frames.
 * @param crc32 computes a CRC-32, as zlib does
 * @param tagOf computes the authentication tag of the table; only for a sealed archive
 */
export function encodeSeekTable(
  frames: readonly ArchivedFrame[],
  crc32: (bytes: Uint8Array) => number,
  tagOf?: (table: Uint8Array) => Uint8Array,
): Uint8Array {
  const guardLength = guardBytes(tagOf !== undefined);
  const seal = tagOf === undefined ? [] : [{ compressed: SEAL_BYTES, plain: 0 }];
  const entries = [...seal, ...frames, { compressed: guardLength, plain: 0 }];
  const bytes = new Uint8Array(guardLength + tableBytes(entries.length));
  const table = bytes.subarray(guardLength);
  const view = new DataView(table.buffer, table.byteOffset, table.length);
  view.setUint32(0, TABLE_MAGIC, true);
  view.setUint32(4, table.length - HEADER_BYTES, true);
  for (const [index, { compressed, plain }] of entries.entries()) {
    view.setUint32(HEADER_BYTES + index * ENTRY_BYTES, compressed, true);
    view.setUint32(HEADER_BYTES + index * ENTRY_BYTES + 4, plain, true);
  }
  view.setUint32(table.length - FOOTER_BYTES, entries.length, true);
  view.setUint32(table.length - 4, SEEKABLE_MAGIC, true);
  bytes.set(GUARD_MAGIC, 0);
  const guard = new DataView(bytes.buffer, bytes.byteOffset, guardLength);
  guard.setUint32(4, guardLength - HEADER_BYTES, true);
  guard.setUint32(8, tagOf === undefined ? GUARD_NAME : SEALED_GUARD_NAME, true);
  guard.setUint32(12, crc32(table), true);
  if (tagOf !== undefined) bytes.set(tagOf(table), GUARD_BYTES);
  return bytes;
}

/** The first frame of a sealed archive: id of the seal key, and the wrapped data key. */
export interface ArchiveSeal {
  readonly keyId: Uint8Array;
  readonly wrappedKey: Uint8Array;
}

export function encodeSeal({ keyId, wrappedKey }: ArchiveSeal): Uint8Array {
  const bytes = new Uint8Array(SEAL_BYTES);
  bytes.set(SEAL_MAGIC, 0);
  const view = new DataView(bytes.buffer);
  view.setUint32(4, SEAL_BYTES - HEADER_BYTES, true);
  view.setUint32(8, SEAL_NAME, true);
  bytes.set(keyId, HEADER_BYTES + 4);
  bytes.set(wrappedKey, HEADER_BYTES + 4 + KEY_ID_BYTES);
  return bytes;
}

/**
 * @param head the first {@link SEAL_BYTES} of an archive, or the complete archive if it is shorter
 * @returns undefined if the archive is not sealed
 * @throws ArchiveFormatError for a damaged seal
 */
export function parseSeal(head: Uint8Array): ArchiveSeal | undefined {
  if (!beginsWith(head, SEAL_MAGIC)) return undefined;
  const view = new DataView(head.buffer, head.byteOffset, head.length);
  const isSeal =
    head.length === SEAL_BYTES &&
    view.getUint32(4, true) === SEAL_BYTES - HEADER_BYTES &&
    view.getUint32(8, true) === SEAL_NAME;
  if (!isSeal) throw new ArchiveFormatError('its seal was changed');
  const keyStart = HEADER_BYTES + 4;
  const wrappedStart = keyStart + KEY_ID_BYTES;
  return { keyId: head.slice(keyStart, wrappedStart), wrappedKey: head.slice(wrappedStart) };
}

/** Returns the header before the ciphertext of a frame. */
export function encodeSealedFrameHeader(cipherBytes: number): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES);
  bytes.set(SEALED_FRAME_MAGIC, 0);
  new DataView(bytes.buffer).setUint32(4, cipherBytes, true);
  return bytes;
}

/** @returns ciphertext and tag of a sealed frame. @throws ArchiveFormatError */
export function parseSealedFrame(frame: Uint8Array): Uint8Array {
  const cipher = frame.subarray(HEADER_BYTES);
  const view = new DataView(frame.buffer, frame.byteOffset, frame.length);
  const isFrame =
    frame.length > HEADER_BYTES + TAG_BYTES &&
    beginsWith(frame, SEALED_FRAME_MAGIC) &&
    view.getUint32(4, true) === cipher.length;
  if (!isFrame) throw new ArchiveFormatError('a sealed frame was changed');
  return cipher;
}

/**
 * True if a file or object with these first and last bytes looks like an archive. A text file never looks like an
 * archive.
 */
export function claimsArchive(head: Uint8Array, tail: Uint8Array): boolean {
  const magics = [ZSTD_MAGIC, GUARD_MAGIC, SEAL_MAGIC];
  return magics.some((magic) => beginsWith(head, magic)) || endsSeekable(tail);
}

/**
 * Returns the size of guard and table at the end of an archive.
 * @param footer the last {@link FOOTER_BYTES} of the archive
 * @throws ArchiveFormatError
 */
export function seekTableBytes(footer: Uint8Array, sealed = false): number {
  if (footer.length !== FOOTER_BYTES || !endsSeekable(footer))
    throw new ArchiveFormatError('it has no index');
  const view = new DataView(footer.buffer, footer.byteOffset, footer.length);
  const count = view.getUint32(0, true);
  const others = othersIn(sealed);
  if (count < others || count > MAX_FRAMES + others)
    throw new ArchiveFormatError('its index has an impossible length');
  return guardBytes(sealed) + tableBytes(count);
}

/**
 * Parses the guard and the table.
 * @param bytes the last {@link seekTableBytes} of the archive; `archiveBytes` is the size of the archive
 * @throws ArchiveFormatError for any damage
 */
export function parseSeekTable(
  bytes: Uint8Array,
  archiveBytes: number,
  crc32: (bytes: Uint8Array) => number,
  sealed = false,
): SeekTable {
  const guardLength = guardBytes(sealed);
  const table = bytes.subarray(guardLength);
  checkGuard(bytes, sealed, crc32(table));
  const view = new DataView(table.buffer, table.byteOffset, table.length);
  const first = sealed ? 1 : 0;
  const frames = (table.length - HEADER_BYTES - FOOTER_BYTES) / ENTRY_BYTES - othersIn(sealed);
  const compressedStarts = [sealed ? SEAL_BYTES : 0];
  const plainStarts = [0];
  for (let index = 0; index < frames; index += 1) {
    const compressed = view.getUint32(HEADER_BYTES + (first + index) * ENTRY_BYTES, true);
    const plain = view.getUint32(HEADER_BYTES + (first + index) * ENTRY_BYTES + 4, true);
    const isWhole = index === frames - 1 ? plain > 0 && plain <= FRAME_BYTES : plain === FRAME_BYTES;
    if (!isWhole || compressed === 0 || compressed > MAX_COMPRESSED_BYTES) {
      throw new ArchiveFormatError(`frame ${index} has an impossible length`);
    }
    compressedStarts.push((compressedStarts[index] ?? 0) + compressed);
    plainStarts.push((plainStarts[index] ?? 0) + plain);
  }
  if ((compressedStarts.at(-1) ?? 0) + bytes.length !== archiveBytes) {
    throw new ArchiveFormatError('its frames are not as long as its index says');
  }
  const starts = { frames, compressedStarts, plainStarts };
  if (!sealed) return starts;
  return { ...starts, sealed: { table: table.slice(), tag: bytes.slice(GUARD_BYTES, guardLength) } };
}

function checkGuard(bytes: Uint8Array, sealed: boolean, crc: number): void {
  const guard = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const isGuarded =
    beginsWith(bytes, GUARD_MAGIC) &&
    guard.getUint32(4, true) === guardBytes(sealed) - HEADER_BYTES &&
    guard.getUint32(8, true) === (sealed ? SEALED_GUARD_NAME : GUARD_NAME) &&
    guard.getUint32(12, true) === crc;
  if (!isGuarded) throw new ArchiveFormatError('its index was changed');
}

function guardBytes(sealed: boolean): number {
  return sealed ? GUARD_BYTES + TAG_BYTES : GUARD_BYTES;
}

/** Returns the number of table entries without content: the guard, and the seal of a sealed archive. */
function othersIn(sealed: boolean): number {
  return sealed ? 2 : 1;
}

function tableBytes(entries: number): number {
  return HEADER_BYTES + entries * ENTRY_BYTES + FOOTER_BYTES;
}

/** True if the bytes begin with `magic`, or are a non-empty beginning of `magic`. */
function beginsWith(bytes: Uint8Array, magic: readonly number[]): boolean {
  const length = Math.min(bytes.length, magic.length);
  return length > 0 && magic.slice(0, length).every((byte, index) => bytes[index] === byte);
}

function endsSeekable(bytes: Uint8Array): boolean {
  if (bytes.length < 4) return false;
  return (
    new DataView(bytes.buffer, bytes.byteOffset + bytes.length - 4, 4).getUint32(0, true) === SEEKABLE_MAGIC
  );
}
