/** Brings sessions into the store that a recorder left in the shared bucket: see `lease.ts` for who may. */
import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import type { Bucket } from '../store/bucket.ts';
import { recordingId, type RecordingKey } from '../store/key.ts';
import type { RecordingStore } from '../store/store.ts';
import type { Lease } from './lease.ts';
import { rebuildSpool } from './rebuild.ts';
import {
  listOpenSessions,
  removeFolder,
  segmentsBytes,
  sessionFolder,
  type OpenSession,
} from './segments.ts';

export interface TakeoverOptions {
  readonly bucket: Bucket;
  readonly store: RecordingStore;
  readonly lease: Lease;
  readonly spoolDirectory: string;
  readonly live: () => readonly LiveRecording[];
  /** Takes over a spool that was rebuilt. Resolves when the store has it. */
  readonly adopt: (key: RecordingKey) => Promise<void>;
  readonly leaseMs: number;
  readonly monotonicMs: () => number;
  readonly log: Logger;
  readonly onAdopted: () => void;
}

/**
 * @returns a function that renews the lease of this recorder, looks once at what was left by this recorder or by lost
 *   ones, and takes over what may be taken over by now.
 */
export function createTakeover(options: TakeoverOptions): () => Promise<void> {
  const { bucket, lease, log } = options;
  /** Sessions that are being brought into the store, by their folders. */
  const adopting = new Set<string>();
  /** What this recorder has claimed, and when. */
  const claims = new Map<string, number>();

  /** A session that nobody has open any more. */
  async function settle(session: OpenSession, open: ReadonlySet<string>): Promise<void> {
    const folder = sessionFolder(session.recorder, session.key);
    const id = recordingId(session.key);
    if (adopting.has(folder) || open.has(id)) return;
    const stored = await options.store.stat(session.key, 'cast');
    const bytes = segmentsBytes(session.cast);
    if (stored !== undefined && stored.bytes >= bytes) {
      await removeFolder(bucket, folder);
      return;
    }
    log.warn(
      { recording: id, recorder: session.recorder, bytes },
      'session of a lost recorder is taken over',
    );
    adopting.add(folder);
    try {
      await rebuildSpool(bucket, session, options.spoolDirectory);
    } catch (error) {
      adopting.delete(folder);
      throw error;
    }
    options.onAdopted();
    void options
      .adopt(session.key)
      .then(() => removeFolder(bucket, folder))
      .catch((error: unknown) => log.warn({ recording: id, error: errorText(error) }, 'segments stay behind'))
      .finally(() => adopting.delete(folder));
  }

  /** Claims what `name` left, and confirms the claim from then on. */
  async function holdsClaim(name: string): Promise<boolean> {
    const since = claims.get(name);
    if (since !== undefined && !(await lease.holds(name))) {
      claims.delete(name);
      return false;
    }
    await lease.claim(name);
    if (since === undefined) claims.set(name, options.monotonicMs());
    return since !== undefined && options.monotonicMs() - since >= options.leaseMs / 2;
  }

  return async () => {
    if (!(await lease.renew())) {
      log.warn('another recorder took over what this one had in the bucket; it is copied anew');
    }
    const sessions = await listOpenSessions(bucket);
    const open = new Set(options.live().map(({ key }) => recordingId(key)));
    for (const session of sessions) if (session.recorder === lease.name) await settle(session, open);
    const owners = new Set(sessions.map(({ recorder }) => recorder));
    for (const name of new Set([...(await lease.lost(owners)), ...claims.keys()])) {
      if (!(await holdsClaim(name))) continue;
      const left = sessions.filter(({ recorder }) => recorder === name);
      for (const session of left) await settle(session, open);
      if (left.length > 0) continue;
      await lease.forget(name);
      claims.delete(name);
    }
  };
}
