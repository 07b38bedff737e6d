import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createTerminalFilter, TERMINAL_RESET } from '../../src/cli/safe-terminal.ts';

const shown = (text: string): string => createTerminalFilter(false).push(text);

describe('the terminal filter', () => {
  it('passes text, colours and cursor movement unchanged', () => {
    const screen =
      'héllo €\r\n\x1b[1;31mred\x1b[0m\x1b[2J\x1b[10;20H\x1b[?25l\x1b[?1049h\x1b[38:2::1:2:3m\t\b\x07\x1b(0q\x1b(B';
    expect(shown(screen)).toBe(screen);
  });

  it.each([
    ['clipboard', '\x1b]52;c;aGk=\x07'],
    ['title', '\x1b]0;owned\x1b\\'],
    ['hyperlink', '\x1b]8;;https://x\x07'],
    ['device attributes', '\x1b[c'],
    ['secondary attributes', '\x1b[>0c'],
    ['status report', '\x1b[6n'],
    ['window operation', '\x1b[21t'],
    ['mouse reporting', '\x1b[?1000h'],
    ['focus events', '\x1b[?1004h'],
    ['bracketed paste', '\x1b[?2004h'],
    ['DCS', '\x1bP$qm\x1b\\'],
    ['APC', '\x1b_Gq\x1b\\'],
    ['PM', '\x1b^x\x1b\\'],
    ['SOS', '\x1bXx\x1b\\'],
    ['8-bit CSI query', '\x9b6n'],
    ['8-bit OSC', '\x9d0;t\x9c'],
    ['answerback', '\x05'],
    ['key remapping', '\x1b[>4;2m'],
    ['sequence that never ends', `\x1b[${'1;'.repeat(400)}m`],
  ])('drops %s', (_name, sequence) => {
    expect(shown(`a${sequence}b`)).toBe('ab');
  });

  it.each([
    ['insert mode', '\x1b[4h', '\x1b[4l'],
    ['line feed as new line', '\x1b[20h', '\x1b[20l'],
    ['application cursor keys', '\x1b[?1h', '\x1b[?1l'],
    ['application keypad', '\x1b=', '\x1b>'],
    ['reverse video', '\x1b[?5h', '\x1b[?5l'],
    ['origin mode', '\x1b[?6h', '\x1b[?6l'],
    ['no wrap-around', '\x1b[?7l', '\x1b[?7h'],
    ['reverse wrap-around', '\x1b[?45h', '\x1b[?45l'],
  ])('passes %s, and the reset after playback ends this mode', (_mode, start, end) => {
    expect(shown(start)).toBe(start);
    expect(TERMINAL_RESET).toContain(end);
  });

  it('does not let a string hide behind an escape inside it', () => {
    expect(shown('\x1b]0;a\x1b\x1b\\b')).toBe('b');
    expect(shown('\x1b[\x1b]52;c;x\x07b')).toBe('b');
  });

  it('gives the same whatever the pieces', () => {
    const pieces = fc.array(
      fc.constantFrom(
        'a',
        '€',
        '\x1b',
        '[',
        ']',
        '5',
        ';',
        '?',
        'm',
        'n',
        'h',
        '\x07',
        '\\',
        '52',
        '\x9b',
        '\n',
        'P',
        '(',
        '0',
      ),
      { maxLength: 40 },
    );
    fc.assert(
      fc.property(pieces, (parts) => {
        const filter = createTerminalFilter(false);
        expect(parts.map((part) => filter.push(part)).join('')).toBe(shown(parts.join('')));
      }),
      { numRuns: 2000 },
    );
  });

  it('never shows an OSC, DCS or query whatever the input', () => {
    const soup = fc.string({
      unit: fc.constantFrom('\x1b', ']', 'P', '[', '6', 'n', 'c', '?', '>', 't', '\x9b', '\x9d', 'x'),
      maxLength: 60,
    });
    fc.assert(
      fc.property(soup, (text) => {
        // oxlint-disable-next-line no-control-regex -- the pattern matches control characters
        expect(shown(text)).not.toMatch(/\x1b[\]PX^_]|[\x90\x9b\x9d]|\x1b\[[0-9;?>]*[nct]/);
      }),
      { numRuns: 5000 },
    );
  });
});
