/** Reads the durable state of an upload that has ended. */
import { parseHead, type CastHead } from '../library/cast-head.ts';
import { readPart } from '../files/file-range.ts';
import type { OverUpload } from './finisher.ts';
import { cutFile } from '../files/append-file.ts';
import { SessionFacts } from '../library/session-facts.ts';
import { readSpool, removeSpool, type RecoveredSpool } from '../spool/spool-file.ts';
import type { UploadSession } from './upload-session.ts';

export type FoundUpload = Omit<OverUpload, 'clean' | 'awaited' | 'hasOthers' | 'cutReason' | 'endedAt'>;

/**
 * Returns the upload from memory. Call this only if the last commit of the session succeeded. After a failed commit,
 * the disk may have other content.
 */
export async function memorized(session: UploadSession): Promise<FoundUpload | undefined> {
  const { started, durable, oddLines } = session;
  if (started === undefined) return undefined;
  if (durable.castBytes > 0) return { ...started, ...durable, oddLines };
  await removeSpool(started.paths);
  return undefined;
}

/** Reads the upload of a session from disk after a failed write. */
export async function reread(session: UploadSession): Promise<FoundUpload | undefined> {
  const { started, oddLines } = session;
  if (started === undefined) return undefined;
  const facts = new SessionFacts();
  const spool = await readSpool(started.paths, (note) => facts.note(note));
  if (spool === undefined) {
    await removeSpool(started.paths);
    return undefined;
  }
  await cutSpool(spool);
  const { castBytes, notesBytes, bodyBytes } = spool;
  return { ...started, facts, castBytes, notesBytes, bodyBytes, oddLines };
}

/** Truncates the files of a spool to their complete lines. */
export async function cutSpool(spool: RecoveredSpool): Promise<void> {
  await cutFile(spool.paths.cast, spool.castBytes);
  await cutFile(spool.paths.notes, spool.notesBytes);
}

/** Reads the header line of a spool. Returns undefined if the header line is invalid. */
export async function readHead(spool: RecoveredSpool): Promise<CastHead | undefined> {
  const line = await readPart(spool.paths.cast, 0, spool.meta.storedHeaderBytes);
  return parseHead(new TextDecoder().decode(line));
}

/** A session that was found in the spool after a restart. */
export interface RecoveredSession {
  readonly session: UploadSession;
  /** True if this recorder took the session over from another recorder. */
  readonly isAdopted: boolean;
  /** True if the upload was complete. */
  readonly ended: boolean;
  /** A sentence about missing bytes, or undefined. */
  readonly lost: string | undefined;
}
