/**
 * Format of journal files. A journal contains the unacknowledged output of a recording, so that the output survives a
 * stop of the gateway. A file consists of a plain prefix and sealed (encrypted) records.
 *
 * ```
 *   file    prefix record…                          new file
 *   file    prefix record… 0 (u32)  old content     file that was written over an older one
 *   prefix  "tcjrnl3\n"  key id (8)  salt (32)       new file; "tcjrnl4\n": file over an older file
 *   record  length of the ciphertext (u32)  ciphertext  tag (16)
 *   plain   kind (u8)  at (u64, big endian)  content
 * ```
 *
 * Records are sealed with AES-256-GCM. Each file has its own key. The nonce is the number of the record in the file.
 * The authenticated data contains the length of the record and the format (the first bytes of the prefix). A reader
 * therefore detects records that were changed, moved, omitted or copied from another file. It cannot detect that the
 * last records of a file are missing, as after a crash. The first record is the head. The second record is a `part`
 * record without content.
 *
 * A file may be written over the content of an older file. The old content was sealed with another key, so it is never
 * read as a record. If a crash interrupts a write over old content, the incomplete record looks like a changed record.
 * If this record is the head, the file counts as damaged.
 */
import { createCipheriv, createDecipheriv, randomBytes, type KeyObject } from 'node:crypto';
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import { KEY_ID_BYTES, SALT_BYTES, type JournalKey } from './journal-key.ts';

const MAGIC_BYTES = 8;
const NEW_FILE = Buffer.from('tcjrnl3\n', 'latin1');
const OVER_FILE = Buffer.from('tcjrnl4\n', 'latin1');
/** First bytes of the files of every format. Later formats have higher numbers. */
const ANY_MAGIC = /^tcjrnl(\d+)\n/;
export const PREFIX_BYTES = MAGIC_BYTES + KEY_ID_BYTES + SALT_BYTES;
const LENGTH_BYTES = 4;
/** Separator between the last record and the old content in a file that was written over an older file. */
export const END_MARK = Buffer.alloc(LENGTH_BYTES);
const TAG_BYTES = 16;
const LEAD_BYTES = 9;
/** Number of bytes that a record needs in addition to its content. */
export const RECORD_OVERHEAD = LENGTH_BYTES + LEAD_BYTES + TAG_BYTES;
/** Maximum content of one record. */
export const MAX_RECORD_BYTES = 8 * 1024 * 1024;
const ALGORITHM = 'aes-256-gcm';

const KINDS = ['head', 'preamble', 'lines', 'acknowledged', 'part'] as const;
/**
 * Kinds of records. The field `at` of a record is an offset in the recording. For `part` it is the number of an upload,
 * and for `head` it is 0. A record `lines` contains frames of the recording. A record `acknowledged` contains eight
 * bytes: the length of the lines that correspond to the frames before `at`.
 */
export type RecordKind = (typeof KINDS)[number];

const texts = z.array(z.string()).readonly();
const HEAD_SCHEMA = z.object({
  sessionId: z.string(),
  recorders: texts,
  recorderTags: texts,
  tagsOf: z.record(z.string(), texts).exactOptional(),
  /** Log fields of the session. */
  about: z.record(z.string(), z.string()).readonly(),
});
/** Data of a session that another process needs to deliver the recording. That process looks up the recorders again. */
export type JournalHead = z.infer<typeof HEAD_SCHEMA>;

/** Returns the user of a session; an empty text if the log fields name none. */
export function userOf({ about: { user = '' } }: JournalHead): string {
  return user;
}

export interface JournalFile {
  readonly head: JournalHead;
  readonly preamble: Uint8Array;
  readonly lines: readonly { readonly offset: number; readonly bytes: Uint8Array }[];
  /** True if the file overwrites an older file. Bytes of the older file may follow the last record. */
  readonly over: boolean;
  readonly acknowledged: number;
  /** Number of acknowledged bytes of asciicast lines. */
  readonly acknowledgedLines: number;
  readonly part: number;
  /**
   * `whole`: the last record is complete. `cut`: the last record is incomplete, as after a crash. `damaged`:
   * the file was changed.
   */
  readonly ending: 'whole' | 'cut' | 'damaged';
}

/**
 * Reason why a file cannot be read. `foreign`: the file is not a journal. `newer`: a newer version of
 * tailcast wrote it. `key`: it is sealed with another key. `empty`: it contains no record. `damaged`: its
 * head is unreadable.
 */
export class JournalError extends Error {
  override readonly name = 'JournalError';
  readonly problem: 'foreign' | 'newer' | 'key' | 'empty' | 'damaged';

  constructor(problem: JournalError['problem'], message: string) {
    super(message);
    this.problem = problem;
  }
}

export type JournalSealer = ReturnType<typeof createSealer>;

/**
 * @param file `over` is true if the file overwrites an older file. `salt` must be unique, so only tests pass a fixed
 * salt
 */
export function createSealer(
  key: JournalKey,
  { over = false, salt = randomBytes(SALT_BYTES) }: { over?: boolean; salt?: Uint8Array } = {},
) {
  const magic = over ? OVER_FILE : NEW_FILE;
  const fileKey = key.fileKey(salt);
  const lead = Buffer.alloc(LEAD_BYTES);
  let records = 0;
  return {
    prefix: Buffer.concat([magic, key.id, salt]),
    /** Returns the next record of the file as a list of pieces. The list has at least as many pieces as `content`. */
    seal(kind: RecordKind, at: number, ...content: readonly Uint8Array[]): Uint8Array[] {
      const contentBytes = content.reduce((sum, piece) => sum + piece.length, 0);
      if (contentBytes > MAX_RECORD_BYTES) throw new RangeError('the record is too long');
      const length = lengthField(LEAD_BYTES + contentBytes);
      lead.writeUInt8(KINDS.indexOf(kind), 0);
      lead.writeBigUInt64BE(BigInt(at), 1);
      const cipher = createCipheriv(ALGORITHM, fileKey, nonceOf(records)).setAAD(
        Buffer.concat([length, magic]),
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
 * Reads a complete file. Bytes after the first incomplete record are ignored.
 * @throws JournalError
 */
export function readJournal(file: Uint8Array, key: JournalKey): JournalFile {
  const bytes = Buffer.from(file.buffer, file.byteOffset, file.length);
  const magic = [NEW_FILE, OVER_FILE].find((each) =>
    each.subarray(0, bytes.length).equals(bytes.subarray(0, MAGIC_BYTES)),
  );
  if (magic === undefined) {
    const said = ANY_MAGIC.exec(bytes.toString('latin1', 0, 16))?.[1];
    if (said === undefined) throw new JournalError('foreign', 'it is no journal');
    const reason =
      `it is a journal of format ${said}, and this version reads up to format 4: ` +
      'a newer gateway delivers it';
    throw new JournalError('newer', reason);
  }
  if (bytes.length <= PREFIX_BYTES) throw new JournalError('empty', 'it has no head');
  if (!key.id.equals(bytes.subarray(MAGIC_BYTES, MAGIC_BYTES + KEY_ID_BYTES))) {
    throw new JournalError('key', 'it is sealed under another key');
  }
  const fileKey = key.fileKey(bytes.subarray(PREFIX_BYTES - SALT_BYTES, PREFIX_BYTES));
  const { records, ending } = openRecords(bytes.subarray(PREFIX_BYTES), fileKey, magic);
  const [first] = records;
  // a file whose head is incomplete after a crash looks like a damaged file, so both are reported as damaged
  if (first === undefined) throw new JournalError('damaged', 'its head cannot be read');
  const of = (kind: RecordKind): readonly OpenRecord[] => records.filter((record) => record.kind === kind);
  const { at: acknowledged, lines } = of('acknowledged')
    .map((record) => ({ at: record.at, lines: linesOf(record) }))
    .reduce((best, next) => (next.at > best.at ? next : best), { at: 0, lines: 0 });
  return {
    head: readHead(first),
    preamble: Buffer.concat(of('preamble').map(({ content }) => content)),
    lines: of('lines').map(({ at, content }) => ({ offset: at, bytes: content })),
    over: magic === OVER_FILE,
    acknowledged,
    acknowledgedLines: lines,
    part: Math.max(1, ...of('part').map(({ at }) => at)),
    ending,
  };
}

const LINE_BYTES_BYTES = 8;

/** Returns the content of an `acknowledged` record. */
export function encodeLineBytes(lineBytes: number): Uint8Array {
  const content = Buffer.alloc(LINE_BYTES_BYTES);
  content.writeBigUInt64BE(BigInt(lineBytes));
  return content;
}

function linesOf({ content }: OpenRecord): number {
  if (content.length !== LINE_BYTES_BYTES)
    throw new JournalError('damaged', 'the acknowledged length cannot be read');
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
  magic: Buffer,
): { readonly records: readonly OpenRecord[]; readonly ending: JournalFile['ending'] } {
  const over = magic === OVER_FILE;
  const records: OpenRecord[] = [];
  for (let start = 0; start < bytes.length;) {
    if (start + LENGTH_BYTES > bytes.length) return { records, ending: 'cut' };
    const length = bytes.readUInt32BE(start);
    if (length === 0 && over) return { records, ending: 'whole' };
    if (length < LEAD_BYTES || length > LEAD_BYTES + MAX_RECORD_BYTES)
      return { records, ending: over ? 'cut' : 'damaged' };
    const end = start + LENGTH_BYTES + length + TAG_BYTES;
    if (end > bytes.length) return { records, ending: 'cut' };
    const record = openRecord(bytes.subarray(start, end), key, records.length, magic);
    if (record === undefined) return { records, ending: over ? 'cut' : 'damaged' };
    records.push(record);
    start = end;
  }
  return { records, ending: 'whole' };
}

function openRecord(record: Buffer, key: KeyObject, number: number, magic: Buffer): OpenRecord | undefined {
  const tagAt = record.length - TAG_BYTES;
  const decipher = createDecipheriv(ALGORITHM, key, nonceOf(number), { authTagLength: TAG_BYTES })
    .setAAD(Buffer.concat([record.subarray(0, LENGTH_BYTES), magic]))
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
  const head =
    kind === 'head'
      ? HEAD_SCHEMA.safeParse(jsonOrUndefined(Buffer.from(content).toString())).data
      : undefined;
  if (head === undefined) throw new JournalError('damaged', 'its head has another shape');
  return head;
}

function lengthField(length: number): Buffer {
  const field = Buffer.alloc(LENGTH_BYTES);
  field.writeUInt32BE(length);
  return field;
}

function nonceOf(record: number): Buffer {
  const nonce = Buffer.alloc(12);
  nonce.writeBigUInt64BE(BigInt(record), 4);
  return nonce;
}
