import { describe, expect, it } from 'vitest';
import {
  COMMIT_BYTES,
  createGroupCommit,
  type Committable,
} from '../../../src/tsrecorder/intake/group-commit.ts';

/**
 * Creates a member of a group commit that logs the start of each of its commits. The test ends the commit with
 * `release`.
 */
function createMember(log: string[], name: string): Committable & { release(): void } {
  let release = (): void => undefined;
  return {
    commit() {
      log.push(name);
      return new Promise((resolve) => {
        release = resolve;
      });
    },
    release: () => release(),
  };
}

const turn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 5));

function create(now: () => number, windowMs = 1000): ReturnType<typeof createGroupCommit> {
  return createGroupCommit({ windowMs, now });
}

describe('a group commit', () => {
  it('commits the first bytes immediately, and the next ones a window later', async () => {
    const log: string[] = [];
    let now = 5000;
    const group = create(() => now, 400);
    const member = createMember(log, 'a');
    group.schedule(member, 1, false);
    await turn();
    expect(log).toEqual(['a']);
    group.schedule(member, 1, false);
    member.release();
    await turn();
    expect(log).toEqual(['a']);
    now += 401;
    const flushed = group.flush();
    await turn();
    member.release();
    await flushed;
    expect(log).toEqual(['a', 'a']);
  });

  it.each([
    ['a quick disk', 100, 2000],
    ['a slower disk', 1000, 4000],
    ['a slow disk', 6000, 10_000],
  ])('waits as long as the disk needs, up to the window: %s', async (_name, takesMs, pauseMs) => {
    const log: string[] = [];
    let now = 5000;
    const group = create(() => now, 10_000);
    const member = createMember(log, 'a');
    group.schedule(member, 1, false);
    await turn();
    now += takesMs;
    member.release();
    await turn();
    // requests another commit one second before the delay ends
    now = 4000 + pauseMs;
    group.schedule(member, 1, false);
    await turn();
    expect(log).toEqual(['a']);
    now = 5000 + pauseMs;
    group.schedule(member, 1, false);
    await turn();
    expect(log).toEqual(['a', 'a']);
    member.release();
  });

  it.each([
    ['many bytes', COMMIT_BYTES, false],
    ['somebody who waits', 1, true],
  ])('does not wait for the window with %s', async (_name, bytes, urgent) => {
    const log: string[] = [];
    const group = create(() => 5000);
    const member = createMember(log, 'a');
    group.schedule(member, 1, false);
    await turn();
    member.release();
    await turn();
    group.schedule(member, COMMIT_BYTES - 1, false);
    await turn();
    expect(log).toEqual(['a']);
    group.schedule(member, bytes, urgent);
    await turn();
    expect(log).toEqual(['a', 'a']);
    member.release();
  });

  it('commits several members concurrently, three at a time, and each once', async () => {
    const log: string[] = [];
    const group = create(() => 5000);
    const members = ['a', 'b', 'c', 'd'].map((name) => createMember(log, name));
    for (const member of members) {
      group.schedule(member, 1, false);
      group.schedule(member, 1, false);
    }
    await turn();
    expect(log).toEqual(['a', 'b', 'c']);
    members[0]!.release();
    await turn();
    expect(log).toEqual(['a', 'b', 'c', 'd']);
    expect(group.waitingBytes).toBe(0);
    for (const member of members.slice(1)) member.release();
    await group.flush();
    expect(log).toHaveLength(4);
  });
});
