/** A full-screen program on a pseudo-terminal, with a terminal emulator for its screen. */
import xterm from '@xterm/headless';
import { type Terminal, openTerminal } from './terminal.ts';

export interface Screen {
  /** The terminal, with the exact output of the program and its exit code. */
  readonly terminal: Terminal;
  /** Current rows of the screen without trailing blanks. */
  rows(): readonly string[];
  /**
   * Resolves as soon as the screen shows `wanted`.
   *
   * @returns the rows of the screen at that time
   * @throws Error with the screen if `wanted` does not appear within `timeoutMs`, or the program exits first
   */
  shows(wanted: string | RegExp, timeoutMs?: number): Promise<readonly string[]>;
  type(text: string): void;
}

export interface ScreenOptions {
  readonly env: Readonly<Record<string, string>>;
  readonly columns: number;
  readonly rows: number;
}

const SHOWS_MS = 30_000;

/** Starts a program on a terminal of this size. The emulator responds to terminal queries. */
export function openScreen(path: string, args: readonly string[], options: ScreenOptions): Screen {
  const emulator = createEmulator(options);
  const watchers = new Set<() => void>();
  const look = (): void => {
    for (const watcher of watchers) watcher();
  };
  const terminal = openTerminal(path, args, {
    ...options,
    onOutput: (text) => emulator.write(text, look),
  });
  emulator.onData((answer) => terminal.type(answer));
  let code: number | undefined;
  void terminal.ended.then((ended) => {
    code = ended;
    emulator.write('', look);
  });
  const rows = (): readonly string[] => rowsOf(emulator);

  return {
    terminal,
    rows,
    shows(wanted, timeoutMs = SHOWS_MS) {
      return new Promise((done, fail) => {
        const finish = (problem?: string): void => {
          watchers.delete(check);
          clearTimeout(timer);
          const seen = rows();
          if (problem === undefined) done(seen);
          else fail(new Error(`${problem}; the screen:\n${seen.join('\n')}`));
        };
        const check = (): void => {
          const text = rows().join('\n');
          if (typeof wanted === 'string' ? text.includes(wanted) : wanted.test(text)) finish();
          else if (code !== undefined) finish(`ended with code ${code} before ${wanted} was shown`);
        };
        const timer = setTimeout(() => finish(`${wanted} was not shown in ${timeoutMs} ms`), timeoutMs);
        watchers.add(check);
        check();
      });
    },
    type: (text) => terminal.type(text),
  };
}

/** Returns the rows that a terminal of this size shows after `output`. */
export async function render(
  output: string,
  size: Pick<ScreenOptions, 'columns' | 'rows'>,
): Promise<readonly string[]> {
  const emulator = createEmulator(size);
  await new Promise<void>((done) => {
    emulator.write(output, done);
  });
  return rowsOf(emulator);
}

type Emulator = InstanceType<typeof xterm.Terminal>;

function createEmulator({ columns, rows }: Pick<ScreenOptions, 'columns' | 'rows'>): Emulator {
  return new xterm.Terminal({ cols: columns, rows, scrollback: 0, allowProposedApi: true });
}

function rowsOf(emulator: Emulator): readonly string[] {
  const { active } = emulator.buffer;
  return Array.from(
    { length: emulator.rows },
    (_, row) => active.getLine(active.baseY + row)?.translateToString(true) ?? '',
  );
}
