import type { Recording } from '../../wire/recorder-api/recording.ts';

/** Returns the owner for the fair sharing of a recorder: the recorded user, or the node if a tag owns it. */
export function recordedOwner({ source }: Pick<Recording, 'source'>): string {
  return source.user ?? source.node;
}
