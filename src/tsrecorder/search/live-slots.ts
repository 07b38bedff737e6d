/**
 * Chooses the running sessions that the indexer reads while they run. Their number is limited, because each of these
 * sessions has a screen in memory. A session without new output gives way to a session with unread output, so that idle
 * sessions cannot prevent rules from reading the output of other sessions.
 */
import { castBytes } from '../library/replay.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import { recordedOwner } from '../library/recorded-owner.ts';
import { recordingId } from '../store/key.ts';
import type { IndexClient } from './index-client.ts';
import type { Followed } from './live-waits.ts';

/** Maximum number of sessions that are read while they run. */
export const MAX_LIVE = 500;

/**
 * Makes space for a running session. A session that gives way is dropped from the index process.
 *
 * @returns false if the session has no unread output, or if no session gives way
 */
export async function makeSpace(
  index: Pick<IndexClient, 'ask'>,
  followed: Map<string, Followed>,
  resting: RestingSessions,
  session: LiveRecording,
): Promise<boolean> {
  if (resting.has(session)) return false;
  if (followed.size < MAX_LIVE) return true;
  const id = sessionToDrop(followed, recordedOwner(session.recording));
  const dropped = followed.get(id ?? '');
  if (id === undefined || dropped === undefined) return false;
  followed.delete(id);
  resting.add(id, dropped);
  await index.ask('drop', { key: dropped.key });
  return true;
}

/** Marks a session as the most recently read session. */
export function touch(followed: Map<string, Followed>, session: Followed): void {
  followed.delete(session.id);
  followed.set(session.id, session);
}

/**
 * Returns the session that gives way to a new session of `owner`: the least recently read session of the owner with the
 * most sessions. If some sessions have no unread output, one of them is chosen. Otherwise a session is chosen only if
 * its owner has more sessions than `owner` has, including the new session. Returns undefined if no session can give
 * way.
 *
 * @param followed sessions in a map with session ids as keys, the least recently read session first
 */
function sessionToDrop(followed: ReadonlyMap<string, Followed>, owner: string): string | undefined {
  const counts = new Map<string, number>();
  const countOf = ({ entry }: Followed): number => counts.get(recordedOwner(entry.recording)) ?? 0;
  for (const session of followed.values()) {
    const name = recordedOwner(session.entry.recording);
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const idle = [...followed].filter(([, session]) => isRead(session));
  const share = (counts.get(owner) ?? 0) + 1;
  const others = idle.length > 0 ? idle : [...followed].filter(([, session]) => countOf(session) > share);
  let found: (typeof others)[number] | undefined;
  for (const other of others) if (found === undefined || countOf(other[1]) > countOf(found[1])) found = other;
  return found?.[0];
}

function isRead({ isDone, entry, fed }: Followed): boolean {
  return isDone || castBytes(entry) <= fed;
}

/** Running sessions that gave way, and have no unread output. */
export class RestingSessions {
  /** Number of bytes that were read from each session. Map keys: id of the session. */
  readonly #read = new Map<string, number>();

  /** Called with a session that gave way. */
  add(id: string, session: Followed): void {
    if (!isRead(session)) return;
    this.#read.set(id, session.isDone ? Infinity : (session.entry.live?.durable().castBytes ?? 0));
  }

  /** True if a running session has no unread output. */
  has({ key, durable }: Pick<LiveRecording, 'key' | 'durable'>): boolean {
    return durable().castBytes <= (this.#read.get(recordingId(key)) ?? -1);
  }

  /** Forgets the sessions that do not run any more. */
  keep(running: ReadonlyMap<string, unknown>): void {
    for (const id of this.#read.keys()) if (!running.has(id)) this.#read.delete(id);
  }

  clear(): void {
    this.#read.clear();
  }
}
