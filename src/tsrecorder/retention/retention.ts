/** Which recordings may go, and why. Pure: nothing is removed here. */
import { createLoopTurns, sortInTurns } from '../../async/loop-turns.ts';

/** What a recorder keeps. Without limits it keeps everything. */
export interface RetentionPolicy {
  /** Recordings that began longer ago go. */
  readonly maxAgeMs?: number;
  /** While all recordings together are larger, the oldest go. */
  readonly maxBytes?: number;
}

/** A recording in the store. */
export interface KeptRecording {
  readonly id: string;
  /** Milliseconds since the epoch. */
  readonly startedAtMs: number;
  /** Cast, notes and sidecar. */
  readonly bytes: number;
}

export interface PlannedRemoval extends KeptRecording {
  readonly reason: 'age' | 'quota';
}

/** What a policy changes. */
export interface RetentionChanges {
  /** Oldest first. */
  readonly remove: readonly PlannedRemoval[];
  /** Recordings that would go, were they not held. */
  readonly held: readonly PlannedRemoval[];
  /** The limit cannot be kept, because what is held is larger. */
  readonly overQuota: boolean;
}

export interface RetentionPlan extends RetentionChanges {
  readonly keptBytes: number;
}

/** Whether it is older than it may be. */
export function isTooOld(
  { startedAtMs }: Pick<KeptRecording, 'startedAtMs'>,
  { maxAgeMs = Infinity }: RetentionPolicy,
  nowMs: number,
): boolean {
  return nowMs - startedAtMs > maxAgeMs;
}

/** @param holds ids of recordings that must stay, whatever the policy says. */
export async function planRetention(
  recordings: readonly KeptRecording[],
  holds: ReadonlySet<string>,
  policy: RetentionPolicy,
  nowMs: number,
): Promise<RetentionPlan> {
  const { maxBytes = Infinity } = policy;
  const turns = createLoopTurns();
  const remove: PlannedRemoval[] = [];
  const held: PlannedRemoval[] = [];
  let keptBytes = 0;
  for (const { bytes } of recordings) {
    if (turns.isDue()) await turns.turn();
    keptBytes += bytes;
  }
  for (const recording of await sortInTurns(recordings, oldestFirst, turns)) {
    if (turns.isDue()) await turns.turn();
    const tooOld = isTooOld(recording, policy, nowMs);
    if (!tooOld && keptBytes <= maxBytes) continue;
    const removal: PlannedRemoval = { ...recording, reason: tooOld ? 'age' : 'quota' };
    if (holds.has(recording.id)) {
      held.push(removal);
      continue;
    }
    remove.push(removal);
    keptBytes -= recording.bytes;
  }
  return { remove, held, keptBytes, overQuota: keptBytes > maxBytes };
}

function oldestFirst(left: KeptRecording, right: KeptRecording): number {
  return left.startedAtMs - right.startedAtMs || (left.id < right.id ? -1 : 1);
}
