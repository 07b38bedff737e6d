/**
 * Cost of a search index for recording. Compares a recorder without an index, with an idle index, and with an index
 * that reads an archive, in the same rounds. 300 quiet sessions wait for their acknowledgements, then 64 flood.
 *
 *   node bench/search-beside.ts [--quick] [--rounds=5]
 *
 * CPU and memory are of the recorder's process; the low-priority process of the index is listed separately. The archive
 * is generated (`search-archive.ts`) and linked into the store of each round. Exits with 1 if the index finishes the
 * archive during a round, or if a goal is missed.
 */
import { linkSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { recordingKey } from '../src/tsrecorder/store/key.ts';
import { startRole } from '../test/support/role-process.ts';
import { describeMachine } from './harness/machine.ts';
import { compareRounds, spreadOf } from './harness/statistics.ts';
import { familyOf, usageOf } from './harness/usage.ts';
import {
  FLOOD_SESSIONS,
  IDLE_SESSIONS,
  measureFlood,
  measureIdle,
  type IdleSample,
  type RecorderPeer,
  type RecorderSample,
} from './recorder.ts';
import { SearchArchive } from './search-archive.ts';

const { values } = parseArgs({
  options: { quick: { type: 'boolean', default: false }, rounds: { type: 'string' } },
});
const ROUNDS = Number(values.rounds ?? (values.quick ? 2 : 5));
const FLOOD_SECONDS = values.quick ? 5 : 10;
const IDLE_SECONDS = values.quick ? 5 : 20;
/** More than the index can read in a round. */
const ARCHIVE = {
  sessions: 50_000,
  textBytes: 1e9,
  fromMs: Date.parse('2026-09-01T00:00:00Z'),
  toMs: Date.parse('2026-11-20T00:00:00Z'),
};
const SEED = 20_261_126;
/** Limits for the upper end of the 95 % interval of the ratio to a recorder without an index. */
const GOALS = { ack: 1.25, cpu: 1.1 };

type Variant = 'no index' | 'index that follows' | 'index that catches up';
const VARIANTS: readonly Variant[] = ['no index', 'index that follows', 'index that catches up'];

const scratch = mkdtempSync(join(tmpdir(), 'tailcast-beside-'));
const indexCpu = new Map<Variant, number[]>();
let wasCaughtUp = false;

function makeArchive(): string {
  const folder = join(scratch, 'archive');
  const archive = new SearchArchive(ARCHIVE, SEED);
  for (let number = 0; number < ARCHIVE.sessions; number += 1) {
    const file = join(folder, recordingKey(archive.key(number)));
    mkdirSync(join(file, '..'), { recursive: true });
    writeFileSync(file, archive.cast(number));
  }
  return folder;
}

/** The same files once more. */
function link(from: string, to: string): void {
  for (const node of readdirSync(from)) {
    mkdirSync(join(to, node), { recursive: true });
    for (const name of readdirSync(join(from, node))) linkSync(join(from, node, name), join(to, node, name));
  }
}

function opener(variant: Variant, archive: string): (folder: string) => Promise<RecorderPeer> {
  return async () => {
    // on the disk of the archive, which links need
    const folder = mkdtempSync(join(scratch, 'round-'));
    const store = join(folder, 'store');
    mkdirSync(store);
    if (variant === 'index that catches up') link(archive, store);
    const places = [
      '--store',
      store,
      '--spool',
      join(folder, 'spool'),
      '--search',
      String(variant !== 'no index'),
    ];
    const listen = ['--listen', '127.0.0.1:0', '--identity', 'loopback', '--log-level', 'info'];
    const role = await startRole(['recorder', ...places, ...listen]);
    const others = (): readonly number[] => familyOf(role.pid).filter((pid) => pid !== role.pid);
    const before = usageOf(others())?.cpuSeconds ?? 0;
    const from = performance.now();
    return {
      urls: [`http://127.0.0.1:${role.port}`],
      pids: [role.pid],
      async [Symbol.asyncDispose]() {
        const cpu = (usageOf(others())?.cpuSeconds ?? 0) - before;
        indexCpu.set(variant, [
          ...(indexCpu.get(variant) ?? []),
          (100_000 * cpu) / (performance.now() - from),
        ]);
        const backlog = await role.metric('tailcast_search_backlog_recordings');
        if (variant === 'index that catches up' && backlog === 0) wasCaughtUp = true;
        await role.stop();
        rmSync(folder, { recursive: true });
      },
    };
  };
}

const idles = new Map<Variant, IdleSample[]>();
const floods = new Map<Variant, RecorderSample[]>();

function row<Sample>(
  title: string,
  samples: ReadonlyMap<Variant, readonly Sample[]>,
  pick: (sample: Sample) => number,
  bound?: number,
): boolean {
  const of = (variant: Variant): readonly number[] => (samples.get(variant) ?? []).map(pick);
  let met = true;
  let isUncertain = false;
  const cells = VARIANTS.map((variant) => {
    const text = (spreadOf(of(variant))?.median ?? Number.NaN).toFixed(2).padStart(8);
    const comparison = variant === 'no index' ? undefined : compareRounds(of(variant), of('no index'));
    if (comparison === undefined) return text.padEnd(30);
    const { ratio, low, high } = comparison;
    if (bound !== undefined && low > bound) met = false;
    if (bound !== undefined && low <= bound && high > bound) isUncertain = true;
    return `${text} ${ratio.toFixed(2)}x [${low.toFixed(2)}–${high.toFixed(2)}]`.padEnd(30);
  });
  const word = met ? (isUncertain ? 'cannot tell' : 'met') : 'MISSED';
  const verdict = bound === undefined ? '' : `${word} (at most ${bound}x)`;
  console.log(`${title.padEnd(36)}${cells.join('')}${verdict}`);
  return met;
}

try {
  for (const line of describeMachine().slice(0, 3)) console.log(line);
  const archive = makeArchive();
  for (let round = 0; round < ROUNDS; round += 1) {
    for (const variant of VARIANTS) {
      const open = opener(variant, archive);
      idles.set(variant, [...(idles.get(variant) ?? []), await measureIdle(IDLE_SECONDS, open)]);
      floods.set(variant, [...(floods.get(variant) ?? []), await measureFlood(FLOOD_SECONDS, open)]);
      console.log(`round ${round + 1} of ${ROUNDS}: ${variant}`);
    }
  }
  console.log(`\n${''.padEnd(36)}${VARIANTS.map((variant) => variant.padEnd(30)).join('')}`);
  const met = [
    row(`${IDLE_SESSIONS} quiet: ack p50, ms`, idles, ({ p50Ms }) => p50Ms, GOALS.ack),
    row(`${IDLE_SESSIONS} quiet: ack p99, ms`, idles, ({ p99Ms }) => p99Ms, GOALS.ack),
    row(`${IDLE_SESSIONS} quiet: CPU, % of a core`, idles, ({ cpuPercent }) => cpuPercent),
    row(`${FLOOD_SESSIONS} floods: CPU, ms/MB`, floods, ({ cpuMsPerMb }) => cpuMsPerMb, GOALS.cpu),
    row(`${FLOOD_SESSIONS} floods: durable, MB/s`, floods, ({ durableMbps }) => durableMbps),
    row(`${FLOOD_SESSIONS} floods: memory, MB`, floods, ({ peakRssMb }) => peakRssMb),
    row('processes of the index, % of a core', indexCpu, (percent) => percent),
  ];
  if (wasCaughtUp)
    console.log('MISSED: all of the archive was in the index before a round was over: it has to be larger');
  process.exitCode = met.every(Boolean) && !wasCaughtUp ? 0 : 1;
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
