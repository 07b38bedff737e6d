/**
 * Makes recorded output safe for the terminal of the viewer.
 *
 * The user of the recorded shell controls its output. Raw output could set the clipboard (OSC 52), change the title,
 * hide links, or send queries whose responses the terminal types into the viewer's shell. This filter passes text, and
 * a fixed list of ECMA-48 control sequences for cursor movements, colours and screen modes. It drops control strings,
 * device queries, window operations, and escapes that are not on the list. It buffers an incomplete sequence until the
 * sequence is complete, so that a chunk boundary cannot hide a sequence from the filter. An unterminated control string
 * at the end of the session is shown as text, as in every other view.
 */
import { MAX_SIZE } from '../terminal/size.ts';
import { ControlFilter } from '../terminal/control-filter.ts';

/** Final bytes of control sequences that only move the cursor, erase, set colours or scroll. */
const SAFE_CSI_FINALS = new Set('@ABCDEFGHIJKLMPSTXZ`abdefghlmrsu');
/**
 * Final bytes of harmless escapes: save and restore the cursor, move it by a line, set tab stops, keypad modes, reset.
 */
const SAFE_ESCAPES = new Set('78DEMH=>c');
const CHARSET_ESCAPES = new Set('()*+-./');
/**
 * Private modes that playback may set. Mouse reporting and focus events are excluded, because they make the terminal
 * send input.
 */
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
/** Converts recorded output to output for a terminal. */
export type OutputFilter = Pick<ControlFilter, 'push' | 'end'>;

/** Unfiltered output. */
export const RAW_OUTPUT: OutputFilter = { push: (text) => text, end: () => '' };

/** @param isLines true if the session had no terminal; its output is then shown as lines */
export function createTerminalFilter(isLines: boolean): ControlFilter {
  return new ControlFilter({
    ...MAX_SIZE,
    isLines,
    allowsSequence: isSafe,
    allowsEscape: (name) =>
      SAFE_ESCAPES.has(name) || (name.length === 2 && CHARSET_ESCAPES.has(name.slice(0, 1))),
  });
}

/**
 * Resets the terminal after playback: colours, hidden cursor, alternate screen, scroll region, charset, and the modes
 * that the filter permits.
 */
export const TERMINAL_RESET =
  '\x1b[?2026l\x1b[?1049l\x1b[?25h\x1b[?7h\x1b[4l\x1b[20l\x1b[?1l\x1b[?5l\x1b[?6l\x1b[?45l\x1b>\x1b[r\x1b[0m\x1b(B\x0f';

function isSafe(name: string, parameters: string): boolean {
  const isPrivate = name.startsWith('?');
  const final = isPrivate ? name.slice(1) : name;
  // Sequences with intermediates or other private prefixes are dropped, because these change the meaning of the final
  // byte.
  if (!SAFE_CSI_FINALS.has(final)) return false;
  if (final !== 'h' && final !== 'l') return !isPrivate;
  const modes = parameters.split(';');
  return isPrivate
    ? modes.every((mode) => SAFE_PRIVATE_MODES.has(mode))
    : modes.every((mode) => mode === '' || mode === '4' || mode === '20');
}
