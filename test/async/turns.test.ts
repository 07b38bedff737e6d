import { describe, expect, it } from 'vitest';
import { FairQueue } from '../../src/async/fair-queue.ts';
import { createLimiter } from '../../src/async/limiter.ts';
import { createSequence, createSharedStep } from '../../src/async/sequence.ts';
import { settle } from '../operator/fake-clock.ts';

/** Work that runs until the test completes it. */
function work(): {
  readonly begun: string[];
  readonly of: (name: string) => () => Promise<string>;
  readonly end: (name: string) => void;
} {
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  return {
    begun,
    of: (name) => () => {
      begun.push(name);
      return new Promise((resolve) => ends.set(name, () => resolve(name)));
    },
    end: (name) => ends.get(name)?.(),
  };
}

describe('a sequence', () => {
  it('begins a step when the one before it has ended, and gives what it gives', async () => {
    const { begun, of, end } = work();
    const inTurn = createSequence();
    const [first, second] = [inTurn(of('a')), inTurn(of('b'))];
    expect(begun).toEqual([]);
    await settle();
    expect(begun).toEqual(['a']);
    end('a');
    expect(await first).toBe('a');
    await settle();
    expect(begun).toEqual(['a', 'b']);
    end('b');
    expect(await second).toBe('b');
  });

  it('goes on after a step that failed, of which its own caller hears', async () => {
    const inTurn = createSequence();
    const failed = inTurn(() => Promise.reject(new Error('broken')));
    const next = inTurn(() => 'next');
    await expect(failed).rejects.toThrow('broken');
    expect(await next).toBe('next');
  });
});

describe('a shared step', () => {
  it('is one run for all that wait, and another one for those that come while it runs', async () => {
    const { begun, of, end } = work();
    const inTurn = createSequence();
    const names = ['one', 'two'];
    const step = createSharedStep(inTurn, async () => {
      await of(names.shift() ?? 'three')();
    });
    const first = [step(), step()];
    expect(begun).toEqual([]);
    await settle();
    expect(begun).toEqual(['one']);
    const second = [step(), step()];
    await settle();
    expect(begun).toEqual(['one']);
    end('one');
    await Promise.all(first);
    await settle();
    expect(begun).toEqual(['one', 'two']);
    end('two');
    await Promise.all(second);
    expect(begun).toEqual(['one', 'two']);
  });

  it('fails for all of its callers, and runs again for the next', async () => {
    let fails = true;
    const step = createSharedStep(createSequence(), () =>
      fails ? Promise.reject(new Error('broken')) : Promise.resolve(),
    );
    expect((await Promise.allSettled([step(), step()])).map(({ status }) => status)).toEqual([
      'rejected',
      'rejected',
    ]);
    fails = false;
    await step();
  });
});

describe('a limiter', () => {
  it('runs so many at a time, the others in the order in which they came', async () => {
    const { begun, of, end } = work();
    const limiter = createLimiter({ maxActive: 2 });
    const all = ['a', 'b', 'c', 'd'].map((name) => limiter.run(of(name)));
    await settle();
    expect(begun).toEqual(['a', 'b']);
    expect([limiter.active, limiter.waiting]).toEqual([2, 2]);
    end('b');
    await settle();
    expect(begun).toEqual(['a', 'b', 'c']);
    end('a');
    await settle();
    end('c');
    end('d');
    expect(await Promise.all(all)).toEqual(['a', 'b', 'c', 'd']);
    expect([limiter.active, limiter.waiting]).toEqual([0, 0]);
  });

  it('gives the place of work that failed to the next', async () => {
    const limiter = createLimiter({ maxActive: 1 });
    await expect(limiter.run(() => Promise.reject(new Error('broken')))).rejects.toThrow('broken');
    expect(await limiter.run(async () => 'next')).toBe('next');
  });

  it('refuses whoever finds the line full', async () => {
    const { of, end } = work();
    const limiter = createLimiter({ maxActive: 1, maxWaiting: 1, full: () => new Error('full') });
    const all = [limiter.run(of('a')), limiter.run(of('b'))];
    await expect(limiter.run(of('c'))).rejects.toThrow('full');
    end('a');
    await settle();
    end('b');
    expect(await Promise.all(all)).toEqual(['a', 'b']);
  });

  it('lets whoever waits leave the line', async () => {
    const { begun, of, end } = work();
    const limiter = createLimiter({ maxActive: 1 });
    const abort = new AbortController();
    const first = limiter.run(of('a'));
    const second = limiter.run(of('b'), abort.signal);
    const third = limiter.run(of('c'));
    abort.abort(new Error('gone'));
    await expect(second).rejects.toThrow('gone');
    end('a');
    await settle();
    expect(begun).toEqual(['a', 'c']);
    end('c');
    expect(await Promise.all([first, third])).toEqual(['a', 'c']);
    await expect(limiter.run(of('d'), abort.signal)).rejects.toThrow('gone');
  });

  it('lets owners take turns, and gives one owner no more than its part', async () => {
    const { begun, of, end } = work();
    const limiter = createLimiter({ maxActive: 2, maxActivePerOwner: 1 });
    const names = ['a1', 'a2', 'a3', 'b1', 'b2', 'c1'];
    const all = names.map((name) => limiter.run(of(name), undefined, name[0]));
    await settle();
    expect(begun).toEqual(['a1', 'b1']);
    for (const [name, next] of [
      ['a1', 'c1'],
      ['c1', 'a2'],
      ['b1', 'b2'],
      ['a2', 'a3'],
    ] as const) {
      end(name);
      await settle();
      expect(begun.at(-1)).toBe(next);
    }
    end('a3');
    end('b2');
    expect(await Promise.all(all)).toEqual(names);
  });

  it('shares a full queue among owners', async () => {
    const { of, end } = work();
    const limiter = createLimiter({
      maxActive: 1,
      maxWaiting: 4,
      full: () => new Error('full'),
    });
    const names = ['a1', 'a2', 'a3', 'a4', 'a5'];
    const all = names.map((name) => limiter.run(of(name), undefined, 'a'));
    await expect(limiter.run(of('a6'), undefined, 'a')).rejects.toThrow('full');
    expect([limiter.isFull('a'), limiter.isFull('b')]).toEqual([true, false]);
    for (const name of ['b1', 'b2']) all.push(limiter.run(of(name), undefined, 'b'));
    await expect(limiter.run(of('b3'), undefined, 'b')).rejects.toThrow('full');
    for (const name of ['a1', 'b1', 'a2', 'b2', 'a3', 'a4', 'a5']) {
      await settle();
      end(name);
    }
    expect(await Promise.all(all)).toEqual([...names, 'b1', 'b2']);
  });
});

describe('a fair queue', () => {
  it('takes from the owner whose items have cost least, and an owner that comes later owes nothing', () => {
    const queue = new FairQueue<string>();
    for (const item of ['a1', 'a2', 'a3', 'b1', 'b2']) queue.add(item, item[0] ?? '');
    queue.add('a1', 'b');
    expect([queue.size, queue.owners, queue.sizeOf('a')]).toEqual([5, 2, 3]);
    expect(queue.take()).toBe('a1');
    queue.charge('a', 100);
    expect([queue.take(), queue.take()]).toEqual(['b1', 'b2']);
    queue.charge('b', 10);
    expect(queue.take((owner) => owner === 'b')).toBeUndefined();
    expect(queue.take()).toBe('a2');
    // the new owner `c` starts with the same costs as `a`, so both are served
    queue.add('c1', 'c');
    queue.add('c2', 'c');
    queue.charge('c', 1);
    expect([queue.take(), queue.take(), queue.take(), queue.take()]).toEqual(['a3', 'c1', 'c2', undefined]);
    expect([...queue]).toEqual([]);
  });
});
