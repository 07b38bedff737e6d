/**
 * Compares two recorders on one machine and directory with one recorder, in the same rounds. 64 sessions flood them,
 * then 300 are quiet.
 *
 *   node bench/two-recorders.ts [--quick]
 *
 * Each recorder has its own spool and address, and sessions alternate between them.
 */
import { join } from 'node:path';
import { startRole, type RoleProcess } from '../test/support/role-process.ts';
import {
  FLOOD_SESSIONS,
  IDLE_SESSIONS,
  measureFlood,
  measureIdle,
  median,
  type IdleSample,
  type RecorderPeer,
  type RecorderSample,
} from './recorder.ts';

const quick = process.argv.includes('--quick');
const ROUNDS = quick ? 1 : 5;
const FLOOD_SECONDS = quick ? 5 : 10;
const IDLE_SECONDS = quick ? 5 : 20;

const SET_UPS: Readonly<Record<string, (folder: string) => Promise<RecorderPeer>>> = {
  'one recorder': async (folder) => peerOf([await start(folder, 'one')]),
  'two recorders': async (folder) =>
    peerOf(await Promise.all(['one', 'two'].map((spool) => start(folder, spool)))),
};

function start(folder: string, spool: string): Promise<RoleProcess> {
  const places = ['--store', join(folder, 'store'), '--spool', join(folder, spool)];
  const listen = ['--listen', '127.0.0.1:0', '--identity', 'loopback', '--log-level', 'info'];
  return startRole(['recorder', ...places, ...listen]);
}

function peerOf(roles: readonly RoleProcess[]): RecorderPeer {
  return {
    urls: roles.map(({ port }) => `http://127.0.0.1:${port}`),
    pids: roles.map(({ pid }) => pid),
    async [Symbol.asyncDispose]() {
      for (const role of roles) await role.stop();
    },
  };
}

const floods = new Map<string, RecorderSample[]>();
const idles = new Map<string, IdleSample[]>();
for (let round = 0; round < ROUNDS; round += 1) {
  for (const [name, open] of Object.entries(SET_UPS)) {
    floods.set(name, [...(floods.get(name) ?? []), await measureFlood(FLOOD_SECONDS, open)]);
    idles.set(name, [...(idles.get(name) ?? []), await measureIdle(IDLE_SECONDS, open)]);
  }
}
console.log(
  `${FLOOD_SESSIONS} flooding sessions, then ${IDLE_SESSIONS} quiet ones; ${ROUNDS} round(s), medians`,
);
for (const name of Object.keys(SET_UPS)) {
  const flood = (pick: (sample: RecorderSample) => number): string =>
    median((floods.get(name) ?? []).map(pick)).toFixed(1);
  const idle = (pick: (sample: IdleSample) => number): string =>
    median((idles.get(name) ?? []).map(pick)).toFixed(1);
  console.log(`${name}
  durable ${flood(({ durableMbps }) => durableMbps)} MB/s, stored ${flood(({ storedMbps }) => storedMbps)} MB/s (dd ${flood(({ ddMbps }) => ddMbps)})
  CPU ${flood(({ cpuMsPerMb }) => cpuMsPerMb)} ms/MB, memory ${flood(({ peakRssMb }) => peakRssMb)} MB at most
  quiet: ack p50 ${idle(({ p50Ms }) => p50Ms)} ms, p99 ${idle(({ p99Ms }) => p99Ms)} ms, CPU ${idle(({ cpuPercent }) => cpuPercent)} % of a core, ${idle(({ peakRssMb }) => peakRssMb)} MB`);
}
