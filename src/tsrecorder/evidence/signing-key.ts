/** Ed25519 keys (RFC 8032): one private key per recorder, and public keys for verification. */
import {
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  hash,
  hkdfSync,
  sign,
  verify,
  type KeyObject,
} from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { errorReason, isSystemError, TailcastError } from '../../errors.ts';
import { replaceFile } from '../../directories.ts';

/** A public Ed25519 key. */
export interface PublicKey {
  /** First 16 bytes of the SHA-256 of the raw key, in hexadecimal. */
  readonly id: string;
  /** The raw key of 32 bytes in base64. */
  readonly raw: string;
  /** SubjectPublicKeyInfo, PEM. */
  readonly pem: string;
  /** True if this key created `signature` (base64) for `message`. */
  verifies(message: string | Uint8Array, signature: string): boolean;
}

/** A private Ed25519 key. */
export interface SigningKey {
  readonly public: PublicKey;
  /** Returns the signature in base64. */
  sign(message: string | Uint8Array): string;
  /** Derives a secret from the private key. Each purpose has a different secret. */
  secret(purpose: string): Uint8Array;
}

const RAW_KEY_BYTES = 32;
const SIGNATURE_BYTES = 64;

/**
 * Reads the private key from `path` (PKCS#8 PEM, mode 0600).
 * @param create true to create a key if the file is missing
 * @throws TailcastError `CONFIG_INVALID` if the key is unusable
 */
export async function loadSigningKey(path: string, create: boolean): Promise<SigningKey> {
  let pem: string;
  try {
    pem = await readFile(path, 'utf8');
  } catch (error) {
    if (!create || !isSystemError(error, 'ENOENT')) throw unusable(path, errorReason(error));
    pem = await createKeyFile(path);
  }
  try {
    const key = createPrivateKey(pem);
    if (key.asymmetricKeyType === 'ed25519') return asSigningKey(key);
  } catch {
    // Omit the error text of OpenSSL, because it does not help a user.
  }
  throw unusable(path, 'it is not an Ed25519 private key in PEM (PKCS#8)');
}

/** Generates a key without writing it to a file. */
export function generateSigningKey(): SigningKey {
  return asSigningKey(generateKeyPairSync('ed25519').privateKey);
}

/** Parses a public key. @param text PEM, or the raw key in base64. @returns undefined for an invalid key */
export function parsePublicKey(text: string): PublicKey | undefined {
  try {
    const trimmed = text.trim();
    if (trimmed.startsWith('-----BEGIN')) return asPublicKey(createPublicKey(trimmed));
    const raw = Buffer.from(trimmed, 'base64');
    if (raw.length !== RAW_KEY_BYTES || raw.toString('base64') !== trimmed) return undefined;
    const jwk = { kty: 'OKP', crv: 'Ed25519', x: raw.toString('base64url') };
    return asPublicKey(createPublicKey({ key: jwk, format: 'jwk' }));
  } catch {
    return undefined;
  }
}

/**
 * Reads the public keys of a file: PEM blocks, or one raw base64 key per line.
 * @throws TailcastError `CONFIG_INVALID` if the file is unreadable, or contains anything other than Ed25519 keys
 */
export async function loadPublicKeys(path: string): Promise<readonly PublicKey[]> {
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    throw new TailcastError(
      'CONFIG_INVALID',
      `the keys of the recorders cannot be read: ${errorReason(error)}`,
    );
  });
  const blocks = text.match(/-----BEGIN [^]*?-----END [A-Z ]+-----|^\S+$/gm) ?? [];
  return blocks.map((block) => {
    const key = parsePublicKey(block);
    if (key !== undefined) return key;
    throw new TailcastError('CONFIG_INVALID', `${path} contains something other than a public Ed25519 key`);
  });
}

/** Returns a map from key ids to public keys. */
export function keysById(keys: readonly PublicKey[]): ReadonlyMap<string, PublicKey> {
  return new Map(keys.map((key) => [key.id, key]));
}

function asSigningKey(key: KeyObject): SigningKey {
  const publicKey = asPublicKey(createPublicKey(key));
  if (publicKey === undefined) throw new Error('it is not an Ed25519 key');
  const seed = key.export({ format: 'jwk' }).d ?? '';
  return {
    public: publicKey,
    sign: (message) => sign(null, bytesOf(message), key).toString('base64'),
    secret: (purpose) => new Uint8Array(hkdfSync('sha256', seed, '', `tailcast ${purpose}`, RAW_KEY_BYTES)),
  };
}

function asPublicKey(key: KeyObject): PublicKey | undefined {
  if (key.asymmetricKeyType !== 'ed25519') return undefined;
  const raw = Buffer.from(key.export({ format: 'jwk' }).x ?? '', 'base64url');
  return {
    id: hash('sha256', raw).slice(0, 32),
    raw: raw.toString('base64'),
    pem: key.export({ format: 'pem', type: 'spki' }).toString(),
    verifies(message, signature) {
      const bytes = Buffer.from(signature, 'base64');
      // Base64 has several encodings for the same bytes. Accept only the canonical encoding.
      if (bytes.length !== SIGNATURE_BYTES || bytes.toString('base64') !== signature) return false;
      return verify(null, bytesOf(message), key, bytes);
    },
  };
}

async function createKeyFile(path: string): Promise<string> {
  const { privateKey } = generateKeyPairSync('ed25519');
  const pem = privateKey.export({ format: 'pem', type: 'pkcs8' }).toString();
  await replaceFile(path, pem);
  return pem;
}

function bytesOf(message: string | Uint8Array): Uint8Array {
  return typeof message === 'string' ? Buffer.from(message) : message;
}

function unusable(path: string, reason: string): TailcastError {
  return new TailcastError('CONFIG_INVALID', `the evidence key ${path} cannot be used: ${reason}`);
}
