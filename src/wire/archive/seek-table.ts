/**
 * The index of an archive. An archive has independent zstd frames, one after another, and behind them the seek table of the zstd
 * seekable format (0.1.1): `zstd -d` reads it as a whole, and we read any part of it. Pure.
 *
 * ```
 * archive    = *frame  guard  table
 * frame      = a zstd frame (RFC 8878), with its content checksum
 * guard      = 51 2A 4D 18  08 00 00 00  "TCA1"  crc32(table)          a skippable frame of ours: a table has no checksum
 * table      = 5E 2A 4D 18  size  *(compressed, plain)  count  00  B1 EA 92 8F      numbers: 32 bits, little endian
 * ```
 *
 * The guard is in the table as well, as a frame without content, so that compressed sizes add up to where the table begins.
 */

/** Plain bytes of every frame but the last. */
export const FRAME_BYTES = 256 * 1024;
/** What a frame may become in an archive, and what may be in one: nothing is allocated for more. */
export const MAX_COMPRESSED_BYTES = 2 * FRAME_BYTES;
/** 1 TiB in frames of ours: the largest recording there can be. */
export const MAX_FRAMES = 4_194_304;

const ZSTD_MAGIC = [0x28, 0xb5, 0x2f, 0xfd] as const;
const GUARD_MAGIC = [0x51, 0x2a, 0x4d, 0x18] as const;
const TABLE_MAGIC = 0x18_4d_2a_5e;
const SEEKABLE_MAGIC = 0x8f_92_ea_b1;
const GUARD_NAME = 0x31_41_43_54; // "TCA1", little endian

const HEADER_BYTES = 8;
const ENTRY_BYTES = 8;
export const FOOTER_BYTES = 9;
const GUARD_BYTES = 16;

export interface ArchivedFrame {
  readonly compressed: number;
  readonly plain: number;
}

/** Where every frame begins, compressed and plain; one entry more than there are frames, for the ends. */
export interface SeekTable {
  readonly frames: number;
  readonly compressedStarts: readonly number[];
  readonly plainStarts: readonly number[];
}

/** Thrown for what is no archive of ours. */
export class ArchiveFormatError extends Error {}

/** What stands behind the frames: guard and table. `crc32` as in zlib. */
export function encodeSeekTable(
  frames: readonly ArchivedFrame[],
  crc32: (bytes: Uint8Array) => number,
): Uint8Array {
  const entries = [...frames, { compressed: GUARD_BYTES, plain: 0 }];
  const bytes = new Uint8Array(GUARD_BYTES + tableBytes(entries.length));
  const table = bytes.subarray(GUARD_BYTES);
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
  const guard = new DataView(bytes.buffer, bytes.byteOffset, GUARD_BYTES);
  guard.setUint32(4, 8, true);
  guard.setUint32(8, GUARD_NAME, true);
  guard.setUint32(12, crc32(table), true);
  return bytes;
}

/** Whether an object that begins and ends like this claims to be an archive. Text never does. */
export function claimsArchive(head: Uint8Array, tail: Uint8Array): boolean {
  return beginsWith(head, ZSTD_MAGIC) || beginsWith(head, GUARD_MAGIC) || endsSeekable(tail);
}

/**
 * How many bytes at the end of an archive are guard and table.
 * @param footer its last {@link FOOTER_BYTES}
 * @throws ArchiveFormatError
 */
export function indexBytes(footer: Uint8Array): number {
  if (footer.length !== FOOTER_BYTES || !endsSeekable(footer))
    throw new ArchiveFormatError('it has no index');
  const view = new DataView(footer.buffer, footer.byteOffset, footer.length);
  const count = view.getUint32(0, true);
  if (count === 0 || count > MAX_FRAMES + 1)
    throw new ArchiveFormatError('its index has an impossible length');
  return GUARD_BYTES + tableBytes(count);
}

/**
 * Reads guard and table.
 * @param bytes the last {@link indexBytes} of the archive, `archiveBytes` long in all
 * @throws ArchiveFormatError when anything of it is not as it was written
 */
export function parseSeekTable(
  bytes: Uint8Array,
  archiveBytes: number,
  crc32: (bytes: Uint8Array) => number,
): SeekTable {
  const table = bytes.subarray(GUARD_BYTES);
  const guard = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const isGuarded =
    beginsWith(bytes, GUARD_MAGIC) &&
    guard.getUint32(4, true) === 8 &&
    guard.getUint32(8, true) === GUARD_NAME;
  if (!isGuarded || guard.getUint32(12, true) !== crc32(table)) {
    throw new ArchiveFormatError('its index is not as it was written');
  }
  const view = new DataView(table.buffer, table.byteOffset, table.length);
  const count = (table.length - HEADER_BYTES - FOOTER_BYTES) / ENTRY_BYTES;
  const compressedStarts = [0];
  const plainStarts = [0];
  for (let index = 0; index < count - 1; index += 1) {
    const compressed = view.getUint32(HEADER_BYTES + index * ENTRY_BYTES, true);
    const plain = view.getUint32(HEADER_BYTES + index * ENTRY_BYTES + 4, true);
    const isWhole = index === count - 2 ? plain > 0 && plain <= FRAME_BYTES : plain === FRAME_BYTES;
    if (!isWhole || compressed === 0 || compressed > MAX_COMPRESSED_BYTES) {
      throw new ArchiveFormatError(`frame ${index} has an impossible length`);
    }
    compressedStarts.push((compressedStarts[index] ?? 0) + compressed);
    plainStarts.push((plainStarts[index] ?? 0) + plain);
  }
  if ((compressedStarts.at(-1) ?? 0) + bytes.length !== archiveBytes) {
    throw new ArchiveFormatError('its frames are not as long as its index says');
  }
  return { frames: count - 1, compressedStarts, plainStarts };
}

function tableBytes(entries: number): number {
  return HEADER_BYTES + entries * ENTRY_BYTES + FOOTER_BYTES;
}

/** Also when only a part of `magic` is there. */
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
