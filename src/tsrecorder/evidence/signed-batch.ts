/**
 * A batch of events. The last line is the signature of its recorder. Pure functions.
 *
 * ```
 * {"signature":{"key":"<key id>","ed25519":"<signature over `tailcast events 1\n<name>\n` and all bytes before this line>"}}
 * ```
 */
import { z } from 'zod';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import type { Trust } from '../../wire/recorder-api/recording-status.ts';
import type { PublicKey, SigningKey } from './signing-key.ts';
import { failed, unverified } from './trust.ts';

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

/** Reads and checks a stored batch. @param trusted keys of the trusted recorders, by id */
export function readBatch(
  name: string,
  content: Uint8Array,
  trusted: ReadonlyMap<string, PublicKey>,
): { readonly lines: readonly string[]; readonly trust: Trust } {
  const text = Buffer.from(content).toString();
  const lines = text.split('\n').slice(0, -1);
  const { signature } = lastLine.safeParse(jsonOrUndefined(lines.at(-1) ?? '')).data ?? {};
  if (signature === undefined) return { lines, trust: unverified('its batch has no signature') };
  const events = lines.slice(0, -1);
  const signed = content.subarray(0, content.lastIndexOf(0x0a, content.length - 2) + 1);
  return { lines: events, trust: trustOfSignature(messageOf(name, signed), signature, trusted) };
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
  return key.verifies(message, ed25519) ? { trust: 'verified' } : failed('its batch is not what was signed');
}

function messageOf(name: string, lines: Uint8Array): Uint8Array {
  return Buffer.concat([Buffer.from(`tailcast events 1\n${name}\n`), lines]);
}
