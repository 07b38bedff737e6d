/**
 * Checks that every byte arrives under load: real kubectl, both transports, with and without the gateway. `REAL_LOAD_*`
 * selects the cells, see README.md.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { allCells, sampleCells, tableCells, type Cell } from '../load/cells.ts';
import { createContents, type Script } from '../load/contents.ts';
import { faultsOf, finish, rowOf, tableOf, updateResults, type CellResult } from '../load/report.ts';
import { runSession, type SessionResult } from '../load/session.ts';
import { startLoadSite, type LoadSite } from '../load/site.ts';
import { findKubectls } from '../rig/kubectl.ts';
import { createRig, type Rig } from '../rig/rig.ts';

const given = (name: string): string | undefined => process.env[`REAL_LOAD_${name}`];
const numberOf = (name: string): number | undefined => {
  const text = given(name);
  if (text === undefined) return undefined;
  if (!(Number(text) > 0)) throw new TypeError(`REAL_LOAD_${name} is a number above 0, not ${text}`);
  return Number(text);
};

const found = await findKubectls();
const kubectls =
  process.env['REAL_MATRIX'] === 'ends'
    ? found.filter((one) => one === found[0] || one === found.at(-1))
    : found;
const pattern = given('CELLS');
const choice = {
  kubectls,
  megabytes: numberOf('MB'),
  only: pattern === undefined ? undefined : new RegExp(pattern),
};
const sets: Readonly<Record<string, () => readonly Cell[]>> = {
  sample: () =>
    sampleCells({ kubectls, only: choice.only, ...(choice.megabytes === undefined ? {} : choice) }),
  all: () => allCells(choice),
  table: () => tableCells(choice),
};
const set = sets[given('SET') ?? 'sample'];
if (set === undefined) throw new TypeError(`REAL_LOAD_SET is one of ${Object.keys(sets).join(', ')}`);
const cells = set();
const runs = numberOf('RUNS') ?? 1;
const parallel = numberOf('PARALLEL') ?? 2;
/** Cells that did not start in time are skipped and reported. */
const untilMs = Date.now() + (numberOf('MINUTES') ?? Infinity) * 60_000;

let rig: Rig;
let site: LoadSite;
let contents: (cell: Cell) => Promise<Script>;
const done: CellResult[] = [];

beforeAll(async () => {
  rig = createRig();
  contents = createContents(rig.folder);
  site = await startLoadSite(rig);
  // Starts the gateways and recorders of all cells before the first cell adds load to the machine.
  for (const { way, condition } of cells) await site.way(way, condition);
});

afterAll(async () => {
  process.stdout.write(`\n${tableOf(done)}\n${done.length} of ${cells.length} cells, ${runs} runs each\n`);
  if (given('UPDATE') === '1') updateResults(done);
  await rig.stop();
});

/** Runs the sessions of a cell, at most `parallel` of them at a time. */
async function runCell(cell: Cell): Promise<CellResult> {
  const script = await contents(cell);
  const { kubeconfig, recorder } = await site.way(cell.way, cell.condition);
  const results: SessionResult[] = [];
  let begun = 0;
  const worker = async (): Promise<void> => {
    while (begun < runs) {
      begun += 1;
      results.push(await runSession(cell, script, kubeconfig, recorder));
    }
  };
  await Promise.all(Array.from({ length: Math.min(parallel, runs) }, worker));
  recorder?.forget();
  return finish(cell, results);
}

describe('sessions under load', () => {
  it('has cells to run', () => expect(cells.length).toBeGreaterThan(0));

  it.for(cells.map((cell) => [cell.name, cell] as const))(
    '%s',
    { timeout: 60_000 + runs * 400_000 },
    async ([, cell], { skip }) => {
      skip(Date.now() > untilMs, 'the time is over');
      await site.enter(cell.condition);
      const result = await runCell(cell);
      done.push(result);
      process.stdout.write(`${rowOf(result)}\n`);
      // printed as text, because the report of CI truncates lists
      expect(faultsOf(result).join('\n')).toBe('');
    },
  );
});
