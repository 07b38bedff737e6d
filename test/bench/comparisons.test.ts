import { describe, expect, it } from 'vitest';
import { REQUESTS } from '../../bench/harness/case.ts';
import { comparisonsOf } from '../../bench/harness/comparisons.ts';
import { GOALS, judge } from '../../bench/harness/goals.ts';
import { markdown, printable } from '../../bench/harness/report.ts';
import type { CaseResult, Row, RunResults } from '../../bench/harness/results.ts';
import { compareRounds, spreadOf, type Rounds } from '../../bench/harness/statistics.ts';
import type { PeerName } from '../../bench/peers/peer.ts';

/** Creates rounds whose ratios to `base` have the logarithms `logs`. */
const away = (base: readonly number[], logs: readonly number[]): number[] =>
  base.map((value, round) => value * Math.exp(logs[round] ?? 0));
const BASE = [100, 80, 130];

describe('the comparison of rounds', () => {
  it('has the geometric mean and the interval of Student’s t over logarithms', () => {
    // mean 0.2, standard deviation 0.1, so the interval is 4.303 x 0.1 / √3 to each side
    const found = compareRounds(away(BASE, [0.1, 0.2, 0.3]), BASE);
    expect(found?.ratio).toBeCloseTo(Math.exp(0.2), 9);
    expect(found?.low).toBeCloseTo(Math.exp(0.2 - 0.248_434), 4);
    expect(found?.high).toBeCloseTo(Math.exp(0.2 + 0.248_434), 4);
    expect(found).toMatchObject({ rounds: 3, verdict: 'unclear' });
  });

  it('tells apart what differs in every round by about as much, however much the rounds themselves differ', () => {
    expect(compareRounds(away([10, 1000, 50], [0.15, 0.2, 0.25]), [10, 1000, 50])?.verdict).toBe('above');
    expect(compareRounds(away([10, 1000, 50], [-0.15, -0.2, -0.25]), [10, 1000, 50])?.verdict).toBe('below');
  });

  it('needs a wide difference to tell apart two rounds, and cannot with one', () => {
    expect(compareRounds([110, 130], [100, 100])?.verdict).toBe('unclear');
    expect(compareRounds([200, 204], [100, 100])?.verdict).toBe('above');
    expect(compareRounds([200], [100])).toBeUndefined();
    expect(compareRounds([], [])).toBeUndefined();
  });

  it('takes only rounds that both have', () => {
    const ours: Rounds = [200, null, 202, 198, undefined, 0];
    expect(compareRounds(ours, [100, 100, 101, 99, 1, 100])).toMatchObject({ rounds: 3, verdict: 'above' });
    expect(compareRounds([200, null], [null, 100])).toBeUndefined();
  });

  it('has the right interval about nineteen times of twenty', () => {
    // many pairs of series with the same distribution
    let state = 12_345;
    const uniform = (): number => {
      state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fff_ffff;
      return (state + 1) / 0x8000_0001;
    };
    const normal = (): number => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
    for (const rounds of [3, 5, 8]) {
      const base = Array.from({ length: rounds }, () => 100);
      let wrong = 0;
      for (let time = 0; time < 4000; time += 1) {
        const logs = base.map(() => 0.05 * normal());
        if (compareRounds(away(base, logs), base)?.verdict !== 'unclear') wrong += 1;
      }
      expect(wrong / 4000).toBeGreaterThan(0.035);
      expect(wrong / 4000).toBeLessThan(0.065);
    }
  });
});

function row(peer: PeerName, rate: readonly number[], cpu: readonly number[]): Row {
  const [rates, cpus] = [spreadOf(rate), spreadOf(cpu)];
  if (rates === undefined || cpus === undefined) throw new Error('no rounds');
  return { peer, rate: rates, cpu: cpus, loadCpu: rates, rounds: { rate, cpu } };
}

function caseOf(rows: readonly Row[], constantLoad = false): CaseResult {
  return { name: 'get-32', title: 'GET', unit: REQUESTS, rounds: 3, constantLoad, rows };
}

function runOf(result: CaseResult): RunResults {
  return {
    startedAt: '2026-11-21T12:00:00.000Z',
    quick: false,
    machine: ['2 x processor'],
    versions: {},
    missing: {},
    facts: [],
    cases: [result],
  };
}

describe('the words of a table', () => {
  const go = row('go', BASE, BASE);
  const ours = row('tailcast', away(BASE, [0.5, 0.51, 0.52]), away(BASE, [-0.6, -0.61, -0.62]));

  it('say faster and less, slower and more, and cannot tell', () => {
    const text = markdown(runOf(caseOf([ours, go])));
    expect(text).toMatch(/\| tailcast against go \| 1\.67x \[1\.62–1\.71\] faster \| 0\.54x \[.*\] less \|/);
    const other = row('tailcast', away(BASE, [-0.5, -0.51, -0.52]), away(BASE, [-0.6, 0, 0.6]));
    expect(printable(caseOf([other, go]))).toMatch(
      /tailcast against go: rate 0\.60x \[.*\] slower, CPU 1\.00x \[.*\] cannot tell/,
    );
  });

  it('are said against the other checkout, and of no rate where the load is constant', () => {
    const before = row('before', BASE, BASE);
    expect(
      comparisonsOf(caseOf([ours, before], true)).map(({ against, figures }) => [
        against,
        ...figures.map(({ figure }) => figure),
      ]),
    ).toEqual([['before', 'cpu']]);
  });
});

describe('a goal', () => {
  const goal = GOALS.find(({ text }) => text.startsWith('small GET, 32 connections: ≥ 1.6x'));
  const judged = (rate: readonly number[], cpu: readonly number[]): unknown => {
    if (goal === undefined) throw new Error('no goal');
    return judge(
      goal,
      runOf(caseOf([row('tailcast', away(BASE, rate), away(BASE, cpu)), row('go', BASE, BASE)])),
    );
  };

  it('is certain where its bounds lie outside the intervals', () => {
    expect(judged([0.6, 0.61, 0.62], [-0.6, -0.61, -0.62])).toMatchObject({ met: true, certain: true });
    expect(judged([0.1, 0.11, 0.12], [-0.6, -0.61, -0.62])).toMatchObject({ met: false, certain: true });
  });

  it('is uncertain where one lies inside, met or not', () => {
    expect(judged([0.7, 0.5, 0.3], [-0.6, -0.61, -0.62])).toMatchObject({ met: true, certain: false });
    expect(judged([0.2, 0.4, 0.6], [-0.6, -0.61, -0.62])).toMatchObject({ met: false, certain: false });
  });
});
