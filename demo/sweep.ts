import { readdirSync, readFileSync } from 'node:fs';

/** Name of the environment variable by which processes of the demo are found again. */
export const MARKER_VARIABLE = 'TAILCAST_DEMO_POD';

/**
 * Kills every process whose environment carries `MARKER_VARIABLE` with a value that starts with `marker`: background jobs
 * and daemons have left the process group that was killed already. Works where `/proc` exists; does nothing elsewhere.
 */
export function sweepProcesses(marker: string): void {
  // A process may fork while the list is read, so look again until nothing is found.
  for (let pass = 0; pass < 5; pass += 1) {
    const found = listPids().filter((pid) => carries(pid, `${MARKER_VARIABLE}=${marker}`));
    if (found.length === 0) return;
    for (const pid of found) kill(pid);
  }
}

function listPids(): number[] {
  try {
    return readdirSync('/proc')
      .map(Number)
      .filter((pid) => Number.isInteger(pid) && pid !== process.pid);
  } catch {
    return [];
  }
}

function carries(pid: number, entry: string): boolean {
  try {
    return readFileSync(`/proc/${String(pid)}/environ`, 'latin1')
      .split('\0')
      .some((line) => line.startsWith(entry));
  } catch {
    return false; // it ended, or it is somebody else's
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // it ended by itself
  }
}
