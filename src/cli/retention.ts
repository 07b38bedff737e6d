/** `tailcast retention`: what a policy would remove, and holds. Removing is left to recorders: they have the log. */
import { stat } from 'node:fs/promises';
import type { CommandContext } from '../config/command-context.ts';
import { TailcastError } from '../errors.ts';
import { holdRecording, planStoreRetention, releaseRecording } from '../tsrecorder/retention-run.ts';
import type { PlannedRemoval, RetentionPlan } from '../tsrecorder/retention.ts';
import { createDiskStore } from '../tsrecorder/store/disk.ts';
import { formatBytes, formatTable, plain, print } from './output.ts';

const DAY_MS = 86_400_000;

/** @throws TailcastError `USAGE`, `RECORDING_UNKNOWN` */
export async function manageRetention(
  directory: string,
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<void> {
  const found = await stat(directory).catch(() => undefined);
  if (found?.isDirectory() !== true) throw new TailcastError('USAGE', `${directory} is not a directory`);
  const { hold, release, reason, maxAgeDays, maxBytes } = options;
  const changes = Array.isArray(hold) || Array.isArray(release);
  const store = await createDiskStore(directory, { readOnly: !changes });
  if (Array.isArray(hold)) {
    if (typeof reason !== 'string') throw new TailcastError('USAGE', 'say why with --reason');
    for (const id of hold) await holdRecording(store, String(id), reason, Date.now());
  }
  if (Array.isArray(release)) for (const id of release) await releaseRecording(store, String(id));
  const policy = {
    ...(typeof maxAgeDays === 'number' ? { maxAgeMs: maxAgeDays * DAY_MS } : {}),
    ...(typeof maxBytes === 'number' ? { maxBytes } : {}),
  };
  const plan = await planStoreRetention(store, policy, Date.now());
  if (options['json'] === true) await print(context.stdout, `${JSON.stringify(plan)}\n`);
  else await printPlan(plan, context);
}

async function printPlan(
  { remove, held, keptBytes, overQuota }: RetentionPlan,
  context: CommandContext,
): Promise<void> {
  const rows = [
    ...remove.map((removal) => rowOf(removal, 'remove')),
    ...held.map((removal) => rowOf(removal, 'held')),
  ];
  if (rows.length > 0)
    await print(context.stdout, formatTable(['WHAT', 'WHY', 'STARTED', 'SIZE', 'ID'], rows));
  const note = overQuota ? '; what is held is larger than the limit' : '';
  await print(
    context.stdout,
    `${remove.length} would be removed, ${held.length} held, ${formatBytes(keptBytes)} kept${note}\n`,
  );
}

function rowOf({ id, reason, startedAtMs, bytes }: PlannedRemoval, what: string): readonly string[] {
  return [what, reason, new Date(startedAtMs).toISOString(), formatBytes(bytes), id].map(plain);
}
