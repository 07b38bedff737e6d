/** Programs from Debian packages, for peers. */
import { type DebianProgram, ensureDebianProgram } from '../../test/real/rig/debian.ts';
import { PeerMissingError } from './missing.ts';

/** @throws PeerMissingError with the package to install */
export function debianProgram(name: DebianProgram): string {
  try {
    return ensureDebianProgram(name);
  } catch (error) {
    throw new PeerMissingError(error instanceof Error ? (error.message.split('\n')[0] ?? '') : String(error));
  }
}
