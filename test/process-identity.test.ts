import { describe, expect, it } from 'vitest';
import { describeProcess } from '../src/process-identity.ts';

/** An id that no process has: greater than the maximum of Linux. */
const NO_PID = 2 ** 22 + 1;

describe('a process', () => {
  it('is told from another one of the same id by when it started', async () => {
    const own = await describeProcess(process.pid);
    expect(own).toMatch(process.platform === 'linux' ? new RegExp(`^${process.pid} \\d+$`) : /^\d+ /);
    expect(await describeProcess(process.pid)).toBe(own);
  });

  it('that is not there is nothing', async () => {
    expect(await describeProcess(NO_PID)).toBe('');
  });
});
