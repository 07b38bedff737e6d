/** `tailcast verify`: checks that an archive is unchanged, and reports the location of each problem. */
import { readFile, stat, writeFile } from 'node:fs/promises';
import { CleanUp } from '../compose/clean-up.ts';
import { openStoreForTool, type StoreConfig } from '../compose/recorder-store.ts';
import type { CommandContext } from '../config/command-context.ts';
import { TailcastError, errorReason } from '../errors.ts';
import type { Finding } from '../tsrecorder/evidence/finding.ts';
import type { LogHead } from '../tsrecorder/evidence/log-entry.ts';
import { selectSessions } from '../tsrecorder/evidence/selected-sessions.ts';
import { loadPublicKeys, parsePublicKey, type PublicKey } from '../tsrecorder/evidence/signing-key.ts';
import {
  encodeCheckpoint,
  parseCheckpoint,
  UNFINISHED_MS,
  verdictOfFindings,
  verifyStores,
  type JointReport,
  type StoreVerdict,
  type VerifiedStore,
  type VerifyReport,
} from '../tsrecorder/evidence/verify-store.ts';
import { remoteOfStore, openJoinedArchive } from './directory-archive.ts';
import { readDemoNote } from './open-archive.ts';
import { plain, print, printJson } from './output.ts';
import type { Options } from './tool.ts';

/** Exit code for each verdict. Code 2 means wrong usage. */
const EXIT_CODES: Readonly<Record<StoreVerdict, number>> = { verified: 0, failed: 1, unverified: 3, lost: 4 };
const HOUR_MS = 3_600_000;

/**
 * Prints the problems of the stores, which are directories or buckets: one line each, or one JSON object with `--json`.
 * A session that continued at a recorder with another store is complete if each of its parts is in one of these stores.
 *
 * @returns the exit code, see {@link EXIT_CODES}
 * @throws TailcastError `USAGE` or `CONFIG_INVALID` if a store, a key or the checkpoint cannot be read
 */
export async function verifyArchive(
  configs: readonly (StoreConfig & { readonly store: string })[],
  options: Options,
  context: CommandContext,
): Promise<number> {
  const keys = await readKeys(options['key']);
  const checkpoint = await readCheckpoint(options['checkpoint']);
  await using stack = new CleanUp();
  const stores: VerifiedStore[] = [];
  for (const config of configs) {
    const opened = await openStoreForTool(config);
    stack.defer(() => opened.close());
    stores.push(opened.store);
  }
  const ids = await resolveIds(options['ids'], stores, context);
  const all = await verifyStores(stores, {
    keys,
    checkpoint,
    nowMs: Date.now(),
    requireEvidence: options['requireEvidence'] === true,
    unfinishedMs: Number(options['unfinishedHours'] ?? UNFINISHED_MS / HOUR_MS) * HOUR_MS,
    signal: context.signal,
  });
  const joint = ids.length === 0 ? all : onlyAbout(all, ids);
  const target = options['saveCheckpoint'];
  // a checkpoint is written only if the verdict is `verified`, because a new checkpoint would hide a fault in later
  // runs
  if (typeof target === 'string') {
    const heads = all.reports.flatMap((report) => report.heads);
    if (all.ok) await writeFile(target, encodeCheckpoint(heads, new Date().toISOString()));
    else await print(context.stderr, `tailcast: no checkpoint was saved to ${target}\n`);
  }
  if (ids.length > 0) await printRecordings(joint, ids, options, context);
  else if (options['json'] === true) await printJson(context.stdout, asJson(joint, configs));
  else await printJoint(joint, configs, context);
  return EXIT_CODES[joint.verdict];
}

/**
 * Separates the arguments into stores and recording ids. Without a store, uses the store of the environment or the
 * demo.
 */
export async function splitWords(
  words: readonly string[],
  environment: ReadonlyMap<string, string>,
): Promise<{ readonly stores: readonly string[]; readonly ids: readonly string[] }> {
  // ids contain no slash; an argument without a slash is a store only if such a directory exists
  const isStore = async (word: string): Promise<boolean> =>
    word.includes('/') || (await stat(word).catch(() => undefined)) !== undefined;
  const marked = await Promise.all(words.map(async (word) => ({ word, isOne: await isStore(word) })));
  const named = marked.filter(({ isOne }) => isOne).map(({ word }) => word);
  const ids = marked.filter(({ isOne }) => !isOne).map(({ word }) => word);
  if (named.length > 0) return { stores: named, ids };
  const store = environment.get('TAILCAST_STORE') ?? (await readDemoNote(environment))?.store;
  if (store === undefined)
    throw new TailcastError(
      'USAGE',
      'no store is named: give a directory or s3://bucket, or set TAILCAST_STORE',
    );
  return { stores: [store], ids };
}

async function resolveIds(
  given: unknown,
  stores: readonly VerifiedStore[],
  { signal }: CommandContext,
): Promise<readonly string[]> {
  const [first, ...others] = stores;
  if (!Array.isArray(given) || given.length === 0 || first === undefined) return [];
  const archive = openJoinedArchive(
    first,
    others.map((store) => remoteOfStore(store)),
    signal,
  );
  const ids: string[] = [];
  for (const id of given.map(String)) ids.push((await archive.find(id)).id);
  return ids;
}

/** Keeps only findings about the sessions of these recordings and about the evidence logs, and computes the verdict. */
function onlyAbout(joint: JointReport, ids: readonly string[]): JointReport {
  const { findings, isUncertain } = selectSessions(
    ids,
    joint.reports.flatMap(({ parts }) => parts),
    new Map(joint.reports.flatMap(({ sessions }) => [...sessions])),
    [...joint.reports.flatMap((report) => report.findings), ...joint.findings],
  );
  const isProven =
    !isUncertain &&
    joint.reports.every(({ isOurs }) => isOurs) &&
    !findings.some(({ code }) => code === 'no-evidence');
  const verdict = verdictOfFindings(findings, isProven);
  return { ...joint, verdict, ok: verdict === 'verified', findings };
}

async function printRecordings(
  { verdict, ok, findings }: JointReport,
  ids: readonly string[],
  options: Options,
  { stdout }: CommandContext,
): Promise<void> {
  if (options['json'] === true) {
    await printJson(stdout, { verdict, ok, recordings: ids, findings });
    return;
  }
  for (const finding of findings) await print(stdout, `${describe(finding)}\n`);
  await print(stdout, `${ids.join(', ')}: ${verdict}\n`);
}

type Configs = readonly { readonly store: string }[];

/** Returns the report of one store, or an object with the reports of several stores. */
function asJson({ verdict, ok, findings, reports }: JointReport, configs: Configs): unknown {
  const report = reports.map(({ parts: _parts, sessions: _sessions, isOurs: _isOurs, ...report }) => report);
  const [only] = report;
  if (report.length === 1 && only !== undefined)
    return { ...only, verdict, ok, findings: [...only.findings, ...findings] };
  const stores = report.map((report, index) => ({ store: configs[index]?.store, ...report }));
  return { verdict, ok, findings, stores };
}

async function printJoint(
  { reports, findings, ...joint }: JointReport,
  configs: Configs,
  context: CommandContext,
): Promise<void> {
  const [only] = reports;
  if (reports.length === 1 && only !== undefined)
    return printReport({ ...only, ...joint, findings: [...only.findings, ...findings] }, context);
  for (const [index, report] of reports.entries()) {
    await print(context.stdout, `${plain(configs[index]?.store ?? '')}:\n`);
    await printReport(report, context);
  }
  for (const finding of findings) await print(context.stdout, `${describe(finding)}\n`);
  await print(context.stdout, `all stores: ${joint.verdict}\n`);
}

async function printReport(
  report: Pick<VerifyReport, 'verdict' | 'findings' | 'recordings' | 'removed' | 'unfinished'>,
  { stdout }: CommandContext,
): Promise<void> {
  for (const finding of report.findings) await print(stdout, `${describe(finding)}\n`);
  const faults = report.findings.filter(({ severity }) => severity === 'fault').length;
  const { withEvidence, withoutEvidence } = report.recordings;
  const summary = [
    `${withEvidence} recordings with evidence`,
    `${withoutEvidence} without`,
    `${report.removed} removed`,
    `${report.unfinished} not finished`,
    outcomeOf(report, faults),
  ];
  await print(stdout, `${summary.join(', ')}\n`);
}

function outcomeOf(
  { verdict, recordings }: Pick<VerifyReport, 'verdict' | 'recordings'>,
  faults: number,
): string {
  switch (verdict) {
    case 'verified':
      return recordings.withoutEvidence === 0 ? 'no faults' : 'no faults in recordings with evidence';
    case 'unverified':
      return 'unverified: name the keys of the recorders (--key)';
    case 'failed':
    case 'lost':
      return `${faults} ${faults === 1 ? 'fault' : 'faults'}${verdict === 'lost' ? ': acknowledged bytes are lost' : ''}`;
  }
}

function describe({ severity, code, message, recording, log, entry, object }: Finding): string {
  const place = [
    recording,
    object,
    log === undefined ? undefined : `log ${log}${entry === undefined ? '' : ` entry ${entry}`}`,
  ].filter((part) => part !== undefined);
  const where = place.length === 0 ? '' : ` [${place.join('; ')}]`;
  return plain(`${severity === 'fault' ? 'FAULT ' : 'notice'} ${code}: ${message}${where}`);
}

/** @param given paths of PEM files, or raw keys in Base64 */
async function readKeys(given: unknown): Promise<readonly PublicKey[]> {
  const keys: PublicKey[] = [];
  for (const name of Array.isArray(given) ? given.map(String) : []) {
    const raw = parsePublicKey(name);
    const found = raw === undefined ? await loadPublicKeys(name) : [raw];
    if (found.length === 0) throw new TailcastError('USAGE', `${name} contains no public Ed25519 key`);
    keys.push(...found);
  }
  return keys;
}

async function readCheckpoint(path: unknown): Promise<readonly LogHead[]> {
  if (typeof path !== 'string') return [];
  const text = await readFile(path, 'utf8').catch((error: unknown) => {
    throw new TailcastError('USAGE', `the checkpoint cannot be read: ${errorReason(error)}`);
  });
  const heads = parseCheckpoint(text);
  if (heads === undefined) throw new TailcastError('USAGE', `${path} is no checkpoint`);
  return heads;
}
