/**
 * Checks whether a trusted recorder signed a recording, using only its sidecar. The check is fast enough to run for
 * each recording of a listing. Pure functions.
 */
import type { Trust } from '../../wire/recorder-api/recording-status.ts';
import { parseSidecar } from '../library/sidecar.ts';
import { mentionsEvidence, parseSignedSidecar } from './signed-sidecar.ts';
import type { PublicKey } from './signing-key.ts';

/**
 * Returns the trust level of a recording.
 *
 * @param text sidecar of the recording; undefined if the recording has no sidecar
 * @param key name of the cast in the store
 * @param bytes length of the cast
 * @param trusted public keys of the trusted recorders, with key ids as map keys
 */
export function trustOf(
  text: string | undefined,
  key: string,
  bytes: number,
  trusted: ReadonlyMap<string, PublicKey>,
): Trust {
  if (text === undefined || !mentionsEvidence(text)) return unverified('it has no signature');
  const signed = parseSignedSidecar(text);
  if (signed === undefined) return unverified('its signature cannot be read');
  const signer = trusted.get(signed.keyId);
  if (signer === undefined)
    return unverified(`it is signed by the key ${signed.keyId}, which is not trusted`);
  if (!signer.verifies(signed.message, signed.signature))
    return failed('its description was changed after it was signed');
  if (parseSidecar(text)?.recording.key !== key)
    return failed('its description is that of another recording');
  if (signed.evidence.cast.bytes !== bytes)
    return failed('the length of the cast differs from the signed length');
  return { trust: 'verified' };
}

/** Returns the trust level of a recording that no trusted key signed. */
export function unverified(trustReason: string): Trust {
  return { trust: 'unverified', trustReason };
}

/** Returns the trust level of a recording that does not match the signature of a trusted key. */
export function failed(trustReason: string): Trust {
  return { trust: 'failed', trustReason };
}
