/**
 * The sidecar document with evidence: a member `evidence`, and as the last line of the document the signature over
 * everything before that line. Pure.
 */
import { z } from 'zod';
import { signedMessage, splitSignature } from '../../wire/recorder-api/sidecar-signature.ts';
import type { LineSeal } from './line-seal.ts';
import type { SigningKey } from './signing-key.ts';

/** The member `evidence`. */
export interface SidecarEvidence {
  /** Version of this format. */
  readonly format: 1;
  /** The log that has the session's start, and the number of that entry. */
  readonly log: string;
  readonly start: number;
  /** Set if another recorder began the session: its log, the number of the start there, and the key that signed the copies. */
  readonly adopted?: { readonly log: string; readonly start: number; readonly key: string };
  readonly cast: LineSeal;
  /** Absent when there are no notes. */
  readonly notes?: LineSeal;
}

export interface SignedSidecar {
  readonly evidence: SidecarEvidence;
  readonly keyId: string;
  /** What was signed, and the signature in base64. */
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
  blocks: z.array(z.tuple([count, hash])),
});
const evidenceSchema = z.strictObject({
  format: z.literal(1),
  log: z.string(),
  start: count,
  adopted: z.strictObject({ log: z.string(), start: count, key: z.string() }).exactOptional(),
  cast: seal,
  notes: seal.exactOptional(),
}) satisfies z.ZodType<SidecarEvidence>;

/** @param document as `encodeSidecar` makes it. */
export function signSidecar(document: string, evidence: SidecarEvidence, key: SigningKey): string {
  if (!document.endsWith(END)) throw new TypeError('this is not a sidecar');
  const body = `${document.slice(0, -END.length)},\n  "evidence": ${JSON.stringify(evidence)},\n`;
  const signature = { key: key.public.id, ed25519: key.sign(signedMessage(body)) };
  return `${body}  "signature": ${JSON.stringify(signature)}\n}\n`;
}

/**
 * Takes a sidecar apart; whether the signature is good is for the caller to say.
 *
 * @returns undefined when the document has no evidence that could be checked.
 */
export function parseSignedSidecar(document: string): SignedSidecar | undefined {
  const signed = splitSignature(document);
  if (signed === undefined) return undefined;
  const { message, keyId, signature } = signed;
  try {
    const parsed: unknown = JSON.parse(document);
    const member =
      typeof parsed === 'object' && parsed !== null && 'evidence' in parsed ? parsed.evidence : undefined;
    const evidence = evidenceSchema.safeParse(member);
    if (!evidence.success) return undefined;
    return { evidence: evidence.data, keyId, message: Buffer.from(message), signature };
  } catch {
    return undefined;
  }
}

/** Whether the document claims to have evidence, readable or not. */
export function mentionsEvidence(document: string): boolean {
  return /^ {2}"(?:evidence|signature)": /m.test(document);
}
