/** Ed25519 (RFC 8032) keys: one private key per recorder, public keys for everybody who verifies. */
import {
  createHash,
  createPrivateKey,
  createPublicKey,
  generateKeyPairSync,
  hkdfSync,
  sign,
  verify,
  type KeyObject,
} from 'node:crypto';
import { chmod, readFile, rename } from 'node:fs/promises';
import { dirname } from 'node:path';
import { TailcastError, errorText } from '../../errors.ts';
import { isSystemError, removeFile, syncDirectory, writeDurableFile } from '../files/durable-files.ts';

export interface PublicKey {
  /** First 16 bytes of the SHA-256 of the raw key, hexadecimal. */
  readonly id: string;
  /** The raw key of 32 bytes, base64. */
  readonly raw: string;
  /** SubjectPublicKeyInfo, PEM. */
  readonly pem: string;
  /** Whether `signature` (base64) is this key's for `message`. */
  verifies(message: string | Uint8Array, signature: string): boolean;
}

export interface SigningKey {
  readonly public: PublicKey;
  /** @returns the signature, base64. */
  sign(message: string | Uint8Array): string;
  /** A secret that follows from the private key, another one for each purpose. */
  secret(purpose: string): Uint8Array;
}

const RAW_KEY_BYTES = 32;
const SIGNATURE_BYTES = 64;

/**
 * The private key in `path` (PKCS#8 PEM, readable by nobody else).
 *
 * @param create make the key if there is no file.
 * @throws TailcastError `CONFIG_INVALID` when there is no usable key.
 */
export async function loadSigningKey(path: string, create: boolean): Promise<SigningKey> {
  let pem: string;
  try {
    pem = await readFile(path, 'utf8');
  } catch (error) {
    if (!create || !isSystemError(error, 'ENOENT')) throw unusable(error);
    pem = await createKeyFile(path);
  }
  try {
    const key = createPrivateKey(pem);
    if (key.asymmetricKeyType !== 'ed25519') throw new Error('it is not an Ed25519 key');
    return asSigningKey(key);
  } catch (error) {
    throw unusable(error);
  }
}

/** A key that nobody keeps. */
export function generateSigningKey(): SigningKey {
  return asSigningKey(generateKeyPairSync('ed25519').privateKey);
}

/** @param text PEM, or the raw key in base64. @returns undefined when it is no Ed25519 key. */
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
 * The public keys in a file: PEM blocks, or raw keys in base64 on a line each.
 *
 * @throws TailcastError `CONFIG_INVALID` when the file cannot be read, or something in it is no Ed25519 key.
 */
export async function loadPublicKeys(path: string): Promise<readonly PublicKey[]> {
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    throw new TailcastError('CONFIG_INVALID', `the keys of the recorders cannot be read: ${reasonOf(error)}`);
  });
  const blocks = text.match(/-----BEGIN [^]*?-----END [A-Z ]+-----|^\S+$/gm) ?? [];
  return blocks.map((block) => {
    const key = parsePublicKey(block);
    if (key !== undefined) return key;
    throw new TailcastError('CONFIG_INVALID', `${path} has something that is no public Ed25519 key`);
  });
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
    id: createHash('sha256').update(raw).digest('hex').slice(0, 32),
    raw: raw.toString('base64'),
    pem: key.export({ format: 'pem', type: 'spki' }).toString(),
    verifies(message, signature) {
      const bytes = Buffer.from(signature, 'base64');
      // one text per signature: base64 has several for the same bytes
      if (bytes.length !== SIGNATURE_BYTES || bytes.toString('base64') !== signature) return false;
      return verify(null, bytesOf(message), key, bytes);
    },
  };
}

/** Whole or not at all, durably. */
async function createKeyFile(path: string): Promise<string> {
  const { privateKey } = generateKeyPairSync('ed25519');
  const pem = privateKey.export({ format: 'pem', type: 'pkcs8' }).toString();
  const draft = `${path}.part`;
  await removeFile(draft);
  await writeDurableFile(draft, [Buffer.from(pem)]);
  await chmod(draft, 0o600);
  await rename(draft, path);
  await syncDirectory(dirname(path));
  return pem;
}

function bytesOf(message: string | Uint8Array): Uint8Array {
  return typeof message === 'string' ? Buffer.from(message) : message;
}

function unusable(error: unknown): TailcastError {
  const detail = `the evidence key cannot be used: ${reasonOf(error)}`;
  return new TailcastError('CONFIG_INVALID', detail, { cause: error });
}

function reasonOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : errorText(error);
}
