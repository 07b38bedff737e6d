/**
 * Spools of earlier versions: of the further processes that a recorder could have, and inside the store. What is in them is
 * brought into the store, and they are removed.
 *
 * ```
 * <spool>/…            of the recorder, and before of its first process
 * <spool>/worker-1/…   of the second, with an evidence log of its own; the signing key is one
 * ```
 */
import { readdir, rm } from 'node:fs/promises';
import { settledWithin } from '../../async/within.ts';
import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { SessionEvidence } from '../evidence/session-evidence.ts';
import type { RecorderEvents } from '../events/recorder-events.ts';
import type { Finisher } from './finisher.ts';
import type { GroupCommit } from './group-commit.ts';
import type { Ingest } from './ingest.ts';
import { lockSpool } from '../spool/spool-lock.ts';
import { processSpools } from '../spool/spool-place.ts';

/** What works on a spool. */
export interface SpoolParts {
  readonly ingest: Ingest;
  readonly group: GroupCommit;
  readonly finisher: Finisher;
  readonly evidence: Pick<SessionEvidence, 'publish' | 'close'>;
  readonly events: Pick<RecorderEvents, 'close'>;
}

export interface LeftSpoolOptions {
  readonly spool: string;
  /** One inside the store. */
  readonly earlier: string | undefined;
  /** Recovers a spool, without anybody who could continue what is in it. */
  readonly open: (directory: string) => Promise<SpoolParts>;
  /** How long the store may take; then the spool stays for the next start. */
  readonly limitMs: number;
  readonly log: Logger;
}

/** Resolves when all have been tried once; never rejects. */
export async function settleLeftSpools(options: LeftSpoolOptions): Promise<void> {
  const { spool, earlier, log } = options;
  const inside = earlier === undefined ? [] : [...(await processSpools(earlier)), earlier];
  for (const directory of [...(await processSpools(spool)), ...inside]) {
    try {
      await settle(directory, options);
      log.info({ spool: directory }, 'spool of an earlier process was settled');
    } catch (error) {
      log.warn({ spool: directory, error: errorText(error) }, 'spool of an earlier process stays');
    }
  }
}

async function settle(directory: string, { open, limitMs }: LeftSpoolOptions): Promise<void> {
  const unlock = await lockSpool(directory);
  try {
    const parts = await open(directory);
    const settled = await settledWithin(
      limitMs,
      Promise.all(parts.ingest.live().map(({ stored }) => stored)),
    );
    await closeUploads(parts);
    await parts.events.close();
    if (settled) await parts.evidence.publish();
    await parts.evidence.close();
    if (!settled) throw new Error(`not all of it could be stored in ${limitMs} ms`);
    await removeLeftSpool(directory);
  } finally {
    await unlock();
  }
}

/** Everything in a spool is in the store: removes it. @throws Error when something is left in it */
export async function removeLeftSpool(directory: string): Promise<void> {
  const files = await readdir(directory, { recursive: true });
  const left = files.filter((name) => /\.(cast|notes|ndjson)$/.test(name));
  if (left.length > 0) throw new Error(`it holds ${left.length} files that are not in the store`);
  await rm(directory, { recursive: true, force: true });
}

/** Ends all uploads; what can be stored is. */
export async function closeUploads({
  ingest,
  group,
  finisher,
}: Pick<SpoolParts, 'ingest' | 'group' | 'finisher'>): Promise<void> {
  await ingest.close();
  await group.flush();
  await finisher.close();
}
