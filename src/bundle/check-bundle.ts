/**
 * Verifies a bundle in the browser that opens it: checks that the key signed the sidecar, and that cast and notes match
 * the sidecar. The check shares no code with the recorder, and uses only the Web Crypto API. A bundle cannot prove that
 * the key belongs to a recorder, or that the store is complete.
 */
import { decodeBase64 } from '../wire/base64.ts';
import { splitSignature, type SidecarSignature } from '../wire/recorder-api/sidecar-signature.ts';
import { missingBeginning } from './bundle-format.ts';
import type { BundleReader } from './read-bundle.ts';
import { isRecord } from '../wire/is-record.ts';

/**
 * `verified`: the key signed the sidecar, and cast and notes match it. `none`: the bundle has no signature. `unable`:
 * this browser cannot check the signature.
 */
export interface BundleCheck {
  readonly verdict: 'verified' | 'failed' | 'none' | 'unable';
  /** Sentences for the user: faults, the reason for a verdict, and the part of the session that is missing. */
  readonly findings: readonly string[];
  /** Descriptions of the data on the page that the signature covers; empty unless the verdict is `verified`. */
  readonly covers: readonly string[];
  /** Id of the signing key: the first 16 bytes of its SHA-256, hexadecimal. */
  readonly keyId?: string;
}

type Bytes = Uint8Array<ArrayBuffer>;

/** Reports faults of the file in the result, and never throws an error for them. */
export async function checkBundle(bundle: BundleReader): Promise<BundleCheck> {
  try {
    return await check(bundle);
  } catch (error) {
    return {
      verdict: 'failed',
      findings: [error instanceof Error ? error.message : String(error)],
      covers: [],
    };
  }
}

async function check(bundle: BundleReader): Promise<BundleCheck> {
  if (!bundle.has('sidecar')) return none('it has no sidecar, so it was stored without evidence');
  const sidecar = new TextDecoder('utf-8', { ignoreBOM: true }).decode(await bundle.read('sidecar'));
  const signed = splitSignature(sidecar);
  if (signed === undefined) return none('its sidecar has no signature');
  if (!bundle.has('key')) return none('the key that signed it is not known');
  const pem = new TextDecoder().decode(await bundle.read('key'));
  const key = decodeBase64(pem.replaceAll(/-----[A-Z ]+-----|\s/g, ''));
  const keyId = hex(await sha256(key.slice(-RAW_KEY_BYTES))).slice(0, 32);
  const isGood = await verifies(key, signed);
  if (isGood === undefined)
    return {
      verdict: 'unable',
      findings: ['this browser cannot check Ed25519 signatures'],
      covers: [],
      keyId,
    };
  const findings: string[] = [];
  if (keyId !== signed.keyId) findings.push(`the sidecar is signed by another key, ${signed.keyId}`);
  if (!isGood) findings.push('the sidecar was changed after it was signed');
  const { recording, evidence } = asDocument(sidecar);
  if (recording.id !== bundle.manifest.id)
    findings.push(`the sidecar belongs to the recording ${recording.id}`);
  const { parts } = bundle.manifest;
  if (parts > 1)
    return {
      verdict: findings.length > 0 ? 'failed' : 'unable',
      findings: [
        ...findings,
        `the session has ${parts} parts, and the store contains a signature for each part`,
      ],
      covers: [],
      keyId,
    };
  findings.push(...(await checkFile(bundle, 'cast', evidence.cast)));
  if (evidence.notes !== undefined) findings.push(...(await checkFile(bundle, 'notes', evidence.notes)));
  else if (bundle.has('notes'))
    findings.push('the file contains notes, but the signed description lists none');
  if (findings.length > 0) return { verdict: 'failed', findings, covers: [], keyId };
  const missing = missingBeginning(JSON.parse(sidecar));
  if (missing !== undefined) findings.push(missing);
  return { verdict: 'verified', findings, covers: coveredBy(evidence), keyId };
}

/** Describes the data on the page that the signature covers (see `answer-bundle.ts`). */
function coveredBy({ cast, notes }: SignedDocument['evidence']): readonly string[] {
  return [
    'who, where, user, command, times, exit and gaps: from the signed description of the recording',
    `the recording: all ${cast.bytes} bytes have the signed digests`,
    ...(notes === undefined ? [] : [`the notes: all ${notes.bytes} bytes have the signed digests`]),
    'screens, timeline and transcript: computed by this page from the recording',
  ];
}

const RAW_KEY_BYTES = 32;

function none(why: string): BundleCheck {
  return { verdict: 'none', findings: [why], covers: [] };
}

/** Verifies a signature. Returns undefined if this browser does not support the kind of key. */
async function verifies(spki: Bytes, { message, signature }: SidecarSignature): Promise<boolean | undefined> {
  let key: CryptoKey;
  try {
    key = await crypto.subtle.importKey('spki', spki, 'Ed25519', false, ['verify']);
  } catch {
    return undefined;
  }
  return crypto.subtle.verify('Ed25519', key, decodeBase64(signature), new TextEncoder().encode(message));
}

/** Hashes of the blocks of a file (see `tsrecorder/evidence/line-seal`). */
interface FileSeal {
  readonly bytes: number;
  readonly chain: string;
  readonly blocks: readonly (readonly [bytes: number, sha256: string])[];
}

interface SignedDocument {
  readonly recording: { readonly id: string };
  readonly evidence: { readonly cast: FileSeal; readonly notes?: FileSeal };
}

/** @throws Error if a field of a signed sidecar is missing. */
function asDocument(text: string): SignedDocument {
  const parsed: unknown = JSON.parse(text);
  if (isDocument(parsed)) return parsed;
  throw new Error('the sidecar cannot be read');
}

function isDocument(value: unknown): value is SignedDocument {
  if (!isRecord(value) || !isRecord(value['recording']) || !isRecord(value['evidence'])) return false;
  const { cast, notes } = value['evidence'];
  return (
    typeof value['recording']['id'] === 'string' && isSeal(cast) && (notes === undefined || isSeal(notes))
  );
}

function isSeal(value: unknown): value is FileSeal {
  return (
    isRecord(value) &&
    typeof value['bytes'] === 'number' &&
    typeof value['chain'] === 'string' &&
    Array.isArray(value['blocks']) &&
    value['blocks'].every(
      (block: unknown) =>
        Array.isArray(block) && typeof block[0] === 'number' && typeof block[1] === 'string',
    )
  );
}

async function checkFile(
  bundle: BundleReader,
  name: 'cast' | 'notes',
  { bytes, chain, blocks }: FileSeal,
): Promise<readonly string[]> {
  if (!bundle.has(name)) return [`the ${name} ${name === 'cast' ? 'is' : 'are'} missing`];
  const actual = bundle.manifest.files[name]?.bytes ?? 0;
  let linked: Bytes = new Uint8Array(32);
  let at = 0;
  const changed: string[] = [];
  for (const [length, digest] of blocks) {
    const found = hex(await sha256(await bundle.read(name, at, at + length)));
    if (found !== digest) changed.push(`the ${name} was changed in bytes ${at} to ${at + length}`);
    linked = await sha256(joined(linked, fromHex(digest)));
    at += length;
  }
  if (hex(linked) !== chain) changed.push(`the block digests of the ${name} do not match the signed digest`);
  if (at !== bytes || actual !== bytes)
    changed.push(`the ${name} should have ${bytes} bytes, and has ${actual}`);
  return changed;
}

async function sha256(bytes: Bytes): Promise<Bytes> {
  return new Uint8Array(await crypto.subtle.digest('SHA-256', bytes));
}

function joined(left: Bytes, right: Bytes): Bytes {
  const both = new Uint8Array(left.length + right.length);
  both.set(left);
  both.set(right, left.length);
  return both;
}

function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

function fromHex(text: string): Bytes {
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => Number.parseInt(pair, 16));
}
