/** Counts the work of the emulator, and skips control sequences once the budget is exhausted. */
import type { Terminal as Emulator } from '@xterm/headless/lib-headless/xterm-headless.mjs';
import type { WorkBudget } from '../work-budget.ts';

/** Work units per printed character. */
const CHARACTER_WORK = 4;
const SEQUENCE_WORK = 20;
const INSERT_MODE = 4;

type Parameters = readonly (number | number[])[];
type Work = (emulator: Emulator, parameters: Parameters) => number;

function countOf([count]: Parameters): number {
  return typeof count === 'number' && count > 0 ? count : 1;
}

const row: Work = ({ cols }) => cols;
const screen: Work = ({ cols, rows }) => cols * rows;
/** Work to insert or remove lines. The emulator inserts or removes the lines one by one. */
const lines: Work = ({ cols, rows }, parameters) => countOf(parameters) * (cols + 2 * rows);
/** Work of a step that the emulator repeats. The parameter of the sequence is the number of repetitions. */
const steps: Work = ({ cols }, parameters) => cols + countOf(parameters);
const repeated: Work = (_emulator, parameters) => countOf(parameters) * CHARACTER_WORK;
const oneLine: Work = (emulator) => lines(emulator, []);

/** Private modes that switch between the normal and the alternate screen, or clear a screen. */
const SCREEN_MODES: ReadonlySet<unknown> = new Set([47, 1047, 1049]);
const erased: Work = (emulator, parameters) => {
  const { cols, rows, buffer } = emulator;
  const { cursorY } = buffer.active;
  const [what = 0] = parameters;
  if (what === 0) return (rows - cursorY) * cols;
  return what === 1 ? (cursorY + 1) * cols : cols * rows;
};
const privateMode: Work = (emulator, parameters) =>
  parameters.filter((mode) => SCREEN_MODES.has(mode)).length * 2 * screen(emulator, []);

/**
 * Work of control sequences, by private prefix, intermediate and final byte. Sequences that are not listed have a cost
 * that does not depend on the screen size.
 */
const SEQUENCES: readonly (readonly [prefix: string, intermediates: string, final: string, work: Work])[] = [
  ['', '', '@', row],
  ['', '', 'P', row],
  ['', '', 'X', row],
  ['', '', 'K', row],
  ['?', '', 'K', row],
  ['', '', 'J', erased],
  ['?', '', 'J', erased],
  ['', ' ', '@', screen],
  ['', ' ', 'A', screen],
  ['', "'", '}', screen],
  ['', "'", '~', screen],
  ['', '', 'L', lines],
  ['', '', 'M', lines],
  ['', '', 'S', lines],
  ['', '', 'T', lines],
  ['', '', 'I', steps],
  ['', '', 'Z', steps],
  ['', '', 'b', repeated],
  ['?', '', 'h', privateMode],
  ['?', '', 'l', privateMode],
];

/** Work of escape sequences, by intermediates and final byte. */
const ESCAPES: readonly (readonly [intermediates: string, final: string, work: Work])[] = [
  ['', 'c', (emulator) => 2 * screen(emulator, [])],
  ['#', '8', screen],
  ['', 'D', oneLine],
  ['', 'E', oneLine],
  ['', 'M', oneLine],
];

/**
 * Charges each step of an emulator to a budget before the emulator executes the step.
 *
 * @returns a function that charges the characters of parsed text
 */
export function countWork(emulator: Emulator, budget: WorkBudget): (text: string) => void {
  const { parser } = emulator;
  let wasInserting = false;
  // NOTE: the emulator skips the step if the handler returns true
  for (const [prefix, intermediates, final, work] of SEQUENCES)
    parser.registerCsiHandler(
      { final, ...(prefix === '' ? {} : { prefix }), ...(intermediates === '' ? {} : { intermediates }) },
      (parameters) => !budget.spend(SEQUENCE_WORK + work(emulator, parameters)),
    );
  parser.registerCsiHandler({ final: 'h' }, (parameters) => {
    wasInserting ||= parameters.includes(INSERT_MODE);
    return false;
  });
  for (const [intermediates, final, work] of ESCAPES)
    parser.registerEscHandler(
      { final, ...(intermediates === '' ? {} : { intermediates }) },
      () => !budget.spend(SEQUENCE_WORK + work(emulator, [])),
    );
  emulator.onScroll(() => {
    budget.spent += emulator.cols / 4 + emulator.rows;
  });
  return (text) => {
    // in insert mode a character costs as much as a row, because it shifts the rest of its row
    wasInserting ||= emulator.modes.insertMode;
    budget.spent += text.length * (wasInserting ? emulator.cols : CHARACTER_WORK);
    wasInserting = emulator.modes.insertMode;
  };
}
