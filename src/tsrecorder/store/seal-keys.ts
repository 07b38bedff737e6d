/**
 * Keys that recordings are sealed with at rest (ADR 16). Each archive has a data key of its own, AES-256-GCM; the data
 * key is wrapped with a key of a key file, which the store never sees. Nonces: a frame's number, so that frames cannot
 * change places; the table has one of its own; wrapped keys have random ones. The wrapped key is bound to the name of
 * the object, so that archives cannot either.
 */
import { createCipheriv, createDecipheriv, createHash, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { errorReason, TailcastError } from '../../errors.ts';
import {
  ArchiveFormatError,
  encodeSeal,
  encodeSealedFrameHeader,
  parseSealedFrame,
  TAG_BYTES,
  type ArchiveSeal,
} from '../../wire/archive/seek-table.ts';

const CIPHER = 'aes-256-gcm';
const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const ID_BYTES = 16;
const MAX_KEYS = 1000;

/** Seals and opens what one archive is made of. */
export interface ArchiveCipher {
  /** @returns the frame as it is stored */
  seal(index: number, frame: Uint8Array): Uint8Array;
  /** @param stored as `seal` returned it. @throws ArchiveFormatError when it is not the frame with this number */
  open(index: number, stored: Uint8Array): Uint8Array;
  tagOf(table: Uint8Array): Uint8Array;
  /** @throws ArchiveFormatError when `tag` is not that of the table */
  check(table: Uint8Array, tag: Uint8Array): void;
}

export interface SealKeys {
  /** A new data key for an object, and what its archive begins with. */
  seal(name: string): { readonly head: Uint8Array; readonly cipher: ArchiveCipher };
  /**
   * @returns undefined when the key it was wrapped with is not among these
   * @throws ArchiveFormatError when it is not the seal of the object with this name
   */
  open(seal: ArchiveSeal, name: string): ArchiveCipher | undefined;
}

/**
 * Reads a key file: a key of 32 bytes in base64 on each line, the one for new recordings first; `#` begins a comment.
 * @throws TailcastError `CONFIG_INVALID` naming file and line
 */
export async function loadSealKeys(path: string): Promise<SealKeys> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (error) {
    throw invalid(`cannot be read: ${errorReason(error)}`, path);
  }
  const keys = text.split('\n').flatMap((line, index) => {
    const content = line.replace(/#.*/, '').trim();
    if (content === '') return [];
    const key = Buffer.from(content, 'base64');
    if (key.length !== KEY_BYTES || key.toString('base64') !== content) {
      throw invalid(`line ${index + 1} is no key of 32 bytes in base64 (openssl rand -base64 32)`, path);
    }
    return [key];
  });
  const [first] = keys;
  if (first === undefined)
    throw invalid('has no key; make one: openssl rand -base64 32, one key a line, the newest first', path);
  if (keys.length > MAX_KEYS) throw invalid(`has more than ${MAX_KEYS} keys`, path);
  return createSealKeys([first, ...keys.slice(1)]);
}

/** @param keys of 32 bytes; new archives are sealed with the first */
export function createSealKeys(keys: readonly [Uint8Array, ...Uint8Array[]]): SealKeys {
  const byId = new Map(keys.map((key) => [idOf(key).toString('hex'), key]));
  const [newest] = keys;
  return {
    seal(name) {
      const dataKey = randomBytes(KEY_BYTES);
      const keyId = idOf(newest);
      const nonce = randomBytes(NONCE_BYTES);
      const wrappedKey = Buffer.concat([nonce, encrypt(newest, nonce, dataKey, Buffer.from(name))]);
      return { head: encodeSeal({ keyId, wrappedKey }), cipher: createArchiveCipher(dataKey) };
    },
    open({ keyId, wrappedKey }, name) {
      const key = byId.get(Buffer.from(keyId).toString('hex'));
      if (key === undefined) return undefined;
      const [nonce, wrapped] = [wrappedKey.subarray(0, NONCE_BYTES), wrappedKey.subarray(NONCE_BYTES)];
      const dataKey = decrypt(key, nonce, wrapped, Buffer.from(name));
      if (dataKey === undefined) throw new ArchiveFormatError('its seal is not of this recording');
      return createArchiveCipher(dataKey);
    },
  };
}

function createArchiveCipher(key: Uint8Array): ArchiveCipher {
  const tagOf = (table: Uint8Array): Uint8Array => encrypt(key, TABLE_NONCE, NO_BYTES, table);
  return {
    seal(index, frame) {
      const cipher = encrypt(key, frameNonce(index), frame, NO_BYTES);
      return Buffer.concat([encodeSealedFrameHeader(cipher.length), cipher]);
    },
    open(index, stored) {
      const frame = decrypt(key, frameNonce(index), parseSealedFrame(stored), NO_BYTES);
      if (frame === undefined) throw new ArchiveFormatError(`frame ${index} is not as it was sealed`);
      return frame;
    },
    tagOf,
    check(table, tag) {
      if (decrypt(key, TABLE_NONCE, tag, table) === undefined)
        throw new ArchiveFormatError('its index is not as it was sealed');
    },
  };
}

const NO_BYTES = new Uint8Array(0);
/** Frames are numbered from 0 and are fewer. */
const TABLE_NONCE = Buffer.alloc(NONCE_BYTES, 0xff);

function frameNonce(index: number): Uint8Array {
  const nonce = Buffer.alloc(NONCE_BYTES);
  nonce.writeUInt32BE(index, NONCE_BYTES - 4);
  return nonce;
}

/** First bytes of a digest that says nothing of the key. */
function idOf(key: Uint8Array): Buffer {
  return createHash('sha256').update('tailcast seal key').update(key).digest().subarray(0, ID_BYTES);
}

/** @returns ciphertext and tag */
function encrypt(key: Uint8Array, nonce: Uint8Array, plain: Uint8Array, bound: Uint8Array): Buffer {
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(bound);
  return Buffer.concat([cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
}

/** @returns undefined when it is not what was encrypted */
function decrypt(
  key: Uint8Array,
  nonce: Uint8Array,
  sealed: Uint8Array,
  bound: Uint8Array,
): Buffer | undefined {
  const end = sealed.length - TAG_BYTES;
  const cipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(bound);
  cipher.setAuthTag(sealed.subarray(end));
  const plain = cipher.update(sealed.subarray(0, end));
  try {
    cipher.final();
    return plain;
  } catch {
    return undefined;
  }
}

function invalid(problem: string, path: string): TailcastError {
  return new TailcastError('CONFIG_INVALID', `sealKeys: ${path} ${problem}`);
}
