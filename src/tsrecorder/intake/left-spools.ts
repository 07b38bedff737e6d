/** Spools of processes that there were more of once: one of those that are left brings them into the store. */
import { settledWithin } from '../../async/within.ts';
import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { SessionEvidence } from '../evidence/session-evidence.ts';
import type { RecorderEvents } from '../events/recorder-events.ts';
import type { Finisher } from './finisher.ts';
import type { GroupCommit } from './group-commit.ts';
import type { Ingest } from './ingest.ts';
import { leftSpools, removeLeftSpool } from './siblings.ts';
import { lockSpool } from '../spool/spool-lock.ts';

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
  /** How many processes there are now. */
  readonly count: number;
  /** A spool of all processes of an earlier version. */
  readonly earlier: string | undefined;
  /** Recovers a spool, without anybody who could continue what is in it. */
  readonly open: (directory: string) => Promise<SpoolParts>;
  /** How long the store may take; then the spool stays for the next start. */
  readonly limitMs: number;
  readonly log: Logger;
}

/** Resolves when all have been tried once; never rejects. */
export async function settleLeftSpools(options: LeftSpoolOptions): Promise<void> {
  const { spool, count, earlier, log } = options;
  const all = earlier === undefined ? [] : [...(await leftSpools(earlier, 0)), earlier];
  for (const directory of [...(await leftSpools(spool, count)), ...all]) {
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
