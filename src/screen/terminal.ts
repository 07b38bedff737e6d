/**
 * The terminal on which recordings are played: the same emulator with the same settings in the page, in the recorder
 * that makes keyframes, and in tests. It shows and nothing else: no clipboard, no title, no links, no answers.
 */
import { Terminal as Emulator, type IBufferCell } from '@xterm/headless/lib-headless/xterm-headless.mjs';
import { ControlFilter } from '../terminal/control-filter.ts';
import { shownSize, type ScreenSize } from '../terminal/size.ts';
import { CLUSTER_WIDTHS } from './cluster-widths.ts';

export type { Emulator, IBufferCell };

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
    const { columns, rows } = shownSize(size);
    emulator = new Emulator({
      cols: columns,
      rows,
      scrollback: 0,
      allowProposedApi: true,
      logLevel: 'off',
    });
    emulator.unicode.register(CLUSTER_WIDTHS);
    emulator.unicode.activeVersion = CLUSTER_WIDTHS.version;
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
      const { columns, rows } = shownSize(size);
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
