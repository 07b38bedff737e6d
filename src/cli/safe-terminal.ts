/**
 * Makes recorded output safe to show on the terminal of the person who plays it back.
 *
 * A recording is data written by whoever held the shell. Written raw to a terminal it could set the clipboard (OSC 52),
 * change the title, hide links, or ask the terminal questions whose answers are typed into the player's own shell.
 * This filter lets through text, cursor movement, colours and screen modes (ECMA-48 control sequences of a known
 * list), and drops everything else: control strings, device queries, window operations, and escapes that are not on the
 * list. It holds a partial sequence until it is complete, so a sequence cut by a chunk boundary cannot pass. A control string
 * that the session never ended is text, as in every other view.
 */
import { MAX_SIZE } from '../terminal/size.ts';
import { ControlFilter } from '../terminal/control-filter.ts';

/** Final bytes of control sequences (CSI … X) that only move, erase, colour or scroll. */
const SAFE_CSI_FINALS = new Set('@ABCDEFGHIJKLMPSTXZ`abdefghlmrsu');
/** Single-character escapes that are harmless: save/restore cursor, index, keypad modes, charset (with one byte more). */
const SAFE_ESCAPES = new Set('78DEMH=>c');
const CHARSET_ESCAPES = new Set('()*+-./');
/** Private modes a replay may set; mouse reporting and focus events would make the terminal type. */
const SAFE_PRIVATE_MODES = new Set([
  '1',
  '3',
  '5',
  '6',
  '7',
  '12',
  '25',
  '45',
  '47',
  '1047',
  '1048',
  '1049',
  '2026',
]);
/** Turns recorded output into output for a terminal. */
export type OutputFilter = Pick<ControlFilter, 'push' | 'end'>;

/** Recorded output as it is. */
export const RAW_OUTPUT: OutputFilter = { push: (text) => text, end: () => '' };

/** @param isLines true if the session had no terminal: its output is shown as lines. */
export function createTerminalFilter(isLines: boolean): ControlFilter {
  return new ControlFilter({
    ...MAX_SIZE,
    isLines,
    allowsSequence: isSafe,
    allowsEscape: (name) =>
      SAFE_ESCAPES.has(name) || (name.length === 2 && CHARSET_ESCAPES.has(name.slice(0, 1))),
  });
}

/** Undoes what a replay may have left behind: colours, hidden cursor, alternate screen, scroll region, charset. */
export const TERMINAL_RESET = '\x1b[?2026l\x1b[?1049l\x1b[?25h\x1b[?7h\x1b[r\x1b[0m\x1b(B\x0f';

function isSafe(name: string, parameters: string): boolean {
  const isPrivate = name.startsWith('?');
  const final = isPrivate ? name.slice(1) : name;
  // Intermediates and other private markers change the meaning of a final byte.
  if (!SAFE_CSI_FINALS.has(final)) return false;
  if (final !== 'h' && final !== 'l') return !isPrivate;
  const modes = parameters.split(';');
  return isPrivate
    ? modes.every((mode) => SAFE_PRIVATE_MODES.has(mode))
    : modes.every((mode) => mode === '' || mode === '4' || mode === '20');
}
