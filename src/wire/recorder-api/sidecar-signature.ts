/** Signature of a sidecar. It is the last line of the sidecar and covers all lines before it. Pure. */

/** Prefix of the signed message. It prevents the use of the signature for any other document. */
const PURPOSE = 'tailcast sidecar 1\n';
const SIGNED =
  /^(\{\n[^]*,\n) {2}"signature": \{"key":"([0-9a-f]{32})","ed25519":"([A-Za-z0-9+/=]{88})"\}\n\}\n$/;

export interface SidecarSignature {
  /** The signed message. */
  readonly message: string;
  readonly keyId: string;
  /** Ed25519 signature in base64. */
  readonly signature: string;
}

/** @param body the document up to the signature. @returns the signed message. */
export function signedMessage(body: string): string {
  return PURPOSE + body;
}

/** @returns undefined for a document without a signature line. */
export function splitSignature(document: string): SidecarSignature | undefined {
  const [, body, keyId, signature] = SIGNED.exec(document) ?? [];
  if (body === undefined || keyId === undefined || signature === undefined) return undefined;
  return { message: signedMessage(body), keyId, signature };
}
