/**
 * Gateway and recorder as processes in front of a real API server, with one gateway per path, and the additional load.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { mkdir, readFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import type { Recording } from '../../../src/wire/recorder-api/recording.ts';
import { createFaultyDisk } from '../../faults/disk.ts';
import { startRole, type RoleProcess } from '../../support/role-process.ts';
import { createPod } from '../cases/case.ts';
import { startKubernetes } from '../rig/kubernetes.ts';
import type { Rig } from '../rig/rig.ts';
import type { Condition, Way } from './cells.ts';

export const POD = 'load';
const LOOPS_PER_PROCESSOR = 2;
/** Time after which a load loop exits. A loop exits earlier if its parent process exits. */
const LOOP_MS = 3_600_000;
const SLOW_SYNC_MS = '40';
const SMALL_BUFFER = ['--output-buffer-memory', '1MiB', '--output-buffer-disk', '0'];

export interface Recorder {
  readonly process: RoleProcess;
  /** Returns the recording of the session whose command contains this token. */
  find(token: string): Promise<Recording | undefined>;
  /** Deletes the stored casts, because those of an overnight run would fill the disk. */
  forget(): void;
}

export interface LoadSite {
  /** Returns the kubeconfig of a path, and its recorder if the path is recorded. */
  way(
    way: Way,
    condition: Condition,
  ): Promise<{ readonly kubeconfig: string; readonly recorder: Recorder | undefined }>;
  /** Starts the additional load for the next sessions, and stops the load of the previous ones. */
  enter(condition: Condition): Promise<void>;
}

/** Starts cluster, gateways and recorder. Cluster, gateways and recorder stop with the rig. */
export async function startLoadSite(rig: Rig): Promise<LoadSite> {
  const cluster = await startKubernetes(rig, { node: { webSockets: true } });
  await createPod(cluster, POD, { command: ['sleep', 'infinity'] });
  const upstream = cluster.kubeconfig('load-upstream', { token: cluster.tokens.impersonator });
  const direct = cluster.kubeconfig('load-direct', { token: cluster.tokens.admin });
  const recorders = new Map<string, Promise<Recorder>>();
  const gateways = new Map<string, Promise<string>>();
  let loops: readonly ChildProcess[] = [];
  let now: Condition = 'idle';

  async function recorder(disk: 'disk' | 'slow-disk'): Promise<Recorder> {
    const folder = join(rig.folder, `recorder-${disk}`);
    const below = join(folder, 'below');
    await mkdir(below, { recursive: true });
    const slow = disk === 'slow-disk' ? createFaultyDisk(folder, below) : undefined;
    if (disk === 'slow-disk' && slow === undefined)
      throw new Error('there is no C compiler to make a slow disk with');
    const store = join(below, 'store');
    const flags = [
      '--store',
      store,
      '--spool',
      join(below, 'spool'),
      '--identity',
      'loopback',
      '--viewers',
      '*',
    ];
    const process = await startRole(
      ['recorder', ...flags, '--listen', '127.0.0.1:0', '--drain-seconds', '1'],
      slow === undefined ? {} : { ...slow.environment, DISK_SLOW_MS: SLOW_SYNC_MS },
    );
    rig.onStop(async () => {
      process.signal('SIGCONT');
      process.signal('SIGKILL');
      await process.stop();
    });
    return {
      process,
      async find(token) {
        const response = await fetch(`http://127.0.0.1:${process.port}/api/v1/recordings?limit=200`);
        const { recordings } = (await response.json()) as { readonly recordings: readonly Recording[] };
        return recordings.find(({ command }) => command?.includes(token) === true);
      },
      forget() {
        for (const name of readdirSync(store, { recursive: true, encoding: 'utf8' })) {
          if (name.endsWith('.cast')) rmSync(join(store, name), { force: true });
        }
      },
    };
  }

  async function gateway(
    way: Exclude<Way, 'direct'>,
    to: Recorder | undefined,
    condition: Condition,
    name: string,
  ): Promise<string> {
    const rule = {
      impersonate: { groups: ['system:masters'] },
      ...(to === undefined ? {} : { recorderAddrs: [`127.0.0.1:${to.process.port}`], enforceRecorder: true }),
    };
    const identity = join(rig.folder, `identity-${name}.json`);
    const capabilities = { 'tailscale.com/cap/kubernetes': [rule] };
    const node = { nodeId: 'nLOAD', nodeName: 'load.test', login: 'rig-admin' };
    writeFileSync(identity, JSON.stringify({ ...node, capabilities }));
    const state = join(rig.folder, `gateway-${name}`);
    const flags = ['--kubeconfig', upstream, '--identity', 'static', '--static-identity', identity];
    const more = ['--listen', '127.0.0.1:0', '--state-directory', state];
    const window = way === 'window-0' ? ['--recorder-window', '0'] : [];
    const upstreamKind = way === 'same-upstream' ? ['--exec-upstream', 'same'] : [];
    const buffer = condition === 'beyond' ? SMALL_BUFFER : [];
    const process = await startRole([
      'gateway',
      ...flags,
      ...more,
      ...window,
      ...upstreamKind,
      ...buffer,
      '--access-log',
      'false',
    ]);
    rig.onStop(async () => {
      process.signal('SIGKILL');
      await process.stop();
    });
    const ca = await readFile(join(state, 'ca', 'ca.crt'), 'utf8');
    return cluster.kubeconfig(`load-${name}`, {
      server: `https://127.0.0.1:${process.port}`,
      ca,
      token: 'unused',
    });
  }

  return {
    async way(way, condition) {
      if (way === 'direct') return { kubeconfig: direct, recorder: undefined };
      const disk = condition === 'slow-disk' ? 'slow-disk' : 'disk';
      const to = way === 'unrecorded' ? undefined : await once(recorders, disk, () => recorder(disk));
      const name = `${way}-${condition === 'beyond' ? condition : disk}`;
      return {
        kubeconfig: await once(gateways, name, () => gateway(way, to, condition, name)),
        recorder: to,
      };
    },
    async enter(condition) {
      if (condition === now) return;
      now = condition;
      for (const loop of loops) loop.kill('SIGKILL');
      loops = [];
      if (condition !== 'busy') return;
      const count = LOOPS_PER_PROCESSOR * availableParallelism();
      loops = Array.from({ length: count }, () => startLoop());
      rig.onStop(() => loops.forEach((loop) => loop.kill('SIGKILL')));
    },
  };
}

function startLoop(): ChildProcess {
  const script = `const end = Date.now() + ${LOOP_MS}; const parent = process.ppid;
    for (let i = 0; ; i += 1) if (i % 1e6 === 0 && (Date.now() > end || process.ppid !== parent)) break;`;
  return spawn(process.execPath, ['-e', script], { stdio: 'ignore' });
}

function once<T>(known: Map<string, Promise<T>>, name: string, make: () => Promise<T>): Promise<T> {
  const found = known.get(name) ?? make();
  known.set(name, found);
  return found;
}
