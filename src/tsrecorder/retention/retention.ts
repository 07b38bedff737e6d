/** Decides which recordings are removed, and why. Pure functions. */
import { createLoopTurns, sortInTurns } from '../../async/loop-turns.ts';
import { firstOf } from '../library/uploads.ts';

/** Limits of a store. Without limits, no recordings are removed. */
export interface RetentionPolicy {
  /** Maximum time since the start of a recording, in milliseconds. */
  readonly maxAgeMs?: number;
  /**
   * Maximum size of all recordings, in bytes. Above this size, recordings without a trusted signature are removed
   * first, then the oldest recordings of the user with the most bytes.
   */
  readonly maxBytes?: number;
  /**
   * Minimum time that a recording stays in the store, in milliseconds. Younger recordings are never removed because of
   * `maxBytes`. Default: 0.
   */
  readonly minAgeMs?: number;
}

/** A recording in the store. */
export interface KeptRecording {
  readonly id: string;
  /** Start of the recording, in milliseconds since the epoch. */
  readonly startedAtMs: number;
  /** Modification time of the cast, in milliseconds since the epoch. */
  readonly storedAtMs: number;
  /** Total size of the files of the recording (cast, notes and sidecar), in bytes. */
  readonly bytes: number;
}

/** User of a recording with a trusted signature. */
export interface SignedUser {
  /** Name of the user. Uploaders choose the name, so the same name from two uploaders counts as two users. */
  readonly user: string;
  /**
   * Signed size. Only signed bytes count, because an attacker without a key can add bytes, for example to the notes.
   */
  readonly bytes: number;
  /**
   * Signed time when the upload ended, in milliseconds since the epoch. An attacker without a key can change the
   * modification time of the files, but not this time.
   */
  readonly endedAtMs: number;
}

/**
 * Returns the user of each recording, in the order of the recordings; undefined for a recording without a trusted
 * signature.
 */
export type FindUsers = (
  recordings: readonly KeptRecording[],
) => Promise<readonly (SignedUser | undefined)[]>;

export interface PlannedRemoval extends KeptRecording {
  /**
   * Reason of the removal. `age`: the recording is too old. `quota`: the store exceeds its maximum size. `unverified`:
   * one of these reasons, and the recording has no trusted signature.
   */
  readonly reason: 'age' | 'quota' | 'unverified';
}

/** Changes that one run of retention makes. */
export interface RetentionChanges {
  /** Recordings to remove, in this order: too old, without a trusted signature, and others. */
  readonly remove: readonly PlannedRemoval[];
  /** Recordings that would be removed without their hold. */
  readonly held: readonly PlannedRemoval[];
  /** True if the total size of verified recordings that are held or younger than `minAgeMs` exceeds `maxBytes`. */
  readonly overQuota: boolean;
}

export interface RetentionPlan extends RetentionChanges {
  readonly keptBytes: number;
}

/** True if the recording exceeds the maximum age. */
export function isTooOld(
  { startedAtMs }: Pick<KeptRecording, 'startedAtMs'>,
  { maxAgeMs = Infinity }: RetentionPolicy,
  nowMs: number,
): boolean {
  return nowMs - startedAtMs > maxAgeMs;
}

/**
 * Plans removals.
 *
 * @param holds ids of recordings that must not be removed
 * @param findUsers called only if the recordings exceed `maxBytes`
 */
export async function planRetention(
  recordings: readonly KeptRecording[],
  holds: Pick<ReadonlySet<string>, 'has'>,
  policy: RetentionPolicy,
  nowMs: number,
  findUsers: FindUsers,
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
  const plan = (recording: KeptRecording, reason: PlannedRemoval['reason']): boolean => {
    const isHeld = holds.has(recording.id);
    (isHeld ? held : remove).push({ ...recording, reason });
    if (!isHeld) keptBytes -= recording.bytes;
    return !isHeld;
  };
  const kept: KeptRecording[] = [];
  for (const recording of await sortInTurns(recordings, oldestFirst, turns)) {
    if (turns.isDue()) await turns.turn();
    if (!isTooOld(recording, policy, nowMs)) kept.push(recording);
    else plan(recording, 'age');
  }
  let unprovenBytes = 0;
  let unsignedBytes = 0;
  // Do not count unproven bytes: an attacker without a key could write them to force the removal of signed recordings.
  const isOver = (): boolean => keptBytes - unprovenBytes > maxBytes;
  if (keptBytes > maxBytes) {
    const users = await findUsers(kept);
    for (const [at, { bytes }] of kept.entries()) unsignedBytes += bytes - (users[at]?.bytes ?? bytes);
    const isRemovable = ({ storedAtMs }: KeptRecording): boolean =>
      keptBytes - unsignedBytes > maxBytes && !isYoung(storedAtMs, policy, nowMs);
    for (const recording of kept.filter((_, at) => users[at] === undefined)) {
      if (turns.isDue()) await turns.turn();
      if (!isRemovable(recording) || !plan(recording, 'unverified')) unprovenBytes += recording.bytes;
    }
    unprovenBytes += unsignedBytes;
    const shares = createShares(kept, users, ({ endedAtMs }) => isYoung(endedAtMs, policy, nowMs));
    const removeSigned = ({ recording, bytes }: SignedRecording): boolean => {
      const isRemoved = plan(recording, 'quota');
      if (isRemoved) unprovenBytes -= recording.bytes - bytes;
      return isRemoved;
    };
    await removeWhile(isOver, shares, removeSigned, turns);
  }
  return { remove, held, keptBytes, overQuota: isOver() };
}

/** Removes recordings of the user with the most bytes until the limit is met or no more recordings may be removed. */
async function removeWhile(
  isOver: () => boolean,
  shares: ReturnType<typeof createShares>,
  remove: (recording: SignedRecording) => boolean,
  turns: ReturnType<typeof createLoopTurns>,
): Promise<void> {
  while (isOver()) {
    if (turns.isDue()) await turns.turn();
    const next = shares.next();
    if (next === undefined) break;
    if (remove(next)) next.remove();
  }
}

function isYoung(sinceMs: number, { minAgeMs = 0 }: RetentionPolicy, nowMs: number): boolean {
  return minAgeMs > 0 && nowMs - sinceMs < minAgeMs;
}

/** A recording and its signed size. */
interface SignedRecording {
  readonly recording: KeptRecording;
  readonly bytes: number;
}

interface Share {
  readonly user: string;
  bytes: number;
  /** Recordings that may be removed, oldest first. */
  readonly queue: SignedRecording[];
  /** Index of the next recording in the queue. */
  at: number;
}

interface NextRemoval extends SignedRecording {
  /** Subtracts the size of the recording from the total of its user. */
  remove(): void;
}

/**
 * Creates a sequence of recordings to remove. Each call of `next` returns the oldest recording of the user with the
 * most bytes.
 */
function createShares(
  recordings: readonly KeptRecording[],
  users: readonly (SignedUser | undefined)[],
  isRequired: (signed: SignedUser) => boolean,
): { next(): NextRemoval | undefined } {
  const byUser = new Map<string, Share>();
  for (const [at, recording] of recordings.entries()) {
    const signed = users[at];
    if (signed === undefined) continue;
    const { user, bytes } = signed;
    const share = byUser.get(user) ?? { user, bytes: 0, queue: [], at: 0 };
    byUser.set(user, share);
    share.bytes += bytes;
    if (!isRequired(signed)) share.queue.push({ recording, bytes });
  }
  /** Users and their recordings. The user with the fewest bytes comes first. */
  const sorted = [...byUser.values()].sort(smallestFirst);
  return {
    next() {
      for (let share = sorted.at(-1); share !== undefined; share = sorted.at(-1)) {
        const next = share.queue[share.at];
        if (next === undefined) {
          sorted.pop();
          continue;
        }
        share.at += 1;
        const largest = share;
        return {
          ...next,
          remove() {
            sorted.pop();
            largest.bytes -= next.bytes;
            const at = firstOf(sorted, (other) => smallestFirst(other, largest) >= 0);
            sorted.splice(at, 0, largest);
          },
        };
      }
      return undefined;
    },
  };
}

function smallestFirst(left: Share, right: Share): number {
  return left.bytes - right.bytes || (left.user < right.user ? -1 : 1);
}

function oldestFirst(left: KeptRecording, right: KeptRecording): number {
  return left.startedAtMs - right.startedAtMs || (left.id < right.id ? -1 : 1);
}
