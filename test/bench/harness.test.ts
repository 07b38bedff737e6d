import { describe, expect, it } from 'vitest';
import { REQUESTS } from '../../bench/harness/case.ts';
import { GOALS, judge, type Verdict } from '../../bench/harness/goals.ts';
import { markdown } from '../../bench/harness/report.ts';
import type { Row, RunResults } from '../../bench/harness/results.ts';
import { spreadOf } from '../../bench/harness/statistics.ts';
import type { PeerName } from '../../bench/peers/peer.ts';
import { BLOCK_BYTES, ContentCheck, createBlock } from '../../bench/programs/content.ts';

const one = (value: number): { median: number; lowest: number; highest: number } => ({
  median: value,
  lowest: value,
  highest: value,
});

function row(peer: PeerName, rate: number, cpu: number): Row {
  return { peer, rate: one(rate), cpu: one(cpu), loadCpu: one(0.5) };
}

function results(rows: readonly Row[]): RunResults {
  return {
    startedAt: '2026-11-21T12:00:00.000Z',
    quick: false,
    machine: ['2 x processor'],
    versions: { node: 'v26' },
    missing: { reference: 'not here' },
    facts: [],
    cases: [{ name: 'get-32', title: 'GET', unit: REQUESTS, rounds: 5, constantLoad: false, rows }],
  };
}

function verdict(start: string, run: RunResults): Verdict | undefined {
  const goal = GOALS.find(({ text }) => text.startsWith(start));
  if (goal === undefined) throw new Error(`no goal ${start}`);
  return judge(goal, run);
}

describe('the spread of rounds', () => {
  it('has the middle of an odd number of rounds, and the mean of the two middle ones of an even number', () => {
    expect(spreadOf([3, 1, 2])).toEqual({ median: 2, lowest: 1, highest: 3 });
    expect(spreadOf([4, 1, 2, 3])).toEqual({ median: 2.5, lowest: 1, highest: 4 });
  });

  it('leaves out what was not measured', () => {
    expect(spreadOf([undefined, 5, Number.NaN])).toEqual(one(5));
    expect(spreadOf([undefined])).toBeUndefined();
  });
});

describe('the content of a benchmark', () => {
  it('is the same whenever it is made, and one block long', () => {
    for (const content of ['json', 'ascii', 'utf8', 'binary'] as const) {
      const block = createBlock(content);
      expect(block.length).toBe(BLOCK_BYTES);
      expect(block.equals(createBlock(content))).toBe(true);
    }
  });

  it('is complete only when every byte came, in any pieces', () => {
    const block = Buffer.from('0123456789');
    const check = new ContentCheck(block, 25);
    check.push(Buffer.from('0123'));
    check.push(Buffer.from('x456789012345678x'), 1, 16);
    expect(check.complete).toBe(false);
    check.push(Buffer.from('901234'));
    expect(check.complete).toBe(true);
  });

  it('refuses a wrong byte and a byte too many', () => {
    const check = new ContentCheck(Buffer.from('0123456789'), 12);
    expect(() => check.push(Buffer.from('0124'))).toThrow(/wrong byte/);
    const whole = new ContentCheck(Buffer.from('0123456789'), 12);
    whole.push(Buffer.from('012345678901'));
    expect(() => whole.push(Buffer.from('2'))).toThrow(/more than 12/);
  });
});

describe('the goals', () => {
  it('are met only when all their bounds are', () => {
    const goal = 'small GET, 32 connections: ≥ 1.6x';
    expect(verdict(goal, results([row('tailcast', 160, 65), row('go', 100, 100)]))?.met).toBe(true);
    expect(verdict(goal, results([row('tailcast', 159, 65), row('go', 100, 100)]))?.met).toBe(false);
    expect(verdict(goal, results([row('tailcast', 160, 66), row('go', 100, 100)]))?.met).toBe(false);
  });

  it('are not judged where a peer is missing', () => {
    expect(verdict('small GET, 32 connections: ≥ 10x', results([row('tailcast', 1, 1)]))).toBeUndefined();
  });
});

describe('a quick run', () => {
  const watches: RunResults['cases'][number] = {
    name: 'watches',
    title: 'Watches',
    unit: REQUESTS,
    rounds: 1,
    constantLoad: true,
    memoryOf: 'watch',
    rows: (['direct', 'tailcast'] as const).map((peer) => ({
      ...row(peer, 1, 1),
      p99Ms: one(2),
      memoryAddedKb: one(90),
    })),
  };
  const goal = '5,000 watches: ≤ 5 ms';

  it('is not judged by what it has too few of', () => {
    expect(verdict(goal, { ...results([]), cases: [watches] })?.met).toBe(true);
    expect(verdict(goal, { ...results([]), cases: [watches], quick: true })).toBeUndefined();
  });

  it('shows memory above idle where the whole would mean nothing', () => {
    const text = markdown({ ...results([]), cases: [watches], quick: true });
    expect(text).toContain('KB/watch above idle');
    expect(text).not.toContain('KB/watch |');
  });
});

describe('the report', () => {
  const run = results([row('tailcast', 160, 65), row('go', 100, 100)]);

  it('has a table with ratios, the goals, and who was not measured', () => {
    const text = markdown(run);
    expect(text).toContain('| tailcast | 160 | 1.60x | 65.0 | 0.65x |');
    expect(text).toContain('rate 1.60x, CPU 0.65x | met |');
    expect(text).toContain('- reference: not here');
    expect(text).toContain('not measured');
  });
});
