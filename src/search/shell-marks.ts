/**
 * Finds the commands of a session from marks of the shell (OSC 133), or from text after a prompt. Any program can print
 * marks and prompts, so nothing proves that these commands were executed. Pure.
 */
import type { Screen } from './terminal/screen.ts';
import type { ScreenRow } from './terminal/screen-row.ts';

export interface JournalCommand {
  /** Time at which the command was started, in seconds of the session. */
  readonly at: number;
  readonly text: string;
  /** True if the command was guessed from a prompt. */
  readonly isGuessed: boolean;
}

/** End of a command, as the shell reported it. */
export interface CommandEnd {
  readonly at: number;
  /** Exit status; undefined if the shell did not report it. */
  readonly exit: number | undefined;
}

/** Maximum length of a command, in characters. */
export const MAX_COMMAND = 4096;
const MAX_COMMAND_ROWS = 64;
/** Matches a prompt and the command after it. */
const PROMPT = /^[^$#%>❯]{0,80}[$#%>❯] +(\S.*)$/;

/** Creates the reader of shell marks for one terminal. */
export function createShellMarks(
  screen: Screen,
  onCommand: (command: JournalCommand) => void,
  onCommandEnd: (end: CommandEnd) => void = () => undefined,
) {
  let start: { readonly row: ScreenRow; readonly serial: number; readonly x: number } | undefined;
  let isMarked = false;
  let guessed: string | undefined;
  return {
    /** True if the shell marks its commands. Commands are then not guessed from prompts. */
    get isMarked(): boolean {
      return isMarked;
    },
    /** Reads the parameters after `133;`. */
    take(text: string, seconds: number): void {
      const [kind, ...parameters] = text.split(';');
      if (kind === 'B') {
        const row = screen.row(screen.y);
        start = { row, serial: row.serial, x: screen.x };
      } else if (kind === 'C') {
        isMarked = true;
        const command =
          statedCommand(parameters) ?? (start === undefined ? undefined : typedSince(screen, start));
        start = undefined;
        const line = command?.slice(0, MAX_COMMAND) ?? '';
        if (line !== '' && line !== guessed) onCommand({ at: seconds, text: line, isGuessed: false });
        guessed = undefined;
      } else if (kind === 'D') {
        const [status = ''] = parameters;
        onCommandEnd({ at: seconds, exit: /^\d{1,10}$/.test(status) ? Number(status) : undefined });
      }
    },
    /** Reports a guessed command. If the shell then marks the same command, that command is not reported again. */
    guess(line: string, seconds: number): void {
      guessed = line;
      onCommand({ at: seconds, text: line, isGuessed: true });
    },
  };
}

/** Returns the command line that a shell mark contains. */
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

/** Returns the text between a position and the cursor. */
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

/** Returns the command after a prompt in the line with the cursor; undefined if there is no prompt. */
export function guessCommand(screen: Screen): string | undefined {
  let first = screen.y;
  while (first > 0 && screen.row(first).wrapped && screen.y - first < MAX_COMMAND_ROWS) first -= 1;
  // A user types a command some time after the prompt appeared. If both appeared at the same time, a program printed
  // them, and the text is not a prompt.
  if (!(screen.row(first).firstAt < screen.row(screen.y).changedAt)) return undefined;
  screen.budget.spent += (screen.y - first + 1) * screen.columns;
  let text = '';
  for (let y = first; y <= screen.y; y += 1) text += screen.row(y).text(0, screen.row(y).columns);
  const [, command] = PROMPT.exec(text.trimEnd()) ?? [];
  return command?.slice(0, MAX_COMMAND).trimEnd();
}
