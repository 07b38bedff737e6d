/** Signature check of a recording, in the response of `/api/v1/recordings/:id/evidence` and in bundles. */

/** Result of the signature check of a recording. */
export interface CheckedEvidence {
  /**
   * - `verified`: a trusted key signed the recording.
   * - `unverified`: an untrusted key signed the recording, so an attacker may have written it.
   * - `failed`: the recording differs from the content that its recorder signed.
   * - `none`: the recording has no signature.
   * - `running`: the session is still open.
   */
  readonly verdict: 'verified' | 'unverified' | 'failed' | 'none' | 'running';
  /** Time of the check (RFC 3339, UTC). */
  readonly checkedAt: string;
  readonly findings: readonly {
    readonly severity: string;
    readonly code: string;
    readonly message: string;
  }[];
  readonly signedBy?: {
    readonly key: string;
    /**
     * Owner of the key. `trusted`: another trusted recorder. `published`: the store contains the key, and nothing
     * proves its owner.
     */
    readonly owner: 'this recorder' | 'trusted' | 'published' | 'unknown';
    readonly log: string;
    readonly entry: number;
    /**
     * Set if another recorder took the session over from the first recorder. Names the evidence log of the first
     * recorder, the session's start entry in that log, and the key that signed the copies in the bucket.
     */
    readonly adopted?: { readonly log: string; readonly entry: number; readonly key: string };
    /** The public key, if known: SubjectPublicKeyInfo, PEM. */
    readonly pem?: string;
  };
}
