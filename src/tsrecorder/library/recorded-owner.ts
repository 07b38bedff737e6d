import type { Recording } from '../../wire/recorder-api/recording.ts';

/** Returns the owner of a recording, for limits per owner: the recorded user, or the node if the node is tagged. */
export function recordedOwner({ source }: Pick<Recording, 'source'>): string {
  return source.user ?? source.node;
}
