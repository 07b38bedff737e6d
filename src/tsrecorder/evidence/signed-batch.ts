/**
 * A batch of events. The last line is the signature of the recorder that wrote the batch. Pure functions.
 *
 * ```
 * {"signature":{"key":"<key id>","ed25519":"<signature over `tailcast events 1\n<name>\n` and all bytes before this line>"}}
 * ```
 */
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { Trust } from '../../wire/recorder-api/recording-status.ts';
import { parseTime } from '../store/key.ts';
import type { PublicKey, SigningKey } from './signing-key.ts';
import { failed, unverified } from './trust.ts';

const EVENTS_FOLDER = 'events/';
/** File name of a batch. The length is limited, because cursors contain the name and have a maximum length. */
export const BATCH_FILE = /^\d{4}-\d{2}-\d{2}T[\d:.]{8,18}Z_[0-9a-z]{1,32}\.ndjson$/;
/** Maximum size of a batch, in bytes. Recorders write at most 17 MiB. */
export const MAX_BATCH_BYTES = 32 * 1024 ** 2;

/** Returns the name prefix of batches of a day (`2026-07-29`), or of all batches. */
export function batchPrefix(day?: string): string {
  return day === undefined ? EVENTS_FOLDER : `${EVENTS_FOLDER}${day}/`;
}

/** Returns the name of a batch in the store. @param file file name of the batch */
export function batchName(file: string): string {
  return `${batchPrefix(file.slice(0, 10))}${file}`;
}

/**
 * Returns the start time of a batch, in nanoseconds since the epoch.
 *
 * @param name complete name in the store
 * @returns undefined if the name is not a batch name, or if the folder belongs to another day
 */
export function batchTime(name: string): bigint | undefined {
  const file = name.slice(name.lastIndexOf('/') + 1);
  if (!BATCH_FILE.test(file) || name !== batchName(file)) return undefined;
  return parseTime(file.slice(0, file.indexOf('_')));
}

const lastLine = z.strictObject({ signature: z.strictObject({ key: z.string(), ed25519: z.string() }) });

/**
 * Signs a batch.
 *
 * @param name name of the document. The signature covers it, so that one batch cannot replace another
 * @param lines complete lines
 */
export function signBatch(name: string, lines: Uint8Array, key: SigningKey): Uint8Array {
  const signature = { key: key.public.id, ed25519: key.sign(messageOf(name, lines)) };
  return Buffer.concat([lines, Buffer.from(`${JSON.stringify({ signature })}\n`)]);
}

/**
 * Reads and checks a stored batch.
 *
 * @param trusted public keys of the trusted recorders, with key ids as map keys
 * @returns the lines of the events, each with its line feed, and the trust level of the batch
 */
export function readBatch(
  name: string,
  content: Uint8Array,
  trusted: ReadonlyMap<string, PublicKey>,
): { readonly text: string; readonly trust: Trust } {
  const end = content.lastIndexOf(0x0a) + 1;
  const start = end < 2 ? 0 : content.lastIndexOf(0x0a, end - 2) + 1;
  const last = Buffer.from(content.subarray(start, end)).toString();
  const { signature } = lastLine.safeParse(jsonOrUndefined(last)).data ?? {};
  const signed = content.subarray(0, signature === undefined ? end : start);
  const text = Buffer.from(signed).toString();
  if (signature === undefined) return { text, trust: unverified('its batch has no signature') };
  return { text, trust: trustOfSignature(messageOf(name, signed), signature, trusted) };
}

function trustOfSignature(
  message: Uint8Array,
  { key: id, ed25519 }: { readonly key: string; readonly ed25519: string },
  trusted: ReadonlyMap<string, PublicKey>,
): Trust {
  const key = trusted.get(id);
  if (key === undefined)
    return unverified(
      `its batch is signed by the key ${id.slice(0, 32)}, which this recorder does not trust`,
    );
  return key.verifies(message, ed25519)
    ? { trust: 'verified' }
    : failed('its batch was changed after it was signed');
}

function messageOf(name: string, lines: Uint8Array): Uint8Array {
  return Buffer.concat([Buffer.from(`tailcast events 1\n${name}\n`), lines]);
}
