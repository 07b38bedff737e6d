/**
 * The terminal on which recordings are played: the same emulator with the same settings in the page, in the recorder
 * that makes keyframes, and in tests. It shows and nothing else: no clipboard, no title, no links, no answers.
 */
import { Terminal as Emulator, type IBufferCell } from '@xterm/headless/lib-headless/xterm-headless.mjs';

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
  /** Resolves when the screen shows it. Callers write one piece after another. */
  write(text: string): Promise<void>;
  resize(size: ScreenSize): void;
  /** As new, with this size. */
  reset(size: ScreenSize): void;
  dispose(): void;
}

export interface PlayTerminalOptions extends ScreenSize {
  /** Without a terminal nobody has put carriage returns before the line feeds. */
  readonly completesLineFeeds: boolean;
}

/** Combining marks after one letter that are kept: more is no writing, and every cell would hold all of it. */
const MARKS = /(\p{M}{8})\p{M}+/gu;

/** @param options size as recorded; made usable here. */
export function createTerminal({
  completesLineFeeds: convertEol,
  ...first
}: PlayTerminalOptions): PlayTerminal {
  let emulator = open(first);
  function open(size: ScreenSize): Emulator {
    const { columns: cols, rows } = usableSize(size);
    return new Emulator({ cols, rows, scrollback: 0, convertEol, allowProposedApi: true });
  }
  return {
    get emulator() {
      return emulator;
    },
    get size() {
      return { columns: emulator.cols, rows: emulator.rows };
    },
    write: (text) =>
      new Promise((resolve) => {
        emulator.write(text.replaceAll(MARKS, '$1'), resolve);
      }),
    resize(size) {
      const { columns, rows } = usableSize(size);
      emulator.resize(columns, rows);
    },
    reset(size) {
      // NOTE: the emulator's own reset leaves some of what was set before, e.g. a hidden cursor
      emulator.dispose();
      emulator = open(size);
    },
    dispose: () => emulator.dispose(),
  };
}
