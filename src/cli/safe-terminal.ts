/**
 * Makes recorded output safe to show on the terminal of the person who plays it back.
 *
 * A recording is data written by whoever held the shell. Written raw to a terminal it could set the clipboard (OSC 52),
 * change the title, hide links, or ask the terminal questions whose answers are typed into the player's own shell.
 * This filter lets through text, cursor movement, colours and screen modes (ECMA-48 control sequences of a known
 * list), and drops everything else: OSC, DCS, APC, PM and SOS strings, device queries, window operations, and
 * single-character escapes that are not on the list. It holds a partial sequence until it is complete, so a sequence
 * cut by a chunk boundary cannot pass.
 */

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
/** Longest control sequence that is kept; real ones have some dozens of bytes. */
const MAX_SEQUENCE_LENGTH = 128;

type State = 'text' | 'escape' | 'charset' | 'csi' | 'string' | 'string-escape';

/** @returns a function from a piece of recorded text to what may be written to a terminal. */
export function createTerminalFilter(): (piece: string) => string {
  let state: State = 'text';
  let sequence = '';

  /** One character in, what may be shown out. */
  function step(character: string): string {
    switch (state) {
      case 'text':
        return text(character);
      case 'escape':
        return escape(character);
      case 'charset':
        state = 'text';
        return /[0-9A-Za-z]/.test(character) ? `\x1b${sequence}${character}` : '';
      case 'csi':
        return csi(character);
      case 'string':
        if (character === '\x1b') state = 'string-escape';
        else if (character === '\x07' || character === '\x9c' || character === '\x18' || character === '\x1a')
          state = 'text';
        return '';
      case 'string-escape':
        state = character === '\\' ? 'text' : character === '\x1b' ? 'string-escape' : 'string';
        return '';
    }
  }

  function text(character: string): string {
    const code = character.charCodeAt(0);
    if (character === '\x1b') {
      state = 'escape';
      return '';
    }
    if (code === 0x9b) return begin('csi');
    if (code === 0x90 || code === 0x98 || code === 0x9d || code === 0x9e || code === 0x9f)
      return begin('string');
    if (code < 0x20) return '\x07\b\t\n\v\f\r\x0e\x0f'.includes(character) ? character : '';
    return code === 0x7f || (code >= 0x80 && code < 0xa0) ? '' : character;
  }

  function escape(character: string): string {
    if (character === '[') return begin('csi');
    if (']PX^_'.includes(character)) return begin('string');
    if (CHARSET_ESCAPES.has(character)) {
      state = 'charset';
      sequence = character;
      return '';
    }
    state = character === '\x1b' ? 'escape' : 'text';
    return SAFE_ESCAPES.has(character) ? `\x1b${character}` : '';
  }

  function csi(character: string): string {
    const code = character.charCodeAt(0);
    if (code >= 0x40 && code <= 0x7e) {
      state = 'text';
      return isSafe(sequence, character) ? `\x1b[${sequence}${character}` : '';
    }
    if (code < 0x20 || code > 0x7e) {
      // A control character aborts the sequence; ESC begins a new one.
      state = 'text';
      return character === '\x1b' || code < 0x20 ? text(character) : '';
    }
    sequence = sequence.length < MAX_SEQUENCE_LENGTH ? sequence + character : `${sequence.slice(0, 1)}!`;
    return '';
  }

  function begin(next: State): string {
    state = next;
    sequence = '';
    return '';
  }

  return (piece) => {
    // Most pieces of a shell session are plain text: skip the machine for them.
    // oxlint-disable-next-line no-control-regex -- controls are what this looks for
    if (state === 'text' && !/[\x00-\x06\x0e-\x1f\x7f-\x9f]/.test(piece)) return piece;
    let shown = '';
    for (const character of piece) shown += step(character);
    return shown;
  };
}

/** Undoes what a replay may have left behind: colours, hidden cursor, alternate screen, scroll region, charset. */
export const TERMINAL_RESET = '\x1b[?2026l\x1b[?1049l\x1b[?25h\x1b[?7h\x1b[r\x1b[0m\x1b(B\x0f';

function isSafe(parameters: string, final: string): boolean {
  if (!SAFE_CSI_FINALS.has(final)) return false;
  if (final === 'h' || final === 'l') {
    if (/^[0-9;]*$/.test(parameters))
      return parameters.split(';').every((mode) => mode === '4' || mode === '20');
    return (
      /^\?[0-9;]+$/.test(parameters) &&
      parameters
        .slice(1)
        .split(';')
        .every((mode) => SAFE_PRIVATE_MODES.has(mode))
    );
  }
  // Intermediates and private markers change the meaning of a final byte: only plain parameters pass.
  return /^[0-9;:]*$/.test(parameters);
}
