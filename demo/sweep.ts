import { readdirSync, readFileSync } from 'node:fs';

/** Environment variable that marks processes of the demo. */
export const MARKER_VARIABLE = 'TAILCAST_DEMO_POD';

/**
 * Kills every process in whose environment the value of `MARKER_VARIABLE` starts with `marker`. Also stops background
 * jobs and daemons that have left their process group. Needs `/proc`; does nothing without it.
 */
export function sweepProcesses(marker: string): void {
  // A process may fork during the scan, so the scan is repeated until it finds no process, at most five times.
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
    return false; // The process exited, or belongs to another user.
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // The process has exited.
  }
}
