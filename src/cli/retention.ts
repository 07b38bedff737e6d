/**
 * `tailcast retention`: prints which recordings a retention policy would remove, and manages holds. Changes of holds
 * need the evidence key of a recorder. Only recorders remove recordings, because each removal needs an entry in their
 * evidence log.
 */
import { openStoreForTool, type StoreConfig } from '../compose/recorder-store.ts';
import type { CommandContext } from '../config/command-context.ts';
import type { RecorderConfig } from '../config/recorder.ts';
import { TailcastError } from '../errors.ts';
import { changeHold, type HoldSigner } from '../tsrecorder/evidence/holds.ts';
import {
  keysById,
  loadPublicKeys,
  loadSigningKey,
  type PublicKey,
} from '../tsrecorder/evidence/signing-key.ts';
import { planStoreRetention, type ShownRetentionPlan } from '../tsrecorder/retention/retention-run.ts';
import type { PlannedRemoval } from '../tsrecorder/retention/retention.ts';
import type { RecordingStore } from '../tsrecorder/store/store.ts';
import { parseRecordingId } from '../tsrecorder/store/key.ts';
import { openStoreArchive } from './directory-archive.ts';
import { formatBytes, print, printJson, printTable } from './output.ts';
import type { Options } from './tool.ts';

const DAY_MS = 86_400_000;

/**
 * Sets and releases the holds that the options name. Then prints the removals that the policy plans for the store.
 *
 * @throws TailcastError `USAGE`, `RECORDING_UNKNOWN`, `STORE_FAILED`
 */
export async function manageRetention(
  config: StoreConfig & Pick<RecorderConfig, 'evidenceKey' | 'recorderKeys'> & { readonly store: string },
  options: Options,
  context: CommandContext,
): Promise<void> {
  const { hold, release } = options;
  const changes = Array.isArray(hold) || Array.isArray(release);
  const signer = await signerOf(config, changes);
  const opened = await openStoreForTool(config, changes);
  try {
    await manage(opened.store, signer, options, context);
  } finally {
    opened.close();
  }
}

/**
 * Returns a signer with the keys in the options. @throws TailcastError `USAGE` if a change of holds needs a key and the
 * options name no key
 */
async function signerOf(
  { evidenceKey, recorderKeys }: Pick<RecorderConfig, 'evidenceKey' | 'recorderKeys'>,
  changes: boolean,
): Promise<Partial<HoldSigner> & Pick<HoldSigner, 'trusted'>> {
  if (changes && evidenceKey === undefined)
    throw new TailcastError(
      'USAGE',
      'holds and releases are signed: name the private evidence key of a recorder of this store with --evidence-key',
    );
  const key = evidenceKey === undefined ? undefined : await loadSigningKey(evidenceKey, false);
  const others = recorderKeys === undefined ? [] : await loadPublicKeys(recorderKeys);
  const keys: readonly PublicKey[] = key === undefined ? others : [...others, key.public];
  return { ...(key === undefined ? {} : { key }), trusted: keysById(keys) };
}

async function manage(
  store: RecordingStore,
  { key, trusted }: Partial<HoldSigner> & Pick<HoldSigner, 'trusted'>,
  { hold, release, reason, maxAgeDays, maxBytes, minAgeDays, json }: Options,
  context: CommandContext,
): Promise<void> {
  const signer = key === undefined ? undefined : { key, trusted, nowMs: Date.now() };
  const note = async (text: string): Promise<void> =>
    json === true ? undefined : print(context.stdout, `${text}\n`);
  if (Array.isArray(hold) && signer !== undefined) {
    if (typeof reason !== 'string') throw new TailcastError('USAGE', 'say why with --reason');
    for (const id of await idsOf(hold, store, context)) {
      await changeHold(store, id, { kind: 'held', reason }, signer);
      await note(`hold set: ${id}`);
    }
  }
  if (Array.isArray(release) && signer !== undefined) {
    const why = typeof reason === 'string' ? reason : '';
    for (const id of await idsOf(release, store, context)) {
      await changeHold(store, id, { kind: 'released', reason: why }, signer);
      await note(`hold released: ${id}`);
    }
  }
  const policy = {
    ...(typeof maxAgeDays === 'number' ? { maxAgeMs: maxAgeDays * DAY_MS } : {}),
    ...(typeof maxBytes === 'number' ? { maxBytes } : {}),
    ...(typeof minAgeDays === 'number' ? { minAgeMs: minAgeDays * DAY_MS } : {}),
  };
  const plan = await planStoreRetention(store, policy, Date.now(), [...trusted.values()]);
  if (json === true) await printJson(context.stdout, plan);
  else await printPlan(plan, context);
}

/**
 * Resolves ids, prefixes of ids and `latest`. The id of a removed recording is also accepted, so that its hold can be
 * released.
 */
async function idsOf(
  given: readonly unknown[],
  store: RecordingStore,
  { signal }: CommandContext,
): Promise<readonly string[]> {
  const archive = openStoreArchive(store, signal);
  const ids: string[] = [];
  for (const text of given.map(String))
    ids.push(parseRecordingId(text) === undefined ? (await archive.find(text)).id : text);
  return ids;
}

async function printPlan(
  { remove, held, keptBytes, overQuota }: ShownRetentionPlan,
  context: CommandContext,
): Promise<void> {
  const rows = [
    ...remove.map((removal) => rowOf(removal, 'remove')),
    ...held.map((removal) => rowOf(removal, removal.hold === 'signed' ? 'held' : `held (${removal.hold})`)),
  ];
  if (rows.length > 0)
    await printTable(context.stdout, { header: ['WHAT', 'WHY', 'STARTED', 'SIZE', 'ID'], rows });
  const note = overQuota ? '; held and young recordings exceed the limit, so recorders refuse sessions' : '';
  await print(
    context.stdout,
    `${remove.length} would be removed, ${held.length} held, ${formatBytes(keptBytes)} kept${note}\n`,
  );
}

function rowOf({ id, reason, startedAtMs, bytes }: PlannedRemoval, what: string): readonly string[] {
  return [what, reason, new Date(startedAtMs).toISOString(), formatBytes(bytes), id];
}
