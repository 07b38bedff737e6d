/** Resource usage of a process, from `/proc` of Linux. */
import { existsSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { constants } from 'node:os';

export interface Usage {
  /** Sum of user and system CPU time of all threads. */
  readonly cpuSeconds: number;
  readonly rssBytes: number;
  /** Peak of the resident memory since `resetPeak`. */
  readonly peakRssBytes: number;
}

/** Linux reports CPU time in hundredths of a second in `/proc` (`getconf CLK_TCK`). */
const TICKS_PER_SECOND = 100;

/**
 * Returns the total resource usage of these processes. Returns undefined if the list is empty, or if the OS has no
 * `/proc`.
 */
export function usageOf(pids: readonly number[]): Usage | undefined {
  const each = pids.flatMap((pid) => {
    const one = usageOfOne(pid);
    return one === undefined ? [] : [one];
  });
  if (each.length === 0) return undefined;
  const sum = (pick: (usage: Usage) => number): number =>
    each.reduce((total, usage) => total + pick(usage), 0);
  return {
    cpuSeconds: sum((usage) => usage.cpuSeconds),
    rssBytes: sum((usage) => usage.rssBytes),
    peakRssBytes: sum((usage) => usage.peakRssBytes),
  };
}

function usageOfOne(pid: number): Usage | undefined {
  if (!existsSync(`/proc/${pid}/stat`)) return undefined;
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const status = readFileSync(`/proc/${pid}/status`, 'utf8');
  const kilobytes = (name: string): number =>
    Number(new RegExp(`^${name}:\\s+(\\d+) kB`, 'm').exec(status)?.[1] ?? 0);
  return {
    cpuSeconds: (Number(fields[11]) + Number(fields[12])) / TICKS_PER_SECOND,
    rssBytes: kilobytes('VmRSS') * 1024,
    peakRssBytes: kilobytes('VmHWM') * 1024,
  };
}

/**
 * Returns the number of bytes that a process has read from the disk, and the number of its reads. Neither number
 * depends on the load of the machine.
 */
export function readsOf(pid: number): { readonly diskBytes: number; readonly reads: number } {
  const text = readFileSync(`/proc/${pid}/io`, 'utf8');
  const count = (name: string): number => Number(new RegExp(`^${name}: (\\d+)`, 'm').exec(text)?.[1] ?? 0);
  return { diskBytes: count('read_bytes'), reads: count('syscr') };
}

/** Resets the peak of the resident memory (proc(5), clear_refs). */
export function resetPeak(pids: readonly number[]): void {
  for (const pid of pids) {
    try {
      writeFileSync(`/proc/${pid}/clear_refs`, '5');
    } catch {
      // The write fails on another OS or for a process of another user. In that case the peak covers the complete run.
    }
  }
}

/** Returns the IDs of a process and its descendants. */
export function familyOf(pid: number): readonly number[] {
  const children = new Map<number, number[]>();
  for (const name of readdirSync('/proc').filter((entry) => /^\d+$/.test(entry))) {
    try {
      const stat = readFileSync(`/proc/${name}/stat`, 'utf8');
      const parent = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[1]);
      children.set(parent, [...(children.get(parent) ?? []), Number(name)]);
    } catch {
      // the process has exited
    }
  }
  const family = [pid];
  for (const member of family) family.push(...(children.get(member) ?? []));
  return family;
}

/**
 * Returns true if the process has a handler for SIGUSR2 (proc(5), SigCgt). Returns false if the process has no
 * handler, or has exited.
 */
export function handlesUsr2(pid: number): boolean {
  try {
    const caught = /^SigCgt:\s+(?<mask>[0-9a-f]+)$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
    return (
      ((BigInt(`0x${caught?.groups?.['mask'] ?? '0'}`) >> BigInt(constants.signals.SIGUSR2 - 1)) & 1n) === 1n
    );
  } catch {
    return false;
  }
}
