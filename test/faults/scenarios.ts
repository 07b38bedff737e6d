/** Scenarios: each injects faults into recorders and gateways, and checks the required state afterwards. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Recording } from '../../src/wire/recorder-api/recording.ts';
import { createFaultyDisk, type FaultyDisk } from './disk.ts';
import type { RecorderPlan } from './recorder-process.ts';
import { startGateway, startRecorder, within, type RecorderProcess } from './processes.ts';
import { FAULTS } from './s3-shim.ts';
import {
  allBegun,
  openSite,
  S3_PART_BYTES,
  SESSIONS,
  somewhere,
  TIMING,
  VISIBLE_MS,
  type Scenario,
  type Stage,
} from './site.ts';
import { spoolTampered } from './tampered-spools.ts';
import { CUT_END, judgeCast, judgeNotes, type SessionReport } from './workload.ts';

/** Checks that every session has one recording, in one of `states`, with every acknowledged byte. */
async function expectAll(
  recorder: RecorderProcess,
  reports: readonly SessionReport[],
  states: readonly string[],
): Promise<void> {
  const recordings = await within(
    `every session is one recording, ${states.join(' or ')}`,
    VISIBLE_MS,
    async () => {
      const found = await recorder.list();
      const settled = found.filter(({ state }) => states.includes(state));
      return settled.length === reports.length && found.length === reports.length
        ? found
        : Promise.reject(new Error(found.map(({ command, state }) => `${command}: ${state}`).join(', ')));
    },
  );
  for (const report of reports) {
    const recording = recordings.find(({ command }) => command === `session ${report.session}`);
    if (recording === undefined) throw new Error(`session ${report.session} is nowhere`);
    const cast = await recorder.cast(recording.id);
    const problem = judgeCast(cast, report) ?? (await judgeStoredNotes(recorder, recording, cast, report));
    if (problem !== undefined) throw new Error(`session ${report.session}: ${problem}`);
  }
}

/**
 * Checks the notes of a finished session. A running session has no notes; a finished session has notes after it is
 * stored.
 */
async function judgeStoredNotes(
  recorder: RecorderProcess,
  { id, state }: Recording,
  cast: string,
  report: SessionReport,
): Promise<string | undefined> {
  if (state === 'running') return undefined;
  const notes = await within(`the notes of session ${report.session}`, VISIBLE_MS, () => recorder.notes(id));
  return judgeNotes(notes, cast, report);
}

/** Checks that every session is finished, complete and in the store. */
async function expectStored(recorder: RecorderProcess, reports: readonly SessionReport[]): Promise<void> {
  await expectAll(recorder, reports, ['completed']);
  await within('the spool is empty', VISIBLE_MS, async () => {
    const spooled = await recorder.list();
    const stored = await Promise.all(
      spooled.map(async ({ id }) => (await fetch(`${recorder.url}/api/v1/recordings/${id}/sidecar`)).status),
    );
    return stored.every((status) => status === 200) ? true : undefined;
  });
  await expectAll(recorder, reports, ['completed']);
}

function expectConfirmed(reports: readonly SessionReport[]): void {
  for (const { session, confirmed, lost, acked, written } of reports) {
    if (!confirmed) throw new Error(`session ${session} was not confirmed: ${lost ?? 'no reason'}`);
    if (acked > written) throw new Error(`session ${session}: more acknowledged than written`);
  }
}

/** The recorder is killed and restarted while the gateway runs: sessions continue without loss. */
const recorderKilled: Scenario = async (stage) => {
  await using site = openSite(stage);
  let recorder = await site.recorder('one');
  const gateway = site.gateway({ recorders: [recorder.address], sessions: SESSIONS, paceMs: 1 });
  const kills = 1 + Math.floor(stage.random() * 2);
  for (let count = 0; count < kills; count += 1) {
    await somewhere(stage, gateway.reports);
    await recorder.kill();
    await delay(stage.random() * 300);
    recorder = await site.recorder('one', recorder.port);
  }
  await somewhere(stage, gateway.reports);
  const reports = await gateway.finish();
  expectConfirmed(reports);
  await expectAll(recorder, reports, ['completed']);
};

/**
 * Gateway and recorder are killed together. The recordings contain all acknowledged bytes immediately after the
 * recorder's restart, and are finished after the grace period.
 */
const bothKilled: Scenario = async (stage) => {
  await using site = openSite(stage);
  const first = await site.recorder('one');
  const gateway = site.gateway({ recorders: [first.address], sessions: SESSIONS, paceMs: 0 });
  await somewhere(stage, gateway.reports);
  await Promise.all([first.kill(), gateway.kill()]);
  const reports = gateway.reports();
  const second = await site.recorder('one', 0, { resumeGraceMs: 1000 });
  await expectAll(second, reports, ['running', 'interrupted']);
  await expectAll(second, reports, ['interrupted']);
};

/** The gateway is killed: its sessions are finished as interrupted, with all acknowledged output. */
const gatewayKilled: Scenario = async (stage) => {
  await using site = openSite(stage);
  const recorder = await site.recorder('one', 0, { resumeGraceMs: 500 });
  const gateway = site.gateway({ recorders: [recorder.address], sessions: SESSIONS, paceMs: 0 });
  await somewhere(stage, gateway.reports);
  await gateway.kill();
  await expectAll(recorder, gateway.reports(), ['interrupted']);
};

/**
 * The only recorder is down so long that sessions stop looking for a recorder. The restarted recorder may be killed
 * again during recovery. The sessions are interrupted, and their recordings contain every acknowledged byte.
 */
const recorderGone: Scenario = async (stage) => {
  await using site = openSite(stage);
  const timing = { resumeGraceMs: stage.random() < 0.5 ? 50 : 60_000 };
  let recorder = await site.recorder('one', 0, timing);
  const plan = { recorders: [recorder.address], sessions: SESSIONS, moveTimeoutMs: 200 };
  const gateway = site.gateway({ ...plan, paceMs: stage.random() < 0.5 ? 0 : 1 });
  await somewhere(stage, gateway.reports);
  await recorder.kill();
  await within('every session is cut', 20_000, async () =>
    gateway.reports().every(({ lost }) => lost !== undefined) ? true : undefined,
  );
  recorder = await site.recorder('one', recorder.port, timing);
  if (stage.random() < 0.5) {
    await delay(stage.random() * 300);
    await recorder.kill();
    recorder = await site.recorder('one', recorder.port, timing);
  }
  const reports = await gateway.finish();
  expectConfirmed(reports);
  await expectAll(recorder, reports, ['interrupted']);
};

/**
 * The gateway and the only recorder are killed: at the same moment, or first the recorder and then the gateway. A
 * second gateway, which delivers the output of the first one, may be killed, too. After the recorder has restarted and
 * another gateway has delivered the remaining output, the recordings contain every byte that a user may have seen.
 */
const allGone: Scenario = async (stage) => {
  await using site = openSite(stage);
  const timing = { resumeGraceMs: stage.random() < 0.5 ? 50 : 60_000 };
  const one = await site.recorder('one', 0, timing);
  const journals = join(site.folder, 'late');
  const plan = { recorders: [one.address], journals, moveTimeoutMs: 200 };
  const gateway = site.gateway({ ...plan, sessions: SESSIONS, paceMs: stage.random() < 0.5 ? 0 : 1 });
  await somewhere(stage, gateway.reports);
  const atOnce = stage.random() < 0.6;
  if (atOnce) await Promise.all([one.kill(), gateway.kill()]);
  else {
    await one.kill();
    // kills the gateway either while all sessions look for a recorder, or after all sessions were interrupted
    if (stage.random() < 0.5) await delay(stage.random() * (plan.moveTimeoutMs / 2));
    else {
      await within('every session is cut', 20_000, async () =>
        gateway.reports().every(({ lost }) => lost !== undefined) ? true : undefined,
      );
    }
    await gateway.kill();
  }
  if (stage.random() < 0.5) {
    const early = site.gateway({ ...plan, sessions: [], paceMs: 0 });
    await delay(stage.random() * 800);
    if (stage.random() < 0.7) await early.kill();
  }
  const again = await site.recorder('one', one.port, timing);
  site.gateway({ ...plan, sessions: [], paceMs: 0 });
  // the gateway shows output only after it is on the gateway's disk or at the recorder, so all shown output must be
  // recorded
  const owed = gateway.reports().map((report) => {
    const { written, shown, acked, lost } = report;
    if (lost === undefined) return { ...report, acked: Math.max(shown, acked) };
    return { ...report, confirmed: true, written: written + CUT_END.length };
  });
  await within('nothing is left on disk', VISIBLE_MS, async () => {
    const left = readdirSync(journals, { recursive: true, encoding: 'utf8' });
    if (left.some((name) => name.endsWith('.journal'))) throw new Error(left.join(', '));
    return true;
  });
  // the final length of a killed gateway's session is unknown, so the recording stays open until a timeout
  await expectAll(again, owed, ['running', 'interrupted']);
};

/**
 * The first recorder is killed, and a second one is available. Sessions continue at the second recorder, and each
 * session becomes one recording.
 */
const recorderReplaced: Scenario = async (stage) => {
  await using site = openSite(stage);
  const one = await site.recorder('one');
  const two = await site.recorder('two');
  const gateway = site.gateway({ recorders: [one.address, two.address], sessions: SESSIONS, paceMs: 1 });
  await somewhere(stage, gateway.reports);
  await one.kill();
  const moved = Date.now();
  await somewhere(stage, gateway.reports);
  await delay(Math.max(0, 700 - (Date.now() - moved)));
  const reports = await gateway.finish();
  expectConfirmed(reports);
  for (const { session, pauseMs } of reports) {
    if (pauseMs > 2000) {
      throw new Error(
        `session ${session} waited ${Math.round(pauseMs)} ms; the load is ${loadavg().join(' ')}`,
      );
    }
  }
  await site.recorder('one', 0, { resumeGraceMs: 100 });
  await expectAll(two, reports, ['completed']);
};

/** A machine is lost with its disk: another recorder finishes the output that was copied to the bucket. */
const machineLost: Scenario = async (stage) => {
  if (stage.s3 === undefined) return;
  await using site = openSite(stage);
  const one = await site.recorder('one');
  const two = await site.recorder('two');
  const gateway = site.gateway({ recorders: [one.address], sessions: SESSIONS, paceMs: 5 });
  await somewhere(stage, gateway.reports);
  await delay(1000);
  const before = gateway.reports();
  // the recorder copies output to the bucket within one second; the requests take additional time
  await delay(4000);
  await Promise.all([one.kill(), gateway.kill()]);
  const written = gateway.reports();
  rmSync(join(site.folder, 'one'), { recursive: true });
  const reports = before.map((report) => {
    const last = written.find(({ session }) => session === report.session);
    return { ...report, written: last?.written ?? report.written };
  });
  await expectAll(two, reports, ['interrupted']);
};

/**
 * The bucket fails in every way while sessions run and end: nothing is lost, and everything is stored after the repair.
 */
const bucketFails: Scenario = async (stage) => {
  const { s3 } = stage;
  if (s3 === undefined) return;
  await using site = openSite(stage);
  const recorder = await site.recorder('one');
  const gateway = site.gateway({ recorders: [recorder.address], sessions: SESSIONS, paceMs: 1 });
  s3.shim.rate = 0.3 + stage.random() * 0.5;
  s3.shim.faults =
    stage.random() < 0.5 ? FAULTS : [FAULTS[Math.floor(stage.random() * FAULTS.length)] ?? 'error'];
  await somewhere(stage, gateway.reports);
  const reports = await gateway.finish();
  expectConfirmed(reports);
  await delay(stage.random() * 1000);
  s3.shim.rate = 0;
  await expectStored(recorder, reports);
};

/** Like `bucketFails`, but with large sessions: they are uploaded in several parts, and each part may fail. */
const bucketFailsForLarge: Scenario = async (stage) => {
  const { s3 } = stage;
  if (s3 === undefined) return;
  await using site = openSite(stage);
  const recorder = await site.recorder('one');
  const gateway = site.gateway({ recorders: [recorder.address], sessions: [1, 2], paceMs: 0 });
  await within('the sessions need several parts', VISIBLE_MS, async () => {
    const large = gateway.reports().filter(({ acked }) => acked > 2 * S3_PART_BYTES);
    return large.length === 2 ? true : undefined;
  });
  s3.shim.rate = 0.2 + stage.random() * 0.3;
  s3.shim.faults = FAULTS;
  const reports = await gateway.finish();
  expectConfirmed(reports);
  await delay(stage.random() * 3000);
  s3.shim.rate = 0;
  await expectStored(recorder, reports);
};

/** The bucket fails, and the recorder is killed while it stores sessions there. */
const killedWhileStoring: Scenario = async (stage) => {
  const { s3 } = stage;
  if (s3 === undefined) return;
  await using site = openSite(stage);
  const first = await site.recorder('one');
  const gateway = site.gateway({ recorders: [first.address], sessions: SESSIONS, paceMs: 1 });
  await somewhere(stage, gateway.reports);
  s3.shim.rate = 0.5;
  s3.shim.faults = FAULTS;
  const ending = gateway.finish();
  await delay(stage.random() * 400);
  await first.kill();
  const second = await site.recorder('one', first.port);
  s3.shim.rate = 0;
  const reports = await ending;
  expectConfirmed(reports);
  await expectAll(second, reports, ['completed']);
};

interface TestDisk {
  /** Folder on the disk. */
  readonly path: string;
  /** Environment variables of the programs that use the disk. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Removes the disk. */
  readonly remove: () => void;
}

/** A recorder on a test disk, and gateways. */
interface DiskStage<Disk> {
  readonly stage: Stage;
  readonly disk: Disk;
  startRecorder(
    plan?: Partial<RecorderPlan>,
    environment?: Readonly<Record<string, string>>,
  ): Promise<RecorderProcess>;
  startGateway(
    recorder: RecorderProcess,
    paceMs: number,
    sessions?: readonly number[],
  ): ReturnType<typeof startGateway>;
}

/** Runs a scenario on a separate disk. Only for stores in a directory. */
function onDisk<Disk extends TestDisk>(
  open: () => Disk,
  play: (stage: DiskStage<Disk>) => Promise<void>,
): Scenario {
  return async (stage) => {
    if (stage.s3 !== undefined) return;
    const disk = open();
    const running: { kill(): Promise<void> }[] = [];
    const started = <T extends { kill(): Promise<void> }>(child: T): T => {
      running.push(child);
      return child;
    };
    try {
      await play({
        stage,
        disk,
        async startRecorder(plan, environment) {
          const [directory, spoolDirectory] = [join(disk.path, 'store'), join(disk.path, 'spool')];
          const own = { port: 0, directory, spoolDirectory, timing: TIMING, ...plan };
          return started(await startRecorder(own, { ...disk.environment, ...environment }));
        },
        startGateway: ({ address }, paceMs, sessions = SESSIONS) =>
          started(startGateway({ recorders: [address], sessions, paceMs })),
      });
    } finally {
      for (const child of running) await child.kill();
      disk.remove();
    }
  };
}

/** @throws SkippedError if file systems cannot be mounted */
function smallDisk(options: string): TestDisk {
  const path = mountSmallDisk(options);
  if (path === undefined) throw new SkippedError('a small file system cannot be mounted here');
  return {
    path,
    remove() {
      execFileSync('umount', ['-l', path]);
      rmSync(path, { recursive: true, force: true });
    },
  };
}

/** @throws SkippedError without a C compiler */
function faultyDisk(): TestDisk & FaultyDisk {
  const folder = mkdtempSync(join(tmpdir(), 'tcfaulty-'));
  const path = join(folder, 'disk');
  const remove = (): void => rmSync(folder, { recursive: true, force: true });
  const disk = createFaultyDisk(folder, path);
  if (disk !== undefined) return { ...disk, path, remove };
  remove();
  throw new SkippedError('there is no C compiler to make a faulty disk with');
}

/** Checks that all sessions of a disconnected gateway are stored, and that a new session is accepted and complete. */
async function expectGoesOn(
  { startGateway: start }: Pick<DiskStage<TestDisk>, 'startGateway'>,
  recorder: RecorderProcess,
  reports: readonly SessionReport[],
  states: readonly string[],
): Promise<void> {
  await expectAll(recorder, reports, states);
  const later = start(recorder, 1, [7]);
  await within('a new session is accepted', 20_000, async () =>
    later.reports().some(({ acked }) => acked > 0) ? true : undefined,
  );
  const fresh = await later.finish();
  expectConfirmed(fresh);
  await expectAll(recorder, [...reports, ...fresh], states);
}

/**
 * The disk is full: sessions end with an error, and recordings keep all acknowledged output. When space is free again,
 * everything is stored and new sessions are accepted, with or without a restart.
 */
const diskFull = onDisk(
  () => smallDisk('size=12m'),
  async (play) => {
    const timing = { ...TIMING, resumeGraceMs: 100 };
    let recorder = await play.startRecorder({ timing });
    const gateway = play.startGateway(recorder, 0);
    await within('the disk is full', 30_000, async () =>
      gateway.reports().some(({ lost }) => lost !== undefined) ? true : undefined,
    );
    await delay(play.stage.random() * 300);
    await gateway.kill();
    const restarts = play.stage.random() < 0.5;
    if (restarts) await recorder.kill();
    execFileSync('mount', ['-o', 'remount,size=256m', play.disk.path]);
    if (restarts) recorder = await play.startRecorder({ timing });
    await expectGoesOn(play, recorder, gateway.reports(), ['interrupted', 'completed']);
  },
);

/**
 * The disk returns EIO for a while: sessions end with an error, and recordings keep all acknowledged output. Afterwards
 * everything is stored and new sessions are accepted, with or without a restart.
 */
const diskBroken = onDisk(faultyDisk, async (play) => {
  const { disk, stage } = play;
  const timing = { ...TIMING, resumeGraceMs: 100 };
  let recorder = await play.startRecorder({ timing });
  const gateway = play.startGateway(recorder, 0);
  await somewhere(stage, gateway.reports);
  disk.fail((['w', 's', 'all'] as const)[Math.floor(play.stage.random() * 3)] ?? 'all');
  await within('a session ends because of the disk', 30_000, async () => {
    const reasons = gateway.reports().flatMap(({ lost }) => lost ?? []);
    // the text that `errorText` returns for EIO
    if (reasons.some((reason) => reason.includes('the disk reported an error'))) return true;
    throw new Error(`ended: ${reasons.join(', ')}`);
  });
  await delay(play.stage.random() * 500);
  await gateway.kill();
  const restarts = play.stage.random() < 0.5;
  if (restarts) await recorder.kill();
  disk.heal();
  if (restarts) recorder = await play.startRecorder({ timing });
  await expectGoesOn(play, recorder, gateway.reports(), ['interrupted', 'completed']);
});

/**
 * The recorder's machine loses power, so only synced bytes of every file remain. The recordings contain all
 * acknowledged output, and the running gateway sends the rest.
 */
const powerCut = onDisk(faultyDisk, async (play) => {
  const { disk, stage } = play;
  let recorder = await play.startRecorder();
  const gateway = play.startGateway(recorder, 0);
  const cuts = 1 + Math.floor(play.stage.random() * 2);
  for (let count = 0; count < cuts; count += 1) {
    await somewhere(stage, gateway.reports);
    await recorder.kill();
    disk.cutPower();
    recorder = await play.startRecorder({ port: recorder.port });
  }
  await somewhere(stage, gateway.reports);
  const reports = await gateway.finish();
  expectConfirmed(reports);
  await expectAll(recorder, reports, ['completed']);
  // after a power failure, the recordings in the store must be complete as well
  await recorder.kill();
  disk.cutPower();
  await expectAll(await play.startRecorder(), reports, ['completed']);
});

/**
 * The disk has no free inodes: new sessions are refused, and running ones continue and are acknowledged. When inodes
 * are free again, everything is stored without a restart.
 */
const filesUsedUp = onDisk(
  () => smallDisk('size=256m,nr_inodes=400'),
  async (play) => {
    const recorder = await play.startRecorder({}, { FAULTS_MIN_FREE: '1' });
    const gateway = play.startGateway(recorder, 2);
    await somewhere(play.stage, gateway.reports);
    const filler = join(play.disk.path, 'filler');
    mkdirSync(filler);
    fillWithFiles(filler);
    const refused = await fetch(`${recorder.url}/record`, { method: 'POST', body: 'x' });
    if (refused.status !== 507) throw new Error(`a new session was answered ${refused.status}`);
    await somewhere(play.stage, gateway.reports);
    const reports = await gateway.finish();
    expectConfirmed(reports);
    rmSync(filler, { recursive: true });
    await expectGoesOn(play, recorder, reports, ['completed']);
  },
);

/**
 * A slow disk with 300 quiet sessions and one session with much output: no session is refused, acknowledgements
 * continue, memory stays constant, and nothing is lost.
 */
const slowDisk = onDisk(faultyDisk, async (play) => {
  const recorder = await play.startRecorder({}, { DISK_SLOW_MS: '4' });
  const crowd = Array.from({ length: 300 }, (_, index) => 1000 + index);
  const quiet = play.startGateway(recorder, 1000, crowd);
  const flood = play.startGateway(recorder, 0, [1]);
  const reports = (): readonly SessionReport[] => [...quiet.reports(), ...flood.reports()];
  await allBegun(VISIBLE_MS, crowd.length + 1, reports);
  const memory: number[] = [];
  for (let sample = 0; sample < 40; sample += 1) {
    await delay(200);
    memory.push(recorder.memoryMb());
  }
  const early = Math.max(...memory.slice(0, 20));
  const late = Math.max(...memory.slice(20));
  if (late > early * 1.2 + 20) throw new Error(`memory grew from ${early} to ${late} MB`);
  const ended = [...(await quiet.finish()), ...(await flood.finish())];
  expectConfirmed(ended);
  for (const { session, pauseMs } of ended) {
    if (pauseMs > MAX_ACK_GAP_MS) throw new Error(`session ${session} waited ${Math.round(pauseMs)} ms`);
  }
  await expectAll(recorder, ended, ['completed']);
});

/** Maximum time between acknowledgements. Gateways of the reference stop after 30 s without data. */
const MAX_ACK_GAP_MS = 20_000;

/** Creates empty files until the disk has no free inodes. */
function fillWithFiles(folder: string): void {
  try {
    for (let count = 0; count < 100_000; count += 1) writeFileSync(join(folder, String(count)), '');
  } catch {
    return;
  }
  throw new Error('there is no end of files');
}

/** Thrown if a scenario cannot run on this machine. */
export class SkippedError extends Error {
  override readonly name = 'SkippedError';
}

/** Mounts a file system in memory. @param options mount options @returns undefined if mounting fails */
function mountSmallDisk(options: string): string | undefined {
  const disk = mkdtempSync(join(tmpdir(), 'tcdisk-'));
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', options, 'tmpfs', disk], { stdio: 'ignore' });
    mkdirSync(join(disk, 'store'));
    return disk;
  } catch {
    rmSync(disk, { recursive: true, force: true });
    return undefined;
  }
}

/** Scenarios, by name. */
export const SCENARIOS = {
  recorderKilled,
  bothKilled,
  gatewayKilled,
  recorderGone,
  allGone,
  spoolTampered,
  recorderReplaced,
  machineLost,
  bucketFails,
  bucketFailsForLarge,
  killedWhileStoring,
  diskFull,
  diskBroken,
  powerCut,
  filesUsedUp,
  slowDisk,
} as const satisfies Record<string, Scenario>;

export type ScenarioName = keyof typeof SCENARIOS;

/**
 * Scenarios for each kind of store, in the order in which they run. After the last scenario, a run starts again with
 * the first.
 */
export const PLAYED_ON: Readonly<Record<'disk' | 's3', readonly ScenarioName[]>> = {
  disk: [
    'recorderKilled',
    'bothKilled',
    'gatewayKilled',
    'recorderGone',
    'allGone',
    'spoolTampered',
    'recorderReplaced',
    'spoolTampered',
    'diskFull',
    'diskBroken',
    'spoolTampered',
    'powerCut',
    'filesUsedUp',
    'spoolTampered',
    'recorderKilled',
    'bothKilled',
    'gatewayKilled',
    'spoolTampered',
    'powerCut',
    'spoolTampered',
    'recorderReplaced',
    'diskBroken',
    // one run of this scenario takes as long as ten other scenarios
    'slowDisk',
  ],
  s3: [
    'recorderKilled',
    'bothKilled',
    'gatewayKilled',
    'recorderGone',
    'allGone',
    'spoolTampered',
    'recorderReplaced',
    'spoolTampered',
    'machineLost',
    'spoolTampered',
    'bucketFails',
    'spoolTampered',
    'bucketFailsForLarge',
    'killedWhileStoring',
  ],
};
