/**
 * Keys that encrypt recordings at rest (ADR 16). Each archive has its own data key (AES-256-GCM), which is encrypted
 * (*wrapped*) with a key of the key file. Recorders never write the keys of the key file to the store. The nonce of a
 * frame is its number, so that an attacker cannot swap frames. The seek table has its own nonce, and each wrapped key
 * has a random nonce. The wrapped key is bound to the name of the object, so that an attacker cannot swap archives.
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

/** Encrypts and decrypts the parts of one archive. */
export type ArchiveCipher = ReturnType<typeof createArchiveCipher>;

/** The keys of a key file. */
export type SealKeys = ReturnType<typeof createSealKeys>;

/**
 * Reads a key file: one key of 32 bytes in base64 per line, the key for new recordings first. `#` starts a comment.
 * @throws TailcastError `CONFIG_INVALID` with file and line
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
    throw invalid('has no key; make one: openssl rand -base64 32, one key per line, the newest first', path);
  if (keys.length > MAX_KEYS) throw invalid(`has more than ${MAX_KEYS} keys`, path);
  return createSealKeys([first, ...keys.slice(1)]);
}

/** Creates the keys. @param keys keys of 32 bytes; the first key encrypts new archives */
export function createSealKeys(keys: readonly [Uint8Array, ...Uint8Array[]]) {
  const byId = new Map(keys.map((key) => [idOf(key).toString('hex'), key]));
  const [newest] = keys;
  return {
    /** Creates a data key for an object, and the head of its archive. */
    seal(name: string) {
      const dataKey = randomBytes(KEY_BYTES);
      const keyId = idOf(newest);
      const nonce = randomBytes(NONCE_BYTES);
      const wrappedKey = Buffer.concat([nonce, encrypt(newest, nonce, dataKey, Buffer.from(name))]);
      return { head: encodeSeal({ keyId, wrappedKey }), cipher: createArchiveCipher(dataKey) };
    },
    /**
     * Unwraps the data key of an archive.
     * @returns undefined if the wrapping key is not in the key file
     * @throws ArchiveFormatError if the seal belongs to another object
     */
    open({ keyId, wrappedKey }: ArchiveSeal, name: string) {
      const key = byId.get(Buffer.from(keyId).toString('hex'));
      if (key === undefined) return undefined;
      const [nonce, wrapped] = [wrappedKey.subarray(0, NONCE_BYTES), wrappedKey.subarray(NONCE_BYTES)];
      const dataKey = decrypt(key, nonce, wrapped, Buffer.from(name));
      if (dataKey === undefined) throw new ArchiveFormatError('its seal is not of this recording');
      return createArchiveCipher(dataKey);
    },
  };
}

function createArchiveCipher(key: Uint8Array) {
  const tagOf = (table: Uint8Array): Uint8Array => encrypt(key, TABLE_NONCE, NO_BYTES, table);
  return {
    /** Encrypts a frame. */
    seal(index: number, frame: Uint8Array): Uint8Array {
      const cipher = encrypt(key, frameNonce(index), frame, NO_BYTES);
      return Buffer.concat([encodeSealedFrameHeader(cipher.length), cipher]);
    },
    /** Decrypts a frame. @throws ArchiveFormatError if it is not the frame with this number */
    open(index: number, stored: Uint8Array): Uint8Array {
      const frame = decrypt(key, frameNonce(index), parseSealedFrame(stored), NO_BYTES);
      if (frame === undefined) throw new ArchiveFormatError(`frame ${index} differs from its sealed content`);
      return frame;
    },
    /** Returns the authentication tag of the seek table. */
    tagOf,
    /** Verifies the seek table. @throws ArchiveFormatError if the tag does not match */
    check(table: Uint8Array, tag: Uint8Array): void {
      if (decrypt(key, TABLE_NONCE, tag, table) === undefined)
        throw new ArchiveFormatError('its seek table differs from the sealed one');
    },
  };
}

const NO_BYTES = new Uint8Array(0);
/** Nonce of the seek table. This nonce is greater than the nonces of all frames. */
const TABLE_NONCE = Buffer.alloc(NONCE_BYTES, 0xff);

function frameNonce(index: number): Uint8Array {
  const nonce = Buffer.alloc(NONCE_BYTES);
  nonce.writeUInt32BE(index, NONCE_BYTES - 4);
  return nonce;
}

/** Returns the id of a key: the first bytes of a digest, which does not reveal the key. */
function idOf(key: Uint8Array): Buffer {
  return createHash('sha256').update('tailcast seal key').update(key).digest().subarray(0, ID_BYTES);
}

/** Encrypts, and returns ciphertext and tag. */
function encrypt(key: Uint8Array, nonce: Uint8Array, plain: Uint8Array, bound: Uint8Array): Buffer {
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(bound);
  return Buffer.concat([cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
}

/** Decrypts, and returns the plaintext; undefined if the tag does not match. */
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
