/**
 * The signed statement next to the segments of an open session, with the lengths and digests of the two spool files.
 * The statement names the recorder, the recording, and the start entry in the published evidence log. Segments may be
 * longer than the statement says; only the signed length is proven.
 */
import { BoundedMap } from '../../bounded-map.ts';
import { z } from 'zod';
import { TailcastError } from '../../errors.ts';
import {
  MAX_STATEMENT_BYTES,
  readStatement,
  type NoStatement,
  type Statement,
} from '../evidence/statement.ts';
import type { PublicKey } from '../evidence/signing-key.ts';
import { recordingId } from '../store/key.ts';
import type { Bucket, BucketObject } from '../store/bucket.ts';
import type { ObjectStat } from '../store/store.ts';
import type { OpenSession } from './segments.ts';

/** Maximum length of the first line of a journal, in bytes. */
export const MAX_META_BYTES = 65_536;

const sha256 = z.string().regex(/^[0-9a-f]{64}$/);
const file = z.strictObject({ bytes: z.int().min(0), sha256 });

const CHECKPOINT_SCHEMA = z.strictObject({
  /** Name of the recorder in the bucket: the folder of the segments. */
  recorder: z.string(),
  recording: z.string(),
  /** Id of the evidence log that contains the start entry of the session, and number of that entry. */
  log: z.string().regex(/^[0-9a-f]{32}$/),
  start: z.int().min(0),
  /** SHA-256 of the header line of the cast and of the first line of the journal, with their line feeds. */
  header: sha256,
  meta: sha256,
  /** Number of upload bytes that the two files represent. */
  bodyBytes: z.int().min(0),
  cast: file,
  notes: file,
});

/** The signed content of a checkpoint statement. */
export type Checkpoint = z.infer<typeof CHECKPOINT_SCHEMA>;

/**
 * Reads the signed statement of a session. Verifies its signature, and checks that the statement is about this session
 * of this recorder.
 *
 * @throws TailcastError `STORE_FAILED`
 */
export async function readCheckpoint(
  bucket: Bucket,
  session: OpenSession,
  trusted: ReadonlyMap<string, PublicKey>,
): Promise<Statement<Checkpoint> | NoStatement> {
  const { proof, recorder, key } = session;
  if (proof === undefined) return { problem: 'its recorder has not signed it', isForged: false };
  const text = await readObject(bucket, proof.name);
  const read = readStatement('checkpoint', text ?? '', CHECKPOINT_SCHEMA, trusted);
  if ('problem' in read)
    return { ...read, problem: `the statement of its recorder proves nothing: ${read.problem}` };
  const { value } = read;
  if (value.recording !== recordingId(key) || value.recorder !== recorder)
    return { problem: 'the statement is about another session', isForged: true };
  return read;
}

/** Maximum number of objects whose check is cached. */
const MAX_CHECKED = 100_000;

/**
 * Creates a cache of check results for objects that other programs may change. A changed object is checked again.
 * @param check checks the object and returns the result
 */
export function createCheckCache<T>(): (object: BucketObject, check: () => Promise<T>) => Promise<T> {
  const checked = new BoundedMap<{ readonly version: string; readonly result: T }>(MAX_CHECKED);
  return async (object, check) => {
    const version = versionOf(object);
    const known = checked.get(object.name);
    if (known?.version === version) return known.result;
    const result = await check();
    checked.set(object.name, { version, result });
    return result;
  };
}

/** Returns a text that identifies the version of an object. Detects only changes that a listing of the bucket shows. */
export function versionOf({ modifiedAtMs, bytes, identity = '' }: ObjectStat): string {
  return `${modifiedAtMs} ${bytes} ${identity}`;
}

/** Returns true if a trusted key signed the statement of a session. */
export type SignedCheck = (session: OpenSession) => Promise<boolean>;

/**
 * Creates a function that starts the checks of one listing of open sessions. The check results for the versions of
 * signed statements are cached.
 *
 * @param maxReads maximum number of statements without a trusted signature that one listing reads. Further sessions
 *   count as unsigned. The next listing continues after the last statement that was read, so forged statements cannot
 *   hide genuine statements permanently. Default: all
 */
export function createSignedCheck(
  bucket: Bucket,
  trusted: ReadonlyMap<string, PublicKey>,
  maxReads = Number.POSITIVE_INFINITY,
): () => SignedCheck {
  /**
   * Versions of signed statements. Map keys: object name of the statement. Unsigned statements have a map of their own,
   * so that they cannot displace signed statements.
   */
  const signed = new BoundedMap<string>(MAX_CHECKED);
  const unsigned = new BoundedMap<string>(MAX_CHECKED);
  let nextAfter = '';
  return () => {
    const after = nextAfter;
    nextAfter = '';
    /** Number of new statements that are being read or are unsigned. */
    let reads = 0;
    let lastRead = '';
    const mayRead = (name: string): boolean => {
      if (name <= after) return false;
      if (reads >= maxReads) {
        nextAfter = lastRead;
        return false;
      }
      reads += 1;
      lastRead = name;
      return true;
    };
    return async (session) => {
      const { proof } = session;
      if (proof === undefined) return false;
      const { name } = proof;
      const version = versionOf(proof);
      if (signed.get(name) === version) return true;
      const isNew = !signed.has(name);
      if (isNew && (unsigned.get(name) === version || !mayRead(name))) return false;
      const isSigned = 'value' in (await readCheckpoint(bucket, session, trusted));
      if (isNew && isSigned) reads -= 1;
      (isSigned ? signed : unsigned).set(name, version);
      (isSigned ? unsigned : signed).delete(name);
      return isSigned;
    };
  };
}

/** Reads a small object as text. @returns undefined if it is missing. @throws TailcastError `STORE_FAILED` */
export async function readObject(bucket: Bucket, name: string): Promise<string | undefined> {
  try {
    const content = await Array.fromAsync(bucket.get(name, { start: 0, end: MAX_STATEMENT_BYTES }));
    return Buffer.concat(content).toString();
  } catch (error) {
    if (error instanceof TailcastError && error.code === 'RECORDING_UNKNOWN') return undefined;
    throw error;
  }
}
