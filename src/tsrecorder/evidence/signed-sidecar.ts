/**
 * A sidecar with evidence: the field `evidence`, and in the last line a signature over all earlier lines. Pure
 * functions.
 */
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import { signedMessage, splitSignature } from '../../wire/recorder-api/sidecar-signature.ts';
import { MAX_BLOCKS, type LineSeal } from './line-seal.ts';
import type { SigningKey } from './signing-key.ts';

/** Evidence and signature of a parsed sidecar. No field has been verified. */
export interface SignedSidecar {
  readonly evidence: SidecarEvidence;
  readonly keyId: string;
  /** Signed bytes, and the signature in base64. */
  readonly message: Uint8Array;
  readonly signature: string;
}

const END = '\n}\n';

const count = z.int().min(0);
const hash = z.string().regex(/^[0-9a-f]{64}$/);
const seal = z.strictObject({
  bytes: count,
  blockBytes: z.int().min(1),
  chain: hash,
  // A check hashes each block of the list. To limit this work, a list with an empty block is invalid, and so is a list
  // with more blocks than a recorder writes.
  blocks: z
    .array(z.tuple([z.int().min(1), hash]).readonly())
    .max(MAX_BLOCKS)
    .readonly(),
});
const evidenceSchema = z.strictObject({
  /** Version of this format. */
  format: z.literal(1),
  /** Id of the evidence log that contains the start entry of the session, and number of that entry. */
  log: z.string(),
  start: count,
  /**
   * Set if another recorder started the session: its evidence log, the start entry there, and the key that signed its
   * copies in the bucket.
   */
  adopted: z.strictObject({ log: z.string(), start: count, key: z.string() }).exactOptional(),
  cast: seal,
  /** Seal of the notes; missing if there are no notes. */
  notes: seal.exactOptional(),
});
/** The field `evidence` of a sidecar. */
export type SidecarEvidence = z.infer<typeof evidenceSchema>;

const idSchema = z.object({ recording: z.object({ id: z.string() }) });
const documentSchema = z.object({ evidence: evidenceSchema });

/** Adds evidence and a signature. @param document result of `encodeSidecar` */
export function signSidecar(document: string, evidence: SidecarEvidence, key: SigningKey): string {
  if (!document.endsWith(END)) throw new TypeError('this is not a sidecar');
  const body = `${document.slice(0, -END.length)},\n  "evidence": ${JSON.stringify(evidence)},\n`;
  const signature = { key: key.public.id, ed25519: key.sign(signedMessage(body)) };
  return `${body}  "signature": ${JSON.stringify(signature)}\n}\n`;
}

/**
 * Parses a sidecar. The caller must verify the signature.
 * @returns undefined if the document has no usable evidence
 */
export function parseSignedSidecar(document: string): SignedSidecar | undefined {
  const signed = splitSignature(document);
  if (signed === undefined) return undefined;
  const { message, keyId, signature } = signed;
  const evidence = documentSchema.safeParse(jsonOrUndefined(document)).data?.evidence;
  return evidence === undefined ? undefined : { evidence, keyId, message: Buffer.from(message), signature };
}

/** True if this key signed the sidecar for this recording and these files. */
export function isSidecarOf(
  document: string,
  recording: string,
  { cast, notes }: { readonly cast: LineSeal; readonly notes: LineSeal | undefined },
  key: SigningKey,
): boolean {
  const signed = parseSignedSidecar(document);
  if (signed?.keyId !== key.public.id || !key.public.verifies(signed.message, signed.signature)) return false;
  const { evidence } = signed;
  const id = idSchema.safeParse(jsonOrUndefined(document)).data?.recording.id;
  return id === recording && evidence.cast.chain === cast.chain && evidence.notes?.chain === notes?.chain;
}

/** True if the document has evidence, even if the evidence is unreadable. */
export function mentionsEvidence(document: string): boolean {
  return /^ {2}"(?:evidence|signature)": /m.test(document);
}
