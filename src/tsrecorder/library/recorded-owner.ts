import type { Recording } from '../../wire/recorder-api/recording.ts';

/**
 * Returns the owner of a recording, for limits per owner: the recorded user, or the tailnet node if that node is
 * tagged.
 */
export function recordedOwner({ source }: Pick<Recording, 'source'>): string {
  return source.user ?? source.node;
}
