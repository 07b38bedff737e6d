/** An attacker changes the spool of a stopped recorder, and the auditor must find the lost output. */
import { copyFileSync, cpSync, readdirSync, renameSync, rmSync, statSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import type { Finding } from '../../src/tsrecorder/evidence/finding.ts';
import { indexLogs } from '../../src/tsrecorder/evidence/log-index.ts';
import { loadSigningKey, type PublicKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { readLogs } from '../../src/tsrecorder/evidence/verify-logs.ts';
import { UNFINISHED_MS, verifyStore } from '../../src/tsrecorder/evidence/verify-store.ts';
import type { RecordingStore } from '../../src/tsrecorder/store/store.ts';
import { startGateway, within, type RecorderProcess } from './processes.ts';
import { openSite, SESSIONS, somewhere, VISIBLE_MS, type Scenario } from './site.ts';
import { judgeCast } from './workload.ts';

/** Ways to change the spool of a stopped recorder. Each function returns the sessions that lose output. */
const TAMPERINGS = {
  /** Removes the files of one session. */
  remove({ spool }, [one = '']) {
    for (const suffix of ['.cast', '.notes']) rmSync(join(spool, one + suffix));
    return [one];
  },
  /** Cuts the files to less than the acknowledged length. */
  truncate({ spool, copy, random }, [one = '']) {
    truncateSync(join(spool, `${one}.cast`), Math.floor(statSync(join(copy, `${one}.cast`)).size * random()));
    return [one];
  },
  /** Swaps two sessions. */
  swap({ spool }, [one = '', two = '']) {
    const [first, second] = [join(spool, `${one}.cast`), join(spool, `${two}.cast`)];
    renameSync(first, `${first}.moved`);
    renameSync(second, first);
    renameSync(`${first}.moved`, second);
    return [one, two];
  },
  /** Replaces a session by an older copy. */
  putBack({ spool, copy }, [one = '']) {
    for (const suffix of ['.cast', '.notes'])
      copyFileSync(join(copy, one + suffix), join(spool, one + suffix));
    return [one];
  },
  /** Replaces all files by older copies, including the evidence log. */
  putAllBack({ spool, copy }, all) {
    rmSync(spool, { recursive: true });
    renameSync(copy, spool);
    return all;
  },
  /** Removes everything, including the evidence log and the signing key. */
  removeAll({ spool }, all) {
    rmSync(spool, { recursive: true });
    return all;
  },
} as const satisfies Record<
  string,
  (
    place: { readonly spool: string; readonly copy: string; readonly random: () => number },
    sessions: readonly string[],
  ) => readonly string[]
>;
type Tampering = keyof typeof TAMPERINGS;
const TAMPERING_NAMES = Object.keys(TAMPERINGS) as readonly Tampering[];

let tampered = 0;

/**
 * Recorder and gateway are killed, and an attacker changes the spool before the recorder restarts. An auditor with the
 * recorder's public key must find every session that lost output, and no other session.
 */
export const spoolTampered: Scenario = async (stage) => {
  await using site = openSite(stage);
  const timing = { markMs: 100 };
  const recorder = await site.recorder('one', 0, timing);
  const spool = join(site.folder, 'one');
  const copy = join(site.folder, 'copy');
  const key = (await loadSigningKey(site.evidenceKey, false)).public;
  const store = await site.store();
  const gateway = startGateway({ recorders: [recorder.address], sessions: SESSIONS, paceMs: 1 });
  await somewhere(stage, gateway.reports);
  const ids = new Map((await recorder.list()).map(({ command, id }) => [command, id]));
  // copies everything except the lock file of the running recorder
  cpSync(spool, copy, { recursive: true, filter: (path) => !path.endsWith('/owner') });
  await markedBeyond(store, key, copy);
  await Promise.all([recorder.kill(), gateway.kill()]);
  const signed = await site.signedBytes();
  const published = await durableBytes(store, key);
  // the kinds of changes take turns, so that a few runs cover all of them
  const name = TAMPERING_NAMES[tampered % TAMPERING_NAMES.length] ?? 'remove';
  tampered += 1;
  const sessions = [...ids.values()].toSorted(() => stage.random() - 0.5);
  const hit = new Set(TAMPERINGS[name]({ spool, copy, random: stage.random }, sessions));
  try {
    const again = await site.recorder('one', 0, { ...timing, resumeGraceMs: 100 });
    // Without the spool, only the signed copies in the bucket are left.
    const isBehind = (id: string): boolean => (signed.get(id) ?? 0) < (published.get(id) ?? 0);
    const unproven = new Set(name === 'removeAll' ? sessions.filter((id) => !signed.has(id)) : []);
    const lost = name === 'removeAll' ? new Set(sessions.filter(isBehind)) : hit;
    await allStored(again, spool, unproven);
    const untouched = gateway
      .reports()
      .filter(({ session }) => !hit.has(ids.get(`session ${session}`) ?? ''));
    for (const report of untouched) {
      const problem = judgeCast(await again.cast(ids.get(`session ${report.session}`) ?? ''), report);
      if (problem !== undefined) throw new Error(`session ${report.session}: ${problem}`);
    }
    await again.kill('SIGTERM');
    await expectTold(store, key, name, lost);
  } catch (error) {
    throw new Error(`${name}: ${error instanceof Error ? error.message : String(error)}`, { cause: error });
  }
};

/** Waits until the evidence log in the store confirms more durable bytes of every session than `copy` contains. */
async function markedBeyond(store: RecordingStore, key: PublicKey, copy: string): Promise<void> {
  const copied = readdirSync(copy).filter((name) => name.endsWith('.cast'));
  await within('the log is ahead of the copy', VISIBLE_MS, async () => {
    const durable = await durableBytes(store, key);
    // the body of an upload also contains annotations, so it is longer than the cast
    const ahead = copied.every((file) => {
      const { size } = statSync(join(copy, file));
      const { size: notes } = statSync(join(copy, file.replace(/cast$/, 'notes')));
      return (durable.get(file.slice(0, -'.cast'.length)) ?? 0) > size + notes;
    });
    return ahead ? true : undefined;
  });
}

/**
 * Returns a map from each recording id in the published evidence logs to the number of durable bytes of the session.
 */
async function durableBytes(store: RecordingStore, key: PublicKey): Promise<ReadonlyMap<string, number>> {
  const { logs } = await readLogs(store, [key]);
  const { allStarts, courses } = indexLogs(logs);
  return new Map(
    allStarts.map(({ log, n, recording }) => [recording, courses.get(`${log} ${n}`)?.durable ?? 0]),
  );
}

/** Waits until the spool is empty and all sessions except those in `unproven` have ended. */
async function allStored(
  recorder: RecorderProcess,
  spool: string,
  unproven: ReadonlySet<string>,
): Promise<void> {
  await within('everything that there is is stored', VISIBLE_MS, async () => {
    const open = (await recorder.list()).filter(({ id, state }) => state === 'running' && !unproven.has(id));
    const left = readdirSync(spool).filter((name) => name.endsWith('.cast'));
    if (open.length + left.length === 0) return true;
    throw new Error([...open.map(({ id }) => id), ...left].join(', '));
  });
}

async function expectTold(
  store: RecordingStore,
  key: PublicKey,
  name: Tampering,
  hit: ReadonlySet<string>,
): Promise<void> {
  const nowMs = Date.now() + (name === 'removeAll' ? UNFINISHED_MS + 60_000 : 0);
  const { verdict, findings } = await verifyStore({ store, keys: [key], checkpoint: [], nowMs });
  const faults = findings.filter(({ severity }) => severity === 'fault');
  const describe = (about: readonly Finding[]): string =>
    about.map(({ code, recording, message }) => `${code} ${recording ?? ''} ${message}`).join('; ');
  // without the evidence log and the signing key, the restarted recorder cannot report the loss, so the test accepts
  // any fault
  const codes = name === 'removeAll' ? undefined : ['lost'];
  if (codes !== undefined && verdict !== 'lost') throw new Error(`${verdict}: ${describe(findings)}`);
  const reported = new Set(
    faults.filter(({ code }) => codes?.includes(code) ?? true).map(({ recording }) => recording),
  );
  const missed = [...hit].filter((id) => !reported.has(id));
  if (missed.length > 0) throw new Error(`the findings lack ${missed.join(', ')}: ${describe(findings)}`);
  const wronged = faults.filter(({ recording = '' }) => !hit.has(recording));
  if (wronged.length > 0 && name !== 'removeAll')
    throw new Error(`what is as it was is at fault: ${describe(wronged)}`);
}
