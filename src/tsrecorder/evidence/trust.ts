/** Whether a stored recording is signed by a recorder that counts, from its sidecar alone: cheap enough for a list. Pure. */
import type { Trust } from '../../wire/recorder-api/recording-status.ts';
import { parseSidecar } from '../library/sidecar.ts';
import { mentionsEvidence, parseSignedSidecar } from './signed-sidecar.ts';
import type { PublicKey } from './signing-key.ts';

/**
 * @param text the sidecar, if there is one
 * @param key name of the cast in the store, and `bytes` its length
 * @param trusted the keys of the recorders that count, by id
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
    return unverified(`it is signed by the key ${signed.keyId}, which is none of the trusted keys`);
  if (!signer.verifies(signed.message, signed.signature))
    return failed('its description is not what was signed');
  if (parseSidecar(text)?.recording.key !== key)
    return failed('its description is that of another recording');
  if (signed.evidence.cast.bytes !== bytes)
    return failed('the cast is not as long as it was when it was signed');
  return { trust: 'verified' };
}

export function unverified(trustReason: string): Trust {
  return { trust: 'unverified', trustReason };
}

export function failed(trustReason: string): Trust {
  return { trust: 'failed', trustReason };
}
