/** xterm's screen, for comparison with tailcast's terminal emulators. */
import xterm from '@xterm/headless';
import { CLUSTER_WIDTHS } from '../../src/screen/cluster-widths.ts';
import { ControlFilter } from '../../src/terminal/control-filter.ts';
import type { Random } from './random.ts';

export interface TerminalOracle {
  /** Writes output, and resolves when the screen shows it. @returns false if xterm failed to parse the output */
  write(text: string): Promise<boolean>;
  resize(columns: number, rows: number): void;
  /** Rows from top to bottom, without trailing spaces. */
  screen(): readonly string[];
  readonly cursor: { readonly x: number; readonly y: number };
  dispose(): void;
}

/** Creates an xterm with tailcast's character widths, because widths depend on the Unicode version. */
export function createTerminalOracle(columns: number, rows: number): TerminalOracle {
  const terminal = new xterm.Terminal({
    cols: columns,
    rows,
    scrollback: 0,
    allowProposedApi: true,
    logLevel: 'off',
  });
  terminal.unicode.register(CLUSTER_WIDTHS);
  terminal.unicode.activeVersion = CLUSTER_WIDTHS.version;
  const filter = new ControlFilter({ columns, rows, isLines: false });
  // NOTE: @xterm/headless 6 writes in a timer; the timer calls this synchronous write
  const core = (terminal as unknown as { _core: { writeSync(text: string): void } })._core;
  return {
    async write(text) {
      try {
        core.writeSync(filter.push(text));
        return true;
      } catch {
        return false;
      }
    },
    resize(width, height) {
      filter.resize(width, height);
      resizeWithoutWrapping(terminal, width, height);
    },
    screen() {
      const { active } = terminal.buffer;
      return Array.from(
        { length: terminal.rows },
        (_, y) =>
          active
            .getLine(active.baseY + y)
            ?.translateToString(false)
            .trimEnd() ?? '',
      );
    },
    get cursor() {
      return { x: terminal.buffer.active.cursorX, y: terminal.buffer.active.cursorY };
    },
    dispose: () => terminal.dispose(),
  };
}

const WORDS = [
  'ls -la',
  'kubectl get pods',
  'a',
  ' ',
  'secret',
  '日本',
  '한',
  'e\u0301',
  '👍',
  '\u{1f468}\u200d\u{1f469}',
  'x\u0301\u0302',
  '─',
];
const CSI_FINALS = [
  '@',
  'A',
  'B',
  'C',
  'D',
  'E',
  'F',
  'G',
  'H',
  'I',
  'J',
  'K',
  'L',
  'M',
  'P',
  'S',
  'T',
  'X',
  'Z',
  '`',
  'a',
  'b',
  'd',
  'e',
  'f',
  'g',
  'm',
  'r',
  's',
  'u',
];
const ESCAPES = [
  '7',
  '8',
  'D',
  'E',
  'H',
  'M',
  'c',
  '(0',
  '(B',
  ')0',
  '#8',
  'n',
  'o',
  '~',
  '=',
  '>',
  '\\',
  '%G',
];
const MODES = ['4', '?6', '?7', '?25', '?47', '?1047', '?1048', '?1049', '?2004'];

/** Returns a random piece of terminal output: text, controls, or complete and broken sequences. */
export function terminalPiece(random: Random): string {
  switch (random.below(12)) {
    case 0:
    case 1:
    case 2:
    case 3:
      return random.pick(WORDS);
    case 4:
      return random.pick([
        '\r\n',
        '\n',
        '\r',
        '\b',
        '\t',
        '\v',
        '\f',
        '\x0e',
        '\x0f',
        '\x07',
        '\x00',
        '\x7f',
      ]);
    case 5:
    case 6:
    case 7:
      return `\x1b[${parameters(random)}${random.pick(CSI_FINALS)}`;
    case 8:
      return `\x1b${random.pick(ESCAPES)}`;
    case 9:
      return `\x1b[${random.pick(MODES)}${random.pick(['h', 'l'])}`;
    case 10:
      return random.pick([
        '\x1b]0;title\x07',
        '\x1b]133;B\x1b\\',
        '\x1bP1$qm\x1b\\',
        '\x1b_apc\x1b\\',
        '\x9b2J',
        '\x84',
        '\x85',
        '\x1b[!p',
        '\x1b[2 @',
        "\x1b[1'}",
        "\x1b[1'~",
        '\x1b[2 A',
      ]);
    default:
      return random.pick([
        '\x1b',
        '\x1b[',
        '\x1b[3',
        '\x1b]',
        '\x1b[?',
        '\x18',
        '\x1b[1;2;3',
        '\x1b(',
        'é\u0301',
        'AAAAAAAAAAAAAAAAAAAAAAAAAAAAA',
      ]);
  }
}

function parameters(random: Random): string {
  const one = (): string =>
    random.oneIn(6) ? '' : String(random.oneIn(8) ? random.below(200) : random.below(8));
  return random.oneIn(3) ? `${one()};${one()}` : one();
}

/**
 * Returns the rows without the third and later combining marks of a character, because tailcast keeps a limited number
 * of marks.
 */
export function withFewMarks(rows: readonly string[]): readonly string[] {
  return rows.map((row) => row.replaceAll(/([\p{M}\u200d]{2})[\p{M}\u200d]+/gu, '$1'));
}

interface InnerRows {
  readonly length: number;
  get(row: number): { resize(columns: number): void };
}

/** Resizes xterm without rewrapping lines. xterm discards the cells outside the new window. */
export function resizeWithoutWrapping(
  terminal: InstanceType<typeof xterm.Terminal>,
  columns: number,
  rows: number,
): void {
  terminal.options.windowsPty = { backend: 'winpty', buildNumber: 1 };
  const { normal, alt } = (
    terminal as unknown as { _core: { buffers: Record<'normal' | 'alt', { lines: InnerRows }> } }
  )._core.buffers;
  if (columns < terminal.cols)
    for (const { lines } of [normal, alt])
      for (let row = 0; row < lines.length; row += 1) lines.get(row).resize(columns);
  terminal.resize(columns, rows);
}
