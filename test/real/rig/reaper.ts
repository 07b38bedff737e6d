/**
 * Kills processes that a rig leaves behind. When run as a program, the reaper waits until its standard input closes,
 * which also happens if the rig's process is killed. Then the reaper kills the rig's process groups and removes the
 * rig's folder.
 *
 *   node reaper.ts <rig id> <folder> <pid file>
 */
import { readFileSync, readdirSync, rmSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { startTimeOf } from './lock-file.ts';

/** Environment variable that all programs of a rig inherit. */
export const MARKER = 'TAILCAST_RIG';

const SWEEPS = 20;
const SWEEP_PAUSE_MS = 50;

/**
 * Kills processes with the rig's marker until none is left. @returns the number of these processes before the first
 * kill
 */
export async function sweep(id: string): Promise<number> {
  const first = marked(id);
  for (let round = 0; round < SWEEPS; round += 1) {
    const left = round === 0 ? first : marked(id);
    if (left.length === 0) break;
    for (const pid of left) kill(pid);
    await delay(SWEEP_PAUSE_MS);
  }
  return first.length;
}

/** Returns the processes of this user that have the rig's marker. */
function marked(id: string): number[] {
  const wanted = `${MARKER}=${id}`;
  return readdirSync('/proc')
    .filter((entry) => /^\d+$/.test(entry) && Number(entry) !== process.pid)
    .filter((entry) => {
      try {
        return readFileSync(`/proc/${entry}/environ`, 'latin1').split('\0').includes(wanted);
      } catch {
        return false; // The process has exited, or belongs to another user.
      }
    })
    .map(Number);
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has already exited.
  }
}

async function reap(id: string, folder: string, pidFile: string): Promise<void> {
  for (const { pid, startTime } of leadersIn(pidFile)) {
    // Compare start times, because a process that does not belong to the rig may have this ID by now.
    if (startTimeOf(pid) === startTime) kill(-pid);
  }
  await sweep(id);
  rmSync(folder, { recursive: true, force: true });
}

function leadersIn(pidFile: string): { pid: number; startTime: number }[] {
  try {
    const lines = readFileSync(pidFile, 'utf8').split('\n').filter(Boolean);
    return lines.map((line) => {
      const [pid = 0, startTime = 0] = line.split(' ').map(Number);
      return { pid, startTime };
    });
  } catch {
    return []; // the rig has stopped normally and removed its folder
  }
}

if (import.meta.main) {
  const [id, folder, pidFile] = process.argv.slice(2);
  if (id === undefined || folder === undefined || pidFile === undefined) {
    process.exitCode = 2;
  } else {
    // Ctrl-C in a terminal must not stop the reaper together with the rig.
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, () => undefined);
    process.stdin.resume();
    process.stdin.once('close', () => void reap(id, folder, pidFile));
  }
}
