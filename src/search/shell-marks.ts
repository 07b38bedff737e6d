/**
 * Which commands were run, as shells say it (OSC 133), or as a prompt and what was typed behind it look. Any program can
 * print either: what comes out is a claim. Pure.
 */
import type { Screen } from './terminal/screen.ts';
import type { ScreenRow } from './terminal/screen-row.ts';

export interface JournalCommand {
  /** Seconds of the session at which it was sent off. */
  readonly at: number;
  readonly text: string;
  /** The shell did not mark it: it looked like one. */
  readonly isGuessed: boolean;
}

export interface ShellMarks {
  /** Whether the shell marks its commands, so that there is no need to guess. */
  readonly isMarked: boolean;
  /** What stood behind `133;`. */
  take(text: string, seconds: number): void;
}

/** Longest command that is kept, in characters. */
export const MAX_COMMAND = 4096;
const MAX_COMMAND_ROWS = 64;
/** What a prompt ends in. */
const PROMPT = /^[^$#%>❯]{0,80}[$#%>❯] +(\S.*)$/;

/** One per terminal. */
export function createShellMarks(screen: Screen, onCommand: (command: JournalCommand) => void): ShellMarks {
  let start: { readonly row: ScreenRow; readonly serial: number; readonly x: number } | undefined;
  let isMarked = false;
  return {
    get isMarked() {
      return isMarked;
    },
    take(text, seconds) {
      const [kind, ...parameters] = text.split(';');
      if (kind === 'B') {
        const row = screen.row(screen.y);
        start = { row, serial: row.serial, x: screen.x };
      } else if (kind === 'C') {
        isMarked = true;
        const command =
          statedCommand(parameters) ?? (start === undefined ? undefined : typedSince(screen, start));
        start = undefined;
        if (command !== undefined && command !== '')
          onCommand({ at: seconds, text: command.slice(0, MAX_COMMAND), isGuessed: false });
      }
    },
  };
}

/** The command line that the shell gives with the mark. */
function statedCommand(parameters: readonly string[]): string | undefined {
  for (const parameter of parameters) {
    if (!parameter.startsWith('cmdline_url=')) continue;
    try {
      return decodeURIComponent(parameter.slice('cmdline_url='.length)).trim();
    } catch {
      return undefined;
    }
  }
  return undefined;
}

/** What stands between a place and the cursor. */
function typedSince(
  screen: Screen,
  start: { readonly row: ScreenRow; readonly serial: number; readonly x: number },
): string | undefined {
  if (start.row.serial !== start.serial) return undefined;
  for (let y = screen.y; y >= Math.max(0, screen.y - MAX_COMMAND_ROWS); y -= 1) {
    if (screen.row(y) !== start.row) continue;
    screen.budget.spent += (screen.y - y + 1) * screen.columns;
    const last = screen.x === 0 && screen.y > y ? screen.y - 1 : screen.y;
    let text = start.row.text(start.x, start.row.columns);
    for (let below = y + 1; below <= last; below += 1) {
      const row = screen.row(below);
      if (!row.wrapped) text = `${text.trimEnd()}\n`;
      text += row.text(0, row.columns);
    }
    return text.trimEnd();
  }
  return undefined;
}

/** What was typed behind a prompt in the line of the cursor; undefined when it does not look like that. */
export function guessCommand(screen: Screen): string | undefined {
  let first = screen.y;
  while (first > 0 && screen.row(first).wrapped && screen.y - first < MAX_COMMAND_ROWS) first -= 1;
  // a prompt waits for what is typed: a program prints its line at once
  if (!(screen.row(first).firstAt < screen.row(screen.y).changedAt)) return undefined;
  screen.budget.spent += (screen.y - first + 1) * screen.columns;
  let text = '';
  for (let y = first; y <= screen.y; y += 1) text += screen.row(y).text(0, screen.row(y).columns);
  const [, command] = PROMPT.exec(text.trimEnd()) ?? [];
  return command?.slice(0, MAX_COMMAND).trimEnd();
}
