/** Text in control strings and between cursor movements. */
import { describe, expect, it } from 'vitest';
import { CastText } from '../../src/search/cast-text.ts';
import { Transcript, TRANSCRIPT_LIMITS } from '../../src/search/transcript.ts';

const HEADER = '{"version":2,"width":80,"height":24}';
const SECRET = 'AKIAIOSFODNN7EXAMPLE rm -rf /the/secret';

function castOf(writes: readonly string[]): readonly string[] {
  return [HEADER, ...writes.map((text, index) => JSON.stringify([index, 'o', text]))];
}

/** Returns all written rows. */
function writtenRows(writes: readonly string[], isLive = false): readonly string[] {
  const texts: string[] = [];
  const cast = new CastText({ onRow: () => undefined, onWritten: ({ text }) => texts.push(text) });
  for (const line of castOf(writes)) {
    cast.line(line);
    if (isLive) cast.flush();
  }
  cast.end();
  return texts;
}

function transcriptOf(writes: readonly string[]): ReturnType<Transcript['end']> {
  const transcript = new Transcript(TRANSCRIPT_LIMITS);
  for (const line of castOf(writes)) transcript.line(line);
  return transcript.end();
}

function pieces(length: number): readonly string[] {
  return SECRET.match(new RegExp(`.{1,${length}}`, 'g')) ?? [];
}

const apc = (text: string): string => `\x1b_${text}\x1b\\`;

describe('a line of more than 64 Mi characters', () => {
  it('makes the text incomplete', () => {
    const cast = new CastText({ onRow: () => undefined });
    for (const line of castOf(['one'])) cast.line(line);
    expect(cast.isPartial).toBe(false);
    cast.line('x'.repeat(64 * 1024 ** 2 + 1));
    expect(cast.isPartial).toBe(true);
  });
});

describe('consecutive control strings', () => {
  it.each([1, 2, 3, 4, 5, 8, 15, 17, 19])('of %i characters are also joined', (length) => {
    const strings = pieces(length).map(apc);
    expect(writtenRows(['listing\r\n', strings.join(''), 'done\r\n']).join('\n')).toContain(SECRET);
    expect(writtenRows(strings.map((text) => `${text}line\r\n`)).join('\n')).toContain(SECRET);
    expect(writtenRows(strings, true).join('\n')).toMatch(/AKIA[0-9A-Z]{16}/);
    expect(transcriptOf(strings).hidden.rows.map(([, text]) => text)).toContain(SECRET);
  });

  it('of different lengths are joined in their order', () => {
    const parts = ['AKIA', 'IOS', 'FODNN', '7', 'EXAMP', `LE ${'x'.repeat(300)} rm -r`, 'f /'];
    const rows = writtenRows(['$ ', parts.map((part) => `\x1b]0;${part}\x07`).join(''), '\r\n']);
    expect(rows.at(-1)).toContain('AKIAIOSFODNN7EXAMPLE xxx');
    expect(rows.at(-1)).toContain('xxx rm -rf /');
  });

  it('are joined at the boundary of two rows', () => {
    const strings = pieces(5).map(apc).join('');
    for (let before = 2000; before < 2060; before += 5) {
      const flood = Array.from({ length: before / 5 }, (_, at) => apc(`${1000 + at} `)).join('');
      expect(writtenRows([flood, strings]).join('\n')).toContain('AKIAIOSFODNN7EXAMPLE');
    }
  });

  it('keep double letters on separate lines, and strings that occurred before', () => {
    const letters = Array.from('cat /etc//passwd', apc);
    expect(writtenRows(letters.map((text) => `${text}\r\n`))).toContain('cat /etc//passwd');
    const known = ['wd -r', 'f /et', 'passw', 'c/pas'];
    const strings = [...known, 'passw', 'wd -r', 'f /et', 'c/pas'].map(apc).join('');
    expect(writtenRows([strings]).at(-1)).toContain('passwwd -rf /etc/pas');
  });

  it('of a normal shell are not joined', () => {
    const title = '\x1b]0;alice@web-0: ~\x07';
    const repeated = Array.from({ length: 50 }, () => `${title}[alice@web-0 ~]$ \r\n`);
    expect(writtenRows(repeated)).toEqual(['0;alice@web-0: ~']);
    const visible = Array.from(
      { length: 50 },
      (_, at) => `\x1b]0;alice@web-0: /${at}\x07alice@web-0:/${at}$ ls\r\n`,
    );
    expect(writtenRows(visible)).toEqual([]);
    expect(writtenRows(Array.from({ length: 50 }, () => '\x1b]0;~\x07$ \r\n'))).toEqual([]);
  });
});

describe('letters between movements of the cursor', () => {
  const movements = [
    '\x1b[B\x1b[D',
    '\v\b',
    '\f\b',
    '\n\b',
    '\n',
    '\x84\b',
    '\x1bD\b',
    '\x1bM\b',
    '\n\x1b[A',
  ];
  it.each(movements)('by %j are joined', (movement) => {
    const letters = Array.from('cat /etc/shadow').join(movement);
    expect(writtenRows([`\x1b[2;5H${letters}`, '\r\nend\r\n'])).toContain('cat /etc/shadow');
  });

  it('to the next line are not joined', () => {
    for (const end of ['\r\n', '\x85']) expect(writtenRows([`a${end}b${end}ok${end}no${end}`])).toEqual([]);
    for (const end of ['\r\n', '\n\r', '\x85', '\x1bE', '\n', '\v'])
      expect(writtenRows([`first line${end}second line${end}third line${end}`])).toEqual([]);
  });
});

describe('characters that join the previous one', () => {
  it.each([
    ['Hangul vowels', '\u1161\u1162\u1163\u1164'],
    ['marks with a Hangul vowel after each seven', '\u0363\u0364\u0365\u0366\u0363\u0364\u0365\u1161'],
    ['Arabic number signs', '\u0600\u0601'],
  ])('count as hidden if they are many: %s', (_kind, text) => {
    const output = `ok${text.repeat(80 / text.length)}\r\n`;
    const { hidden } = transcriptOf([output]);
    expect(hidden.characters).toBe(80 - 8);
    expect(writtenRows([output])).toEqual([output.trim()]);
  });

  it('count as visible in Korean and Vietnamese text', () => {
    for (const text of [
      '\u1112\u1161\u11ab\u1100\u1173\u11af '.repeat(20),
      'tie\u0302\u0301ng Vie\u0323\u0302t '.repeat(10),
    ]) {
      expect(transcriptOf([`${text}\r\n`]).hidden.characters).toBe(0);
    }
  });
});

describe('the list of lines that were never visible', () => {
  it.each([
    ['concealed text', (text: string) => `\x1b[8m${text}\x1b[0m\r\n`],
    ['control strings', (text: string) => `${apc(text)}\r\n`],
    ['window titles', (text: string) => `\x1b]777;${text}\x07\r\n`],
  ])('says that it leaves out lines of %s', (_kind, make) => {
    const decoys = Array.from({ length: 8200 }, (_, at) => make(`${100_000 + at}${'d'.repeat(58)}`));
    const last = make(`rm -rf /the/secret ${'x'.repeat(200)}`);
    const listed = (writes: readonly string[]): readonly [boolean, boolean | undefined] => {
      const { hidden } = transcriptOf(writes);
      return [hidden.rows.some(([, text]) => text.includes('secret')), hidden.isPartial];
    };
    expect(listed([last])).toEqual([true, undefined]);
    expect(listed([...decoys, last])).toEqual([false, true]);
  });
});
