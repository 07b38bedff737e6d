/**
 * The terminal for playback. The page, the recorder (for keyframes) and tests use the same emulator with the same
 * settings. The terminal only displays output: it does not set the clipboard or the title, has no links, and sends no
 * responses.
 */
import { WorkBudget } from '../work-budget.ts';
import { Terminal as Emulator, type IBufferCell } from '@xterm/headless/lib-headless/xterm-headless.mjs';
import { innerValue } from './inner-value.ts';
import { ControlFilter } from '../terminal/control-filter.ts';
import { shownSize, type ScreenSize } from '../terminal/size.ts';
import { CLUSTER_WIDTHS } from './cluster-widths.ts';
import { countWork } from './emulator-work.ts';

export type { Emulator, IBufferCell };

export type PlayTerminal = ReturnType<typeof createTerminal>;

export interface PlayTerminalOptions extends ScreenSize {
  /** True if the session had no terminal: its output is shown as lines. */
  readonly withoutTerminal: boolean;
  /** Work budget that the terminal shares with other parsers of the recording. Default: a separate budget. */
  readonly budget?: WorkBudget;
}

/**
 * Matches more than eight consecutive combining marks. The additional marks are removed, because a cell would store all
 * of them.
 */
const MARKS = /(\p{M}{8})\p{M}+/gu;

/** Maximum number of characters that the emulator parses before it yields. */
const MAX_SLICE = 8192;
const MIN_SLICE = 64;
/** Approximate work units before the emulator yields: about the time of one animation frame. */
const SLICE_WORK = 4e6;
/** Length of the shortest control sequence that changes all cells, in characters. */
const SHORTEST_SEQUENCE = 3;
/** Maximum number of characters in the queue of the emulator. */
const MAX_QUEUED = 256 * 1024;

/** Creates a terminal. The recorded size is limited to the supported sizes. */
export function createTerminal({ withoutTerminal: isLines, budget: shared, ...first }: PlayTerminalOptions) {
  let budget = shared ?? new WorkBudget();
  let charge: (text: string) => void;
  let emulator: Emulator;
  let filter: ControlFilter;
  let guard: Guard;
  open(first);
  function open(size: ScreenSize): void {
    const { columns, rows } = shownSize(size);
    emulator = createEmulator(columns, rows);
    guard = guardEmulator(emulator);
    budget.spent += columns * rows;
    charge = countWork(emulator, budget);
    filter = new ControlFilter({ columns, rows, isLines });
  }
  const isStopped = (): boolean => guard.hasFailed || budget.isExhausted;
  const show = async (text: string): Promise<void> => {
    const written = text.replaceAll(MARKS, '$1');
    const cells = emulator.cols * emulator.rows;
    const length = SHORTEST_SEQUENCE * Math.floor(SLICE_WORK / cells);
    const slice = Math.max(MIN_SLICE, Math.min(MAX_SLICE, length));
    for (let start = 0; start < written.length && !isStopped(); start += MAX_QUEUED)
      await writeSlices(emulator, charge, written.slice(start, start + MAX_QUEUED), slice);
  };
  return {
    /** The emulator; each `reset` replaces it. */
    get emulator(): Emulator {
      return emulator;
    },
    /** Work budget until the next `reset`. For each line of the cast, the caller adds to the budget with `allow`. */
    get budget(): WorkBudget {
      return budget;
    },
    get size(): ScreenSize {
      return { columns: emulator.cols, rows: emulator.rows };
    },
    /** True if the output so far does not end inside a control sequence. The screen then shows the complete output. */
    get isComplete(): boolean {
      return filter.isComplete;
    },
    /**
     * True if the screen no longer changes until the next `reset`, because the budget is exhausted or the emulator
     * threw an error.
     */
    get isStopped(): boolean {
      return isStopped();
    },
    /**
     * Writes output. Resolves when the screen shows the output, or when the terminal has stopped. Callers must not
     * start a write before the previous write has resolved.
     */
    write: (text: string): Promise<void> => show(filter.push(text)),
    /** Shows an incomplete control string as text at the end of the session. */
    end: (): Promise<void> => show(filter.end()),
    resize(size: ScreenSize): void {
      const { columns, rows } = shownSize(size);
      const cells = Math.max(columns, emulator.cols) * Math.max(rows, emulator.rows);
      if (guard.hasFailed || !budget.spend(cells)) return;
      filter.resize(columns, rows);
      guard.run(() => {
        if (columns < emulator.cols) cutRows(emulator, columns);
        emulator.resize(columns, rows);
        limitRows(emulator);
      });
    },
    /** Resets the terminal to the given size. If `screen` is given, restores the content of this keyframe. */
    async reset(size: ScreenSize, screen?: string): Promise<void> {
      // NOTE: replace the emulator, because its own reset keeps some state, such as a hidden cursor
      emulator.dispose();
      budget = shared ?? new WorkBudget();
      open(size);
      if (screen === undefined) return;
      budget.allow(screen.length);
      await show(screen);
    },
    dispose: (): void => emulator.dispose(),
  };
}

function createEmulator(cols: number, rows: number): Emulator {
  const emulator = new Emulator({
    cols,
    rows,
    scrollback: 0,
    // NOTE: this turns off the rewrapping of lines at a resize. Without scrollback, the emulator's rewrapping
    // miscounts rows. A later sequence then throws in a timer of the emulator, and the process exits.
    windowsPty: { backend: 'winpty', buildNumber: 1 },
    allowProposedApi: true,
    logLevel: 'off',
  });
  emulator.unicode.register(CLUSTER_WIDTHS);
  emulator.unicode.activeVersion = CLUSTER_WIDTHS.version;
  return emulator;
}

interface InnerParser {
  parse(text: string): unknown;
}

/** Work of an emulator whose errors are caught. */
interface Guard {
  /** True after the first error. */
  readonly hasFailed: boolean;
  /** Runs an action, unless an earlier action failed. Never throws. */
  run(action: () => unknown): unknown;
}

/**
 * Catches the errors of the emulator's parser, and ignores all text after the first error. Without this guard, the
 * error would be thrown in a timer of the emulator: `writeSlices` would never resolve, and the process would exit.
 *
 * @throws Error if this version of the emulator lacks the parser
 */
function guardEmulator(emulator: Emulator): Guard {
  const parser = innerValue(emulator, ['_core', '_inputHandler']);
  if (!isInnerParser(parser)) throw new Error('this version of the terminal emulator has no known parser');
  const parse = parser.parse.bind(parser);
  let hasFailed = false;
  const run: Guard['run'] = (action) => {
    if (hasFailed) return undefined;
    try {
      return action();
    } catch {
      hasFailed = true;
      return undefined;
    }
  };
  parser.parse = (text) => run(() => parse(text));
  return {
    get hasFailed() {
      return hasFailed;
    },
    run,
  };
}

function isInnerParser(value: unknown): value is InnerParser {
  return typeof value === 'object' && value !== null && 'parse' in value && typeof value.parse === 'function';
}

interface InnerRows {
  readonly length: number;
  maxLength: number;
  get(row: number): { resize(columns: number): void } | undefined;
}

/**
 * Removes the cells to the right of the new width. Without rewrapping, the emulator keeps such cells and would show
 * them again after the window becomes wider.
 */
function cutRows(emulator: Emulator, columns: number): void {
  for (const which of ['normal', 'alt']) {
    // NOTE: an internal value of the emulator. If another version of the emulator lacks this value, these cells appear
    // again in a wider window.
    const rows = innerValue(emulator, ['_core', 'buffers', which, 'lines']);
    if (!isInnerRows(rows)) continue;
    for (let row = 0; row < rows.length; row += 1) rows.get(row)?.resize(columns);
  }
}

/**
 * Sets the maximum number of rows of an empty alternate screen to the rows of the window. After the window becomes
 * smaller, the emulator keeps the old maximum of this screen, and then throws errors when a program uses the screen.
 */
function limitRows(emulator: Emulator): void {
  const rows = innerValue(emulator, ['_core', 'buffers', 'alt', 'lines']);
  if (isInnerRows(rows) && rows.length === 0) rows.maxLength = emulator.rows;
}

function isInnerRows(value: unknown): value is InnerRows {
  return typeof value === 'object' && value !== null && 'get' in value && 'length' in value;
}

/**
 * Writes text in slices, because the emulator can yield between slices. Resolves when the emulator has parsed all
 * slices.
 */
function writeSlices(
  emulator: Emulator,
  charge: (text: string) => void,
  text: string,
  slice: number,
): Promise<void> {
  return new Promise((resolve) => {
    for (let start = 0; start < text.length; start += slice) {
      const piece = text.slice(start, start + slice);
      emulator.write(piece, () => {
        charge(piece);
        if (start + slice >= text.length) resolve();
      });
    }
  });
}
