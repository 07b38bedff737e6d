/** The work for rendering a recording is limited by the recording's length, whatever a program writes. */
import { describe, expect, it, vi } from 'vitest';
import { createTerminal } from '../../src/screen/terminal.ts';
import { CastText } from '../../src/search/cast-text.ts';
import { WorkBudget } from '../../src/work-budget.ts';
import { COSTLY_PROGRAMS, costlyCast } from '../support/costly-programs.ts';
import { createRandom, runSeed } from '../support/random.ts';

const FREE = 5e6;
const PER_CHARACTER = 100;
/**
 * Maximum work of one step. The budget is checked only between steps, so the last step may exceed the budget by this
 * amount. The most expensive step reads and emits all rows of the largest screen.
 */
const LAST_STEP = 1e7;
/** Maximum CPU nanoseconds per work unit: ten times as many as the most expensive step needs. */
const MAX_NS = 250;

const sizes = ['80x24', '1000x500', '2x1', '1000x1', '1x500', '200x50'];
const parameters = [
  '',
  '0',
  '1',
  '2',
  '3',
  '4',
  '500',
  '999',
  '1;1',
  '5;400',
  '65535',
  '2147483647',
  '99;99;99',
];
const modes = ['?7', '?6', '?47', '?1047', '?1049', '?1048', '4', '20', '?2', '?3'];
const escapes = ['7', '8', 'c', 'D', 'E', 'M', 'H', '#8', '(0', '(B', 'n', 'o', '=', '%G'];
const texts = [
  'x',
  'word ',
  '漢字',
  'e\u0301',
  '\r\n',
  '\n',
  '\t',
  '\b',
  '\x7f',
  '\x84',
  '\x8d',
  '$ ls\r\n',
  '-eyJabcdefgh-',
];

/** Returns the events of a program that repeats a few random sequences. */
function randomProgram(seed: number): string {
  const random = createRandom(seed);
  const piece = (): string => {
    switch (random.below(5)) {
      case 0:
        return `\x1b[${random.pick(parameters)}${random.pick(Array.from('@ABCDEFGHIJKLMPSTXZ`abdefgmrsu'))}`;
      case 1:
        return `\x1b[${random.pick(modes)}${random.pick(['h', 'l'])}`;
      case 2:
        return `\x1b${random.pick(escapes)}`;
      case 3:
        return `\x1b[${random.pick(parameters)}${random.pick([' @', ' A', "'}", "'~", '!p'])}`;
      default:
        return random.pick(texts);
    }
  };
  const loop = [piece(), ...random.list(4, piece)].join('');
  const prelude = random.list(8, piece).join('');
  const lines = [`{"version":2,"width":${random.pick([80, 1000])},"height":${random.pick([24, 500])}}`];
  lines.push(JSON.stringify([0, 'o', prelude]));
  for (let count = 0; count < 20; count += 1) {
    if (random.oneIn(4)) lines.push(JSON.stringify([count, 'r', random.pick(sizes)]));
    lines.push(JSON.stringify([count, 'o', loop.repeat(1 + random.below(60))]));
  }
  return lines.join('\n');
}

interface Cost {
  readonly budget: WorkBudget;
  readonly characters: number;
  readonly cpuNs: number;
}

async function costOf(read: (budget: WorkBudget) => Promise<number>): Promise<Cost> {
  const budget = new WorkBudget({ free: FREE, perCharacter: PER_CHARACTER });
  const before = process.cpuUsage();
  const characters = await read(budget);
  const { user } = process.cpuUsage(before);
  return { budget, characters, cpuNs: user * 1000 };
}

function readText(cast: string): Promise<Cost> {
  return costOf(async (budget) => {
    const text = new CastText({ onRow: () => undefined, onCommand: () => undefined, budget });
    for (const line of cast.split('\n')) text.line(line);
    text.end();
    return cast.length;
  });
}

function render(cast: string): Promise<Cost> {
  return costOf(async (budget) => {
    const [head = '', ...lines] = cast.split('\n');
    const { width: columns, height: rows } = JSON.parse(head) as { width: number; height: number };
    const terminal = createTerminal({ columns, rows, withoutTerminal: false, budget });
    for (const line of lines.filter((text) => text !== '')) {
      budget.allow(line.length);
      const [, code, data] = JSON.parse(line) as [number, string, string];
      if (code === 'o') await terminal.write(data);
      const [width = 0, height = 0] = data.split('x').map(Number);
      if (code === 'r') terminal.resize({ columns: width, rows: height });
    }
    terminal.dispose();
    return cast.length;
  });
}

describe('rendering', () => {
  it('does work in proportion to the length of random programs, and counts what costs CPU time', async () => {
    const seed = runSeed();
    let work = 0;
    let cpuNs = 0;
    for (let count = 0; count < 60; count += 1) {
      const cast = randomProgram(seed + count);
      for (const read of [readText, render]) {
        const cost = await read(cast);
        expect(cost.budget.spent, `TEST_SEED=${seed + count} ${read.name}`).toBeLessThan(
          FREE + PER_CHARACTER * cost.characters + LAST_STEP,
        );
        work += cost.budget.spent;
        cpuNs += cost.cpuNs;
      }
    }
    // parsing itself costs CPU time, too
    expect(cpuNs).toBeLessThan(MAX_NS * work + 5e9);
  });

  it.each(COSTLY_PROGRAMS)('stops a program that %s', async (_name, events) => {
    const cast = costlyCast(events);
    const budgets = [(await readText(cast)).budget, (await render(cast)).budget];
    expect(budgets.some(({ isExhausted }) => isExhausted)).toBe(true);
    for (const { spent } of budgets)
      expect(spent).toBeLessThan(FREE + PER_CHARACTER * cast.length + LAST_STEP);
  });

  it('reads what honest full-screen programs write', async () => {
    const screen = Array.from(
      { length: 50 },
      (_, row) => `\x1b[${row + 1}H\x1b[Kline ${row} ${'of text '.repeat(20)}`,
    );
    const events = Array.from({ length: 200 }, (_, at) =>
      JSON.stringify([at, 'o', `\x1b[H\x1b[J${screen.join('')}`]),
    );
    const cast = `{"version":2,"width":200,"height":50}\n${events.join('\n')}\n`;
    for (const read of [readText, render]) {
      const { budget } = await read(cast);
      expect(budget.isExhausted, read.name).toBe(false);
      expect(budget.spent / cast.length).toBeLessThan(64);
    }
  });

  it('writes nothing to the console, whatever the output is', async () => {
    const writes = (['error', 'warn', 'log', 'info', 'debug'] as const).map((name) =>
      vi.spyOn(console, name).mockReturnValue(undefined),
    );
    try {
      const terminal = createTerminal({ columns: 80, rows: 24, withoutTerminal: false });
      await terminal.write(
        '\x7f\x1b[\x7f\x1b[999999999999999q\x1bP\x7f\x1b\\\x1b]999;x\x07\x1b[1;2;3;4;5:6:7m\0\x80\ufffd',
      );
      await terminal.write(String.fromCharCode(...createRandom(runSeed()).bytes(5000)));
      for (const write of writes) expect(write).not.toHaveBeenCalled();
    } finally {
      for (const write of writes) write.mockRestore();
    }
  });
});
