/**
 * Cursors of lists as whoever asks gets them: sealed, so that they say nothing and none can be made up (AES-256-GCM).
 */
import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';

export interface Cursors {
  /** @param list which list it is of: it is good for no other. @returns base64url */
  seal(list: string, position: string): string;
  /** @returns the position, or undefined when the cursor was not sealed for this list with this key. */
  open(list: string, cursor: string): string | undefined;
}

const ALGORITHM = 'aes-256-gcm';
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** @param key 32 bytes. With the same key, cursors of another process and of before a restart are good too. */
export function createCursors(key: Uint8Array): Cursors {
  return {
    seal(list, position) {
      const nonce = randomBytes(NONCE_BYTES);
      const cipher = createCipheriv(ALGORITHM, key, nonce).setAAD(Buffer.from(list));
      const sealed = Buffer.concat([nonce, cipher.update(position, 'utf8'), cipher.final()]);
      return Buffer.concat([sealed, cipher.getAuthTag()]).toString('base64url');
    },
    open(list, cursor) {
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
