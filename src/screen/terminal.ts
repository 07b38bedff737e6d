/**
 * The terminal on which recordings are played: the same emulator with the same settings in the page, in the recorder
 * that makes keyframes, and in tests. It shows and nothing else: no clipboard, no title, no links, no answers.
 */
import { Terminal as Emulator, type IBufferCell } from '@xterm/headless/lib-headless/xterm-headless.mjs';
import { ControlFilter } from '../terminal/control-filter.ts';

export type { Emulator, IBufferCell };

/** Columns and rows. */
export interface ScreenSize {
  readonly columns: number;
  readonly rows: number;
}

/** What is shown of recordings that name no size. */
const DEFAULT_SIZE: ScreenSize = { columns: 80, rows: 24 };
/** A recording may name any size; cells cost memory. */
export const MAX_SIZE: ScreenSize = { columns: 1000, rows: 500 };

/** A size that can be shown: whole numbers within bounds; 0 or less is the default. */
export function usableSize({ columns, rows }: ScreenSize): ScreenSize {
  if (!(columns > 0 && rows > 0)) return DEFAULT_SIZE;
  return {
    columns: Math.min(MAX_SIZE.columns, Math.max(2, Math.floor(columns))),
    rows: Math.min(MAX_SIZE.rows, Math.max(1, Math.floor(rows))),
  };
}

export interface PlayTerminal {
  /** Another one after each `reset`. */
  readonly emulator: Emulator;
  readonly size: ScreenSize;
  /** True if no sequence of the output is incomplete, so that the screen shows everything that was written. */
  readonly isComplete: boolean;
  /** Resolves when the screen shows it. Callers write one piece after another. */
  write(text: string): Promise<void>;
  /** The session has ended: shows a control string that the session did not complete, as text. */
  end(): Promise<void>;
  resize(size: ScreenSize): void;
  /** As new, with this size. `screen`: the text of a keyframe. */
  reset(size: ScreenSize, screen?: string): Promise<void>;
  dispose(): void;
}

export interface PlayTerminalOptions extends ScreenSize {
  /** True if the session had no terminal: its output is shown as lines. */
  readonly withoutTerminal: boolean;
}

/** Combining marks after one letter that are kept: more is no writing, and every cell would hold all of it. */
const MARKS = /(\p{M}{8})\p{M}+/gu;

/** @param options size as recorded; made usable here. */
export function createTerminal({ withoutTerminal: isLines, ...first }: PlayTerminalOptions): PlayTerminal {
  let emulator: Emulator;
  let filter: ControlFilter;
  open(first);
  function open(size: ScreenSize): void {
    const { columns, rows } = usableSize(size);
    emulator = new Emulator({
      cols: columns,
      rows,
      scrollback: 0,
      allowProposedApi: true,
      logLevel: 'off',
    });
    filter = new ControlFilter({ columns, rows, isLines });
  }
  const show = (text: string): Promise<void> =>
    new Promise((resolve) => {
      emulator.write(text.replaceAll(MARKS, '$1'), resolve);
    });
  return {
    get emulator() {
      return emulator;
    },
    get size() {
      return { columns: emulator.cols, rows: emulator.rows };
    },
    get isComplete() {
      return filter.isComplete;
    },
    write: (text) => show(filter.push(text)),
    end: () => show(filter.end()),
    resize(size) {
      const { columns, rows } = usableSize(size);
      filter.resize(columns, rows);
      emulator.resize(columns, rows);
    },
    async reset(size, screen) {
      // NOTE: the emulator's own reset leaves some of what was set before, e.g. a hidden cursor
      emulator.dispose();
      open(size);
      if (screen !== undefined) await show(screen);
    },
    dispose: () => emulator.dispose(),
  };
}
