/** Cursors of lists. Cursors are encrypted (AES-256-GCM), so that clients can neither read nor forge them. */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

/** Codec for cursors. */
export type Cursors = ReturnType<typeof createCursors>;

const ALGORITHM = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/**
 * Creates the codec. @param key 32 bytes. Cursors stay valid after a restart with the same key, and for other processes
 * with this key
 */
export function createCursors(key: Uint8Array) {
  return {
    /** Encrypts a position. @param list name of the list; the cursor is valid for this list only. @returns base64url */
    seal(list: string, position: string): string {
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv(ALGORITHM, key, nonce).setAAD(Buffer.from(list));
      const sealed = Buffer.concat([nonce, cipher.update(position, 'utf8'), cipher.final()]);
      return Buffer.concat([sealed, cipher.getAuthTag()]).toString('base64url');
    },
    /** Decrypts a cursor. @returns undefined if it was not created for this list with this key */
    open(list: string, cursor: string): string | undefined {
      const bytes = Buffer.from(cursor, 'base64url');
      if (bytes.length < NONCE_BYTES + TAG_BYTES) return undefined;
      const decipher = createDecipheriv(ALGORITHM, key, bytes.subarray(0, NONCE_BYTES), {
        authTagLength: TAG_BYTES,
      })
        .setAAD(Buffer.from(list))
        .setAuthTag(bytes.subarray(-TAG_BYTES));
      try {
        const position = decipher.update(bytes.subarray(NONCE_BYTES, -TAG_BYTES));
        return Buffer.concat([position, decipher.final()]).toString();
      } catch {
        return undefined;
      }
    },
  };
}
