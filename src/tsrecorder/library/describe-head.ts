/** Describes a recording from its key and its header line. */
import { parseTime, recordingId, recordingKey, type RecordingKey } from '../store/key.ts';
import { replaceSecrets } from '../../secrets.ts';
import type { CastHead } from './cast-head.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';

/**
 * Commands after the removal of secrets. Map keys: header of the cast. The commands are cached because the search for
 * secrets is slow for a long command, and each request for a list describes running sessions again.
 */
const shownCommands = new WeakMap<CastHead, string>();

/** Returns the fields of a recording that come from its key and its header. */
export function describeHead(
  key: RecordingKey,
  head: CastHead,
): Omit<Recording, 'state' | 'result' | 'trust' | 'bytes' | 'durationSeconds'> {
  const { command, resizeOrder: _resizeOrder, ...about } = head;
  return {
    id: recordingId(key),
    key: recordingKey(key),
    startedAt: isoMilliseconds(key.time),
    ...about,
    ...(command === undefined ? {} : { command: shownCommand(head, command) }),
  };
}

/** Joins the problems of a recording. */
export function joinProblems(...problems: readonly (string | undefined)[]): Pick<Recording, 'problem'> {
  const found = problems.filter((problem) => problem !== undefined);
  return found.length === 0 ? {} : { problem: found.join('; ') };
}

/** Returns the time of a key in RFC 3339 with three fraction digits. */
export function isoMilliseconds(time: string): string {
  return new Date(Number((parseTime(time) ?? 0n) / 1_000_000n)).toISOString();
}

function shownCommand(head: CastHead, command: string): string {
  const shown = shownCommands.get(head) ?? replaceSecrets(command);
  shownCommands.set(head, shown);
  return shown;
}
