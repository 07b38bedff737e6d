/** Reads signed facts about stored recordings from their sidecars. Casts are not read. */
import { forEachConcurrent } from '../../async/for-each-concurrent.ts';
import { MAX_SIDECAR_BYTES, readText } from '../library/describe-stored.ts';
import { sessionMark } from '../library/session-part.ts';
import { parseSidecar, type Sidecar } from '../library/sidecar.ts';
import { recordingKey, type RecordingKey } from '../store/key.ts';
import type { ObjectStat, ReadableStore } from '../store/store.ts';
import type { PublicKey } from './signing-key.ts';
import { trustOf } from './trust.ts';

/** Maximum number of sidecars that are read in parallel. */
const READ_CONCURRENCY = 8;

/**
 * Returns the parsed sidecar of a recording, the text of the sidecar, and the size and time of the cast.
 *
 * @returns undefined if no trusted key signed the sidecar
 * @throws TailcastError `STORE_FAILED`, because a failure of the store does not mean that the recording is unsigned
 */
export async function readSignedSidecar(
  store: ReadableStore,
  key: RecordingKey,
  trusted: ReadonlyMap<string, PublicKey>,
): Promise<{ readonly sidecar: Sidecar; readonly text: string; readonly cast: ObjectStat } | undefined> {
  const cast = await store.stat(key, 'cast');
  const hasSidecar = (await store.stat(key, 'sidecar')) !== undefined;
  if (cast === undefined || !hasSidecar) return undefined;
  const text = await readText(store, key, 'sidecar', MAX_SIDECAR_BYTES);
  if (trustOf(text, recordingKey(key), cast.bytes, trusted).trust !== 'verified') return undefined;
  const sidecar = parseSidecar(text);
  return sidecar === undefined ? undefined : { sidecar, text, cast };
}

/**
 * Returns the session mark of each recording, from the signed sidecar; see `session-part.ts`.
 *
 * @returns session marks in the order of the keys; undefined for recordings without a signed position in their session
 * @throws TailcastError `STORE_FAILED`
 */
export async function readSessions(
  store: ReadableStore,
  keys: readonly RecordingKey[],
  trusted: ReadonlyMap<string, PublicKey>,
): Promise<readonly (string | undefined)[]> {
  const marks: (string | undefined)[] = keys.map(() => undefined);
  await forEachConcurrent(keys, READ_CONCURRENCY, async (key, at) => {
    const part = (await readSignedSidecar(store, key, trusted))?.sidecar.part;
    if (part !== undefined) marks[at] = sessionMark(key.nodeId, part.session);
  });
  return marks;
}
