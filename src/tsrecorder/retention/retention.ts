/** Which recordings may go, and why. Pure: nothing is removed here. */

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

export interface RetentionPlan {
  /** Oldest first. */
  readonly remove: readonly PlannedRemoval[];
  /** Recordings that would go, were they not held. */
  readonly held: readonly PlannedRemoval[];
  readonly keptBytes: number;
  /** The limit cannot be kept, because what is held is larger. */
  readonly overQuota: boolean;
}

/** @param holds ids of recordings that must stay, whatever the policy says. */
export function planRetention(
  recordings: readonly KeptRecording[],
  holds: ReadonlySet<string>,
  { maxAgeMs = Infinity, maxBytes = Infinity }: RetentionPolicy,
  nowMs: number,
): RetentionPlan {
  const remove: PlannedRemoval[] = [];
  const held: PlannedRemoval[] = [];
  let keptBytes = recordings.reduce((sum, { bytes }) => sum + bytes, 0);
  for (const recording of recordings.toSorted(oldestFirst)) {
    const tooOld = nowMs - recording.startedAtMs > maxAgeMs;
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
