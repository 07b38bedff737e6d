/**
 * Short signed documents of recorders in a store: leases, claims, checkpoints, alerts, holds, reviews and saved
 * searches.
 *
 * ```
 * {"recorder":"…",…}
 * {"key":"<key id>","ed25519":"<signature over `tailcast <purpose> 1\n` and the first line with its line feed>"}
 * ```
 */
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { DocumentStore } from '../store/document-store.ts';
import type { PublicKey, SigningKey } from './signing-key.ts';

/** Purpose of a statement. The signature covers it, so that a statement is not valid for another purpose. */
export type StatementPurpose = 'lease' | 'checkpoint' | 'alert' | 'hold' | 'review' | 'search';

/** Maximum length of a statement, in bytes. */
export const MAX_STATEMENT_BYTES = 16 * 1024;

/** A statement with a trusted signature. */
export interface Statement<T> {
  readonly value: T;
  readonly keyId: string;
}

/**
 * Reason why a statement is invalid, as a phrase. `isForged`: the statement contains the id of a trusted key, and that
 * key did not sign it.
 */
export interface NoStatement {
  readonly problem: string;
  readonly isForged: boolean;
}

const signatureSchema = z.strictObject({ key: z.string(), ed25519: z.string() });

/** Returns the signed document with a line feed at its end. */
export function encodeStatement(purpose: StatementPurpose, value: object, key: SigningKey): string {
  const body = `${JSON.stringify(value)}\n`;
  const signature = { key: key.public.id, ed25519: key.sign(messageOf(purpose, body)) };
  return `${body}${JSON.stringify(signature)}\n`;
}

/** Reads and verifies a statement. @param trusted public keys of the trusted recorders, with key ids as map keys */
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

/**
 * Reads a document. @returns the statement; undefined if there is no document; `unproven` if the document is not a
 * valid statement
 */
export async function readStatementIn<T>(
  store: Pick<DocumentStore, 'readDocument'>,
  name: string,
  purpose: StatementPurpose,
  schema: z.ZodType<T>,
  trusted: ReadonlyMap<string, PublicKey>,
): Promise<T | 'unproven' | undefined> {
  const content = await store.readDocument(name, MAX_STATEMENT_BYTES);
  if (content === undefined) return undefined;
  const read = readStatement(purpose, Buffer.from(content).toString(), schema, trusted);
  return 'problem' in read ? 'unproven' : read.value;
}

/** Creates functions that sign and read statements of one purpose. */
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
