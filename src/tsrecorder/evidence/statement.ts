/**
 * Short signed documents of recorders in a store: who lives, who claims, how far a session was copied, who sends an alert, what is
 * held. Pure.
 *
 * ```
 * {"recorder":"…",…}
 * {"key":"<key id>","ed25519":"<signature over `tailcast <purpose> 1\n` and the first line with its line feed>"}
 * ```
 */
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { PublicKey, SigningKey } from './signing-key.ts';

/** The purpose is part of the signed bytes, so that no statement can stand for one of another purpose. */
export type StatementPurpose = 'lease' | 'checkpoint' | 'alert' | 'hold';

/** Maximum length of a statement, in bytes. */
export const MAX_STATEMENT_BYTES = 16 * 1024;

/** A statement that is signed by a trusted key. */
export interface Statement<T> {
  readonly value: T;
  readonly keyId: string;
}

/** The reason why a statement proves nothing, one phrase. `isForged`: a trusted key is named and did not sign it. */
export interface NoStatement {
  readonly problem: string;
  readonly isForged: boolean;
}

const signatureSchema = z.strictObject({ key: z.string(), ed25519: z.string() });

/** Returns the document, ending in a line feed. */
export function encodeStatement(purpose: StatementPurpose, value: object, key: SigningKey): string {
  const body = `${JSON.stringify(value)}\n`;
  const signature = { key: key.public.id, ed25519: key.sign(messageOf(purpose, body)) };
  return `${body}${JSON.stringify(signature)}\n`;
}

/** Reads a statement. @param trusted the keys that count, by id */
export function readStatement<T extends z.ZodType>(
  purpose: StatementPurpose,
  text: string,
  schema: T,
  trusted: ReadonlyMap<string, PublicKey>,
): Statement<z.output<T>> | NoStatement {
  const [body = '', last = '', ...rest] = text.split('\n');
  const signature = signatureSchema.safeParse(jsonOrUndefined(last)).data;
  const value = schema.safeParse(jsonOrUndefined(body));
  if (signature === undefined || !value.success || rest.join('\n') !== '')
    return { problem: 'it cannot be read', isForged: false };
  const key = trusted.get(signature.key);
  if (key === undefined)
    return {
      problem: `it is signed by the key ${signature.key.slice(0, 32)}, which this recorder does not trust`,
      isForged: false,
    };
  if (!key.verifies(messageOf(purpose, `${body}\n`), signature.ed25519))
    return { problem: 'its signature is wrong', isForged: true };
  return { value: value.data, keyId: signature.key };
}

/** Signs and reads statements of one purpose, whatever they say. */
export function createStatements(
  purpose: StatementPurpose,
  key: SigningKey,
  trusted: ReadonlyMap<string, PublicKey>,
): {
  sign(value: object): string;
  read(text: string): Statement<unknown> | NoStatement;
} {
  return {
    sign: (value) => encodeStatement(purpose, value, key),
    read: (text) => readStatement(purpose, text, z.unknown(), trusted),
  };
}

function messageOf(purpose: StatementPurpose, body: string): string {
  return `tailcast ${purpose} 1\n${body}`;
}
