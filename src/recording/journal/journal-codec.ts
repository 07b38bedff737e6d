/**
 * The files in which the unacknowledged end of a recording survives its gateway: sealed records behind a prefix in
 * clear.
 *
 * ```
 *   file    prefix record…                          written once, to its end
 *   file    prefix record… 0 (u32) what stood there written over another one that was not needed any more
 *   prefix  "tcjrnl1\n"  key id (8)  salt (32)        "tcjrnl2\n" of one that was written over another;
 *                                                    of a recording that is frames "tcjrnl5\n" and "tcjrnl6\n",
 *                                                    or of version 1 "tcjrnl3\n" and "tcjrnl4\n"
 *   record  length of the ciphertext (u32)  ciphertext  tag (16)
 *   plain   kind (u8)  at (u64, big endian)  content
 * ```
 *
 * AES-256-GCM; the key is the file's own, the nonce is the number of the record in the file, the length is
 * authenticated with it, in files of frames what they begin with as well. So no record can be changed, moved, left out
 * or taken from another file; only the end of a file can be cut off, as a crash does. The first record is the head, the
 * second one is `part`, and has no content.
 *
 * What stood in a file before was sealed under another key, so it is never taken for a record; but a record over it
 * that a crash cut cannot be told from one that was changed. Where that is the head, the file counts as damaged.
 */
import { createCipheriv, createDecipheriv, randomBytes, type KeyObject } from 'node:crypto';
import { errorText } from '../../errors.ts';
import { KEY_ID_BYTES, SALT_BYTES, type JournalKey } from './journal-key.ts';

const MAGIC_BYTES = 8;
/** Number 1 and those that follow. */
const FORMATS = [
  { over: false, frames: 0 },
  { over: true, frames: 0 },
  { over: false, frames: 1 },
  { over: true, frames: 1 },
  { over: false, frames: 2 },
  { over: true, frames: 2 },
].map((format, index) => ({ ...format, magic: Buffer.from(`tcjrnl${index + 1}\n`, 'latin1') }));
/** What files of every format begin with. */
const ANY_MAGIC = /^tcjrnl(\d+)\n/;
export const PREFIX_BYTES = MAGIC_BYTES + KEY_ID_BYTES + SALT_BYTES;
const LENGTH_BYTES = 4;
/** Behind the last record of a file that was written over another one. */
export const END_MARK = Buffer.alloc(LENGTH_BYTES);
const TAG_BYTES = 16;
const LEAD_BYTES = 9;
/** What a record takes beside its content. */
export const RECORD_OVERHEAD = LENGTH_BYTES + LEAD_BYTES + TAG_BYTES;
/** Most content of one record. */
export const MAX_RECORD_BYTES = 8 * 1024 * 1024;
const ALGORITHM = 'aes-256-gcm';

const KINDS = ['head', 'preamble', 'lines', 'acknowledged', 'part'] as const;
/**
 * `at` is an offset in the recording, the number of an upload for `part`, and 0 for `head`. `lines` has the recording,
 * where it is frames these, and `acknowledged` then has in eight bytes how many bytes of lines are before `at`.
 */
export type RecordKind = (typeof KINDS)[number];

export interface JournalFormat {
  /** It is written over another file. */
  readonly over: boolean;
  /** Which version of frames the recording is; 0: it is lines. */
  readonly frames: number;
}

/** What is needed to deliver the bytes without the gateway that had the session. */
export interface JournalHead {
  readonly sessionId: string;
  /** `ip:port` in order of preference. */
  readonly recorders: readonly string[];
  /** Tags that are looked up again. */
  readonly recorderTags: readonly string[];
  /** What the log says of the session. */
  readonly about: Readonly<Record<string, string>>;
}

export interface JournalFile {
  readonly head: JournalHead;
  readonly preamble: Uint8Array;
  readonly lines: readonly { readonly offset: number; readonly bytes: Uint8Array }[];
  readonly frames: boolean;
  /** True if it was written over another file; bytes of that file may follow its last record. */
  readonly over: boolean;
  readonly acknowledged: number;
  /** Bytes of lines that are acknowledged. */
  readonly acknowledgedLines: number;
  readonly part: number;
  /** `cut`: the last record is not whole, as after a crash. `damaged`: somebody or something changed the file. */
  readonly ending: 'whole' | 'cut' | 'damaged';
}

/**
 * `foreign`: no journal. `newer`: of a version that writes another format, which can read it. `key`: sealed under
 * another key. `empty`: it ends with its prefix, at most. `damaged`: there are bytes, and no head can be read from
 * them.
 */
export class JournalError extends Error {
  override readonly name = 'JournalError';
  readonly problem: 'foreign' | 'newer' | 'key' | 'empty' | 'damaged';

  constructor(problem: JournalError['problem'], message: string) {
    super(message);
    this.problem = problem;
  }
}

export interface JournalSealer {
  readonly prefix: Uint8Array;
  /** The next record of the file, in pieces, as its content is. */
  seal(kind: RecordKind, at: number, ...content: readonly Uint8Array[]): Uint8Array[];
}

/**
 * @param salt of the file; never given twice, except to make the file of a test again
 */
export function createSealer(
  key: JournalKey,
  salt: Uint8Array = randomBytes(SALT_BYTES),
  format: JournalFormat = { over: false, frames: 0 },
): JournalSealer {
  const magic = magicOf(format);
  const fileKey = key.fileKey(salt);
  const lead = Buffer.alloc(LEAD_BYTES);
  let records = 0;
  return {
    prefix: Buffer.concat([magic, key.id, salt]),
    seal(kind, at, ...content) {
      const contentBytes = content.reduce((sum, piece) => sum + piece.length, 0);
      if (contentBytes > MAX_RECORD_BYTES) throw new RangeError('the record is too long');
      const length = lengthField(LEAD_BYTES + contentBytes);
      lead.writeUInt8(KINDS.indexOf(kind), 0);
      lead.writeBigUInt64BE(BigInt(at), 1);
      const cipher = createCipheriv(ALGORITHM, fileKey, nonceOf(records)).setAAD(
        authenticated(length, format),
      );
      records += 1;
      const pieces = [length, cipher.update(lead), ...content.map((piece) => cipher.update(piece))];
      cipher.final();
      pieces.push(cipher.getAuthTag());
      return pieces;
    },
  };
}

export function encodeHead(head: JournalHead): Uint8Array {
  return Buffer.from(JSON.stringify(head), 'utf8');
}

/**
 * Reads a whole file. What follows the first record that is not whole is left out.
 * @throws JournalError
 */
export function readJournal(file: Uint8Array, key: JournalKey): JournalFile {
  const bytes = Buffer.from(file.buffer, file.byteOffset, file.length);
  const format = FORMATS.find(({ magic }) =>
    magic.subarray(0, bytes.length).equals(bytes.subarray(0, MAGIC_BYTES)),
  );
  if (format === undefined) {
    const said = ANY_MAGIC.exec(bytes.toString('latin1', 0, 16))?.[1];
    if (said === undefined) throw new JournalError('foreign', 'it is no journal');
    const reason = `it is a journal of format ${said}, and this version reads up to format ${FORMATS.length}: a newer gateway delivers it`;
    throw new JournalError('newer', reason);
  }
  if (bytes.length <= PREFIX_BYTES) throw new JournalError('empty', 'it has no head');
  if (!key.id.equals(bytes.subarray(MAGIC_BYTES, MAGIC_BYTES + KEY_ID_BYTES))) {
    throw new JournalError('key', 'it is sealed under another key');
  }
  const fileKey = key.fileKey(bytes.subarray(PREFIX_BYTES - SALT_BYTES, PREFIX_BYTES));
  const { records, ending } = openRecords(bytes.subarray(PREFIX_BYTES), fileKey, format);
  const [first] = records;
  // bytes without a head are damage: a crash between prefix and head cannot be told from it
  if (first === undefined) throw new JournalError('damaged', 'its head cannot be read');
  const of = (kind: RecordKind): readonly OpenRecord[] => records.filter((record) => record.kind === kind);
  const { at: acknowledged, lines } = of('acknowledged')
    .map((record) => ({ at: record.at, lines: linesOf(record, format) }))
    .reduce((best, next) => (next.at > best.at ? next : best), { at: 0, lines: 0 });
  return {
    head: readHead(first),
    preamble: Buffer.concat(of('preamble').map(({ content }) => content)),
    lines: of('lines').map(({ at, content }) => ({ offset: at, bytes: content })),
    frames: format.frames > 0,
    over: format.over,
    acknowledged,
    acknowledgedLines: lines,
    part: Math.max(1, ...of('part').map(({ at }) => at)),
    ending,
  };
}

const LINE_BYTES_BYTES = 8;

/** What a record `acknowledged` says beside its place, where the recording is frames. */
export function encodeLineBytes(lineBytes: number): Uint8Array {
  const content = Buffer.alloc(LINE_BYTES_BYTES);
  content.writeBigUInt64BE(BigInt(lineBytes));
  return content;
}

function linesOf({ at, content }: OpenRecord, { frames }: JournalFormat): number {
  if (!frames) return at;
  if (content.length !== LINE_BYTES_BYTES)
    throw new JournalError('damaged', 'what is acknowledged cannot be read');
  return Number(Buffer.from(content).readBigUInt64BE());
}

interface OpenRecord {
  readonly kind: RecordKind;
  readonly at: number;
  readonly content: Uint8Array;
}

function openRecords(
  bytes: Buffer,
  key: KeyObject,
  format: JournalFormat,
): { readonly records: readonly OpenRecord[]; readonly ending: JournalFile['ending'] } {
  const { over } = format;
  const records: OpenRecord[] = [];
  for (let start = 0; start < bytes.length;) {
    if (start + LENGTH_BYTES > bytes.length) return { records, ending: 'cut' };
    const length = bytes.readUInt32BE(start);
    if (length === 0 && over) return { records, ending: 'whole' };
    if (length < LEAD_BYTES || length > LEAD_BYTES + MAX_RECORD_BYTES)
      return { records, ending: over ? 'cut' : 'damaged' };
    const end = start + LENGTH_BYTES + length + TAG_BYTES;
    if (end > bytes.length) return { records, ending: 'cut' };
    const record = openRecord(bytes.subarray(start, end), key, records.length, format);
    if (record === undefined) return { records, ending: over ? 'cut' : 'damaged' };
    records.push(record);
    start = end;
  }
  return { records, ending: 'whole' };
}

function openRecord(
  record: Buffer,
  key: KeyObject,
  number: number,
  format: JournalFormat,
): OpenRecord | undefined {
  const tagAt = record.length - TAG_BYTES;
  const decipher = createDecipheriv(ALGORITHM, key, nonceOf(number), { authTagLength: TAG_BYTES })
    .setAAD(authenticated(record.subarray(0, LENGTH_BYTES), format))
    .setAuthTag(record.subarray(tagAt));
  const plain = decipher.update(record.subarray(LENGTH_BYTES, tagAt));
  try {
    decipher.final();
  } catch {
    return undefined;
  }
  const kind = KINDS[plain.readUInt8(0)];
  if (kind === undefined) return undefined;
  return { kind, at: Number(plain.readBigUInt64BE(1)), content: plain.subarray(LEAD_BYTES) };
}

function readHead({ kind, content }: OpenRecord): JournalHead {
  try {
    if (kind !== 'head') throw new Error('it does not begin with its head');
    const value: unknown = JSON.parse(Buffer.from(content).toString('utf8'));
    if (!isHead(value)) throw new Error('its head has another shape');
    return value;
  } catch (error) {
    throw new JournalError('damaged', errorText(error));
  }
}

function isHead(value: unknown): value is JournalHead {
  if (typeof value !== 'object' || value === null) return false;
  const members = new Map<string, unknown>(Object.entries(value));
  const about = members.get('about');
  return (
    typeof members.get('sessionId') === 'string' &&
    areTexts(members.get('recorders')) &&
    areTexts(members.get('recorderTags')) &&
    typeof about === 'object' &&
    about !== null &&
    areTexts(Object.values(about))
  );
}

function areTexts(value: unknown): boolean {
  return Array.isArray(value) && value.every((item) => typeof item === 'string');
}

function lengthField(length: number): Buffer {
  const field = Buffer.alloc(LENGTH_BYTES);
  field.writeUInt32BE(length);
  return field;
}

function magicOf({ over, frames }: JournalFormat): Buffer {
  const format = FORMATS.find((each) => each.over === over && each.frames === frames);
  if (format === undefined) throw new RangeError('there is no such format');
  return format.magic;
}

/** What each record says of where it is: whoever changed the format of a file would have lines read as frames. */
function authenticated(length: Buffer, format: JournalFormat): Buffer {
  return format.frames > 0 ? Buffer.concat([length, magicOf(format)]) : length;
}

function nonceOf(record: number): Buffer {
  const nonce = Buffer.alloc(12);
  nonce.writeBigUInt64BE(BigInt(record), 4);
  return nonce;
}
