/**
 * Verifies the copies of an open session. A trusted key must have signed the statement, and the published evidence log
 * of the signing recorder must contain the start of the session. An attacker may have written any object in the bucket,
 * so only signed bytes are valid.
 */
import type { LogEntry } from '../evidence/log-entry.ts';
import type { Adoption, SessionEvidence } from '../evidence/session-evidence.ts';
import type { PublicKey } from '../evidence/signing-key.ts';
import { readLogFrom, type DocumentReader } from '../evidence/verify-logs.ts';
import type { Bucket } from '../store/bucket.ts';
import { recordingId } from '../store/key.ts';
import { readCheckpoint, type Checkpoint } from './checkpoint.ts';
import type { Lease } from './lease.ts';
import type { OpenSession } from './segments.ts';

/** A session with signed copies, whose start entry is in the evidence log of the recorder that signed the copies. */
export interface ProvenSession {
  readonly checkpoint: Checkpoint;
  readonly adoption: Adoption;
}

/** Reason why a session is unproven. `failed`: the bytes differ from the bytes that a trusted recorder signed. */
export interface Distrust {
  readonly trust: 'unverified' | 'failed';
  readonly reason: string;
}

/** Reason text for copies that differ from the signed statement. */
export const COPIES_CHANGED = 'its copies in the bucket are not what its recorder signed';

export interface ProveOptions {
  readonly bucket: Bucket;
  readonly store: DocumentReader;
  readonly trusted: ReadonlyMap<string, PublicKey>;
  /** `witnessed` returns the newest known entry of an evidence log. */
  readonly evidence: Pick<SessionEvidence, 'witnessed'>;
  /** `headOf` returns the newest entry of an evidence log that a lease contained. */
  readonly lease: Pick<Lease, 'headOf'>;
}

/** A session that its recorder stored before the recorder was lost. */
export interface EndedSession {
  /** Id of the recording in the store. */
  readonly storedAs: string;
}

/**
 * Verifies a session without reading its bytes. `rebuild.ts` verifies the bytes. @throws TailcastError `STORE_FAILED`
 */
export async function proveSession(
  session: OpenSession,
  { bucket, store, trusted, evidence, lease }: ProveOptions,
): Promise<ProvenSession | EndedSession | Distrust> {
  const read = await readCheckpoint(bucket, session, trusted);
  if ('problem' in read) return distrust(read.problem, read.isForged);
  const { value: checkpoint, keyId } = read;
  const { log, start } = checkpoint;
  const { log: published, findings } = await readLogFrom(store, log, start, { trusted: true, byId: trusted });
  const [finding] = findings;
  if (finding !== undefined)
    return distrust(`the evidence log of its recorder is damaged: ${finding.message}`, true);
  const seen = [evidence.witnessed(log), lease.headOf(log)];
  const missing = seen.find(
    (head) => head !== undefined && head.n >= start && published.hashes.get(head.n) !== head.hash,
  );
  if (missing !== undefined)
    return distrust(
      `the evidence log of its recorder is an older copy: this recorder saw entry ${missing.n}, which is missing now`,
      true,
    );
  const began = published.entries.get(start)?.event;
  if (began === undefined) return distrust('the evidence log of its recorder does not have its start', false);
  const isSame =
    began.kind === 'start' &&
    began.recording === recordingId(session.key) &&
    began.nodeId === session.key.nodeId &&
    began.header === checkpoint.header;
  if (!isSame) return distrust('the evidence log of its recorder has the start of another session', true);
  const course = followCourse(published.entries.values(), start, began.durable ?? 0);
  if (typeof course === 'string') return { storedAs: course };
  return {
    checkpoint,
    adoption: { log, start, key: keyId, durable: course },
  };
}

/**
 * Reads the entries about a session in an evidence log. @returns the number of durable bytes, or the id of the
 * recording if the session ended
 */
function followCourse(entries: Iterable<LogEntry>, start: number, first: number): number | string {
  let durable = first;
  for (const { event } of entries) {
    if (event.kind === 'end' && event.start === start) return event.recording;
    if (event.kind !== 'durable') continue;
    for (const [of, bytes] of event.sessions) if (of === start) durable = Math.max(durable, bytes);
  }
  return durable;
}

function distrust(reason: string, isForged: boolean): Distrust {
  return { trust: isForged ? 'failed' : 'unverified', reason };
}
