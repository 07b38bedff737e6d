/** Programs that try to hide output from viewers, readers and searches. */
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { describe, expect, it, onTestFinished } from 'vitest';
import { runProgram } from '../../src/cli/program.ts';
import { readCastStart } from '../../src/screen/cast-reader.ts';
import { Playback } from '../../src/screen/playback.ts';
import { screenText } from '../../src/screen/cells.ts';
import { createTerminal } from '../../src/screen/terminal.ts';
import type { PlayIndex } from '../../src/screen/play-index.ts';
import type { TranscriptDocument } from '../../src/search/transcript-document.ts';
import { buildPlayIndex } from '../../src/bundle/build-index.ts';
import { createIndexHandlers } from '../../src/tsrecorder/search/index-operations.ts';
import { IndexReader } from '../../src/tsrecorder/search/sqlite/reader.ts';
import { doc, query } from '../tsrecorder/search/engine-suite.ts';

const NODE = 'nTEST1CNTRL';
const folder = mkdtempSync(join(tmpdir(), 'tailcast-hiding-'));

interface Size {
  readonly width: number;
  readonly height: number;
}

function castOf(writes: readonly string[], { width, height }: Size): string {
  const header = {
    version: 2,
    width,
    height,
    timestamp: 1_767_225_600,
    srcNode: 'a',
    srcNodeID: 'b',
    tailcast: 1,
  };
  const events = writes.map((text, index) => JSON.stringify([index / 10, 'o', text]));
  return `${JSON.stringify(header)}\n${events.join('\n')}\n`;
}

interface Views {
  /** The last screen of the player. */
  readonly screen: string;
  readonly index: PlayIndex;
  readonly transcript: TranscriptDocument;
  /** Output of `tailcast play`, and its notices. */
  readonly played: string;
  readonly notices: string;
  /** Output of `tailcast export --format txt`. */
  readonly exported: string;
  /** True if search finds a query. */
  readonly finds: (text: string) => boolean;
  /** True if an alert rule with this query matches. */
  readonly alerts: (rule: string) => boolean;
}

let recordings = 0;

async function viewsOf(writes: readonly string[], size: Size = { width: 80, height: 24 }): Promise<Views> {
  const cast = castOf(writes, size);
  const bytes = Buffer.from(cast);
  const built = await buildPlayIndex({
    chunks: (async function* () {
      yield bytes;
    })(),
    places: [],
    onFrame: async () => undefined,
    onProgress: () => undefined,
  });
  recordings += 1;
  const path = store(cast, recordings);
  const played = await run(['play', path, '--speed', '1000']);
  const exported = await run(['export', 'latest', '--store', folder, '--format', 'txt', '--output', '-']);
  return {
    ...built,
    screen: await lastScreen(cast),
    played: played.stdout,
    notices: played.stderr,
    exported: exported.stdout,
    ...(await searchIn(bytes)),
  };
}

/** Stores a recording. Each recording is newer than the previous ones. */
function store(cast: string, number: number): string {
  const time = `2026-01-01T00:00:00.${String(number).padStart(9, '0')}Z`;
  const path = join(folder, NODE, `${time}.cast`);
  mkdirSync(join(folder, NODE), { recursive: true });
  writeFileSync(path, cast);
  return path;
}

async function run(args: readonly string[]): Promise<{ readonly stdout: string; readonly stderr: string }> {
  let stdout = '';
  let stderr = '';
  const out = new PassThrough();
  const err = new PassThrough();
  out.on('data', (data) => (stdout += String(data)));
  err.on('data', (data) => (stderr += String(data)));
  await runProgram(args, {
    stdout: out,
    stderr: err,
    environment: new Map(),
    signal: new AbortController().signal,
  });
  return { stdout, stderr };
}

async function lastScreen(cast: string): Promise<string> {
  const bytes = Buffer.from(cast);
  const headerBytes = bytes.indexOf(0x0a) + 1;
  const start = readCastStart(cast.slice(0, cast.indexOf('\n')));
  const terminal = createTerminal({ ...start.size, withoutTerminal: start.withoutTerminal });
  const playback = new Playback({
    cast: { bytes: bytes.length, read: async (from, to) => bytes.subarray(from, to) },
    start,
    headerBytes,
    terminal,
    seconds: undefined,
    loadFrame: () => Promise.reject(new Error('there are no keyframes')),
    onChange: () => undefined,
  });
  await playback.seek(1e6);
  const text = screenText(terminal.emulator);
  playback.dispose();
  terminal.dispose();
  return text;
}

/** Queries of alert rules that are compared with every recording. */
const RULES = ['text:kestrel', 'kestrel', 'text:shadow', 'fivesix', 'hidden:>0', 'hidden:>=100'];

/** Indexes a recording and returns functions that search it. */
async function searchIn(bytes: Uint8Array): Promise<Pick<Views, 'finds' | 'alerts'>> {
  const directory = await mkdtemp(join(folder, 'index-'));
  const index = createIndexHandlers();
  await index.open({ directory, mayWrite: true });
  await index.watch(RULES.map((id) => ({ id, query: query(id), may: 'everything', sinceMs: 0 })));
  await index.begin({ key: 1, doc: doc('n_1'), isLive: false, effort: 'full' });
  const { matches } = await index.finish({ key: 1, bytes });
  await index.flush(null);
  const reader = new IndexReader(directory);
  onTestFinished(() => {
    reader.close();
    void index.close(null);
  });
  return {
    finds: (text) => reader.find(query(text), 'everything', { limit: 10 }).sessions.length > 0,
    alerts: (rule) => {
      expect(RULES).toContain(rule);
      return matches.some((match) => match.rule === rule);
    },
  };
}

const SECRET = 'cat /etc/shadow\r\nroot:kestrel:19000\r\n';

describe('a control string without an end', () => {
  it.each([
    '\x1bP',
    '\x1b]',
    '\x1b_',
    '\x1b^',
    '\x1bX',
    '\x1bk',
    '\u0090',
    '\u009d',
    '\u0098',
    '\u009e',
    '\u009f',
  ])('that begins with %j hides nothing', async (begin) => {
    const views = await viewsOf(['$ id\r\n', begin, SECRET, 'end\r\n']);
    expect(views.screen).toContain('root:kestrel:19000');
    expect(views.played).toContain('root:kestrel:19000');
    expect(views.exported).toContain('root:kestrel:19000');
    expect(views.transcript.rows.map(([, text]) => text)).toContain('root:kestrel:19000');
    expect(views.finds('"root kestrel"')).toBe(true);
    expect(views.alerts('text:kestrel')).toBe(true);
  });

  it('of more than 4 KiB is text before it ends', async () => {
    const views = await viewsOf(['\x1bP', `${'x'.repeat(5000)}\r\n`, SECRET, '\x1b\\end\r\n']);
    for (const text of [views.screen, views.played, views.exported]) expect(text).toContain('kestrel');
    expect(views.finds('kestrel')).toBe(true);
  });
});

describe('complete control strings', () => {
  it.each([
    ['\x1bP', '\x1b\\'],
    ['\x1b_', '\x1b\\'],
    ['\x1b^', '\x1b\\'],
    ['\x1bX', '\x1b\\'],
    ['\x1b]0;', '\x07'],
    ['\x1bk', '\x1b\\'],
    ['\x1bP', '\x1b[m'],
  ])('of %j around each line are counted, shown on request, and searched', async (begin, end) => {
    const lines = Array.from(
      { length: 60 },
      (_, line) => `${begin}user${line}:kestrel${line}:hash-of-a-password${end}\r\n`,
    );
    const views = await viewsOf(lines);
    expect(views.index.hidden).toBeGreaterThan(200);
    expect(views.transcript.hidden.characters).toBe(views.index.hidden);
    expect(views.transcript.hidden.rows.map(([, text]) => text).join('\n')).toContain('kestrel59');
    expect(views.exported).toContain('were written but never visible:');
    expect(views.exported).toContain('kestrel59');
    expect(views.notices).toContain('characters were written but never visible');
    expect(views.finds('kestrel7')).toBe(true);
    expect(views.finds('hidden:>0')).toBe(true);
    expect(views.alerts('hidden:>=100')).toBe(true);
  });

  it('that the export leaves out are reported', async () => {
    const lines = Array.from({ length: 8200 }, (_, at) => `\x1b_${at}${'d'.repeat(60)}\x1b\\\r\n`);
    recordings += 1;
    store(castOf(lines, { width: 80, height: 24 }), recordings);
    const { stdout, stderr } = await run([
      'export',
      'latest',
      '--store',
      folder,
      '--format',
      'txt',
      '--output',
      '-',
    ]);
    expect(stdout).toContain('were written but never visible:');
    expect(stderr).toContain('The list of lines that were never visible is incomplete.');
  });

  it('of an honest shell are not counted', async () => {
    const lines = Array.from(
      { length: 50 },
      (_, line) => `\x1b]0;alice@web-0: ~\x07\x1b]133;A\x07alice@web-0:~$ ls dir${line}\r\n`,
    );
    const views = await viewsOf([...lines, '\x1bP$qm\x1b\\\x1bP+q544e\x1b\\']);
    expect(views.index.hidden).toBe(0);
    expect(views.exported).not.toContain('never visible');
    expect(views.finds('hidden:>0')).toBe(false);
    expect(views.alerts('hidden:>0')).toBe(false);
    expect(views.finds('hidden:0')).toBe(true);
  });
});

describe('text that a screen shows otherwise', () => {
  const spread = (text: string): string =>
    Array.from(text, (letter, index) => `\x1b[${(index % 20) + 1};${((index * 7) % 70) + 1}H${letter}`).join(
      '',
    );
  it.each([
    ['the line-drawing character set', '\x1b(0cat /etc/shadow\x1b(B\r\n', true],
    ['shift out', '\x1b)0\x0ecat /etc/shadow\x0f\r\n', true],
    ['no wrap-around', `\x1b[?7l${'x'.repeat(100)} cat /etc/shadow\r\n`, true],
    ['concealed text', '\x1b[8mcat /etc/shadow\x1b[0m\r\n', true],
    ['the colour of the background', '\x1b[31;41mcat /etc/shadow\x1b[0m\r\n', true],
    ['an indexed colour of the background', '\x1b[38;5;1;48:5:1mcat /etc/shadow\x1b[0m\r\n', true],
    ['letters between movements', `${spread('cat /etc/shadow')}\r\n`, false],
    [
      'letters between backspaces',
      `${Array.from('cat /etc/shadow', (letter) => `${letter}\x1b[C`).join('')}\r\n`,
      false,
    ],
    ['zero-width spaces', `${Array.from('cat /etc/shadow').join('\u200b')}\r\n`, false],
    ['word joiners', `${Array.from('cat /etc/shadow').join('\u2060')}\r\n`, false],
    ['strokes through letters', `${Array.from('cat /etc/shadow').join('\u0336')}\r\n`, false],
    ['soft hyphens', `${Array.from('cat /etc/shadow').join('\u00ad')}\r\n`, false],
  ])('by %s is searched as it was written', async (_how, text, isHidden) => {
    const views = await viewsOf(['$ id\r\n', text, 'end\r\n']);
    expect(views.finds('"cat etc shadow"')).toBe(true);
    expect(views.alerts('text:shadow')).toBe(true);
    expect(views.index.hidden > 0).toBe(isHidden);
    expect(views.finds('hidden:>0')).toBe(isHidden);
    const shown = views.transcript.hidden.rows.map(([, row]) => row).join('\n');
    expect(shown.includes('cat /etc/shadow')).toBe(isHidden);
  });

  it('does not make secrets searchable that search leaves out', async () => {
    const views = await viewsOf([
      '$ export password=hun\x1b[31mter2sec\b\bret\r\n',
      '\x1b(0password=hunter2secret\x1b(B\r\n',
    ]);
    expect(views.finds('hunter2secret')).toBe(false);
  });
});

describe('text that no view of the player shows', () => {
  const text = 'cat /etc/shadow: root kestrel';
  const letters = Array.from(text);
  const pieces = text.match(/.{1,3}/g) ?? [];
  const fill = (letter: string, index: number): string =>
    `\x1b[${letter.charCodeAt(0)};3;${index + 1};3;${index + 1}$x`;
  const alphabet = [...new Set(letters)].join('');
  const copy = (letter: string, index: number): string => {
    const column = alphabet.indexOf(letter) + 1;
    return `\x1b[2;${column};2;${column};1;9;${index + 1};1$v`;
  };
  const selector = (letter: string): string => String.fromCodePoint(0xe0100 + letter.charCodeAt(0));
  const tag = (letter: string): string => String.fromCodePoint(0xe0000 + letter.charCodeAt(0));
  const noTerminal = { width: 0, height: 0 };

  it.each<[how: string, output: string, size?: Size]>([
    ['a long title of ESC k', `\x1bk${text}${'.'.repeat(60)}\x1b\\`],
    [
      'many titles of ESC k',
      Array.from({ length: 20 }, (_, row) => `good\r\n\x1bk${text} ${row}\x1b\\`).join(''),
    ],
    ['titles of ESC k with three letters', pieces.map((piece) => `\x1bk${piece}\x1b\\`).join('')],
    ['strings of three letters', pieces.map((piece) => `\x1b_${piece}\x1b\\`).join('')],
    ['window titles of one letter', letters.map((letter) => `\x1b]0;${letter}\x07`).join('')],
    ['rectangles that are filled', letters.map(fill).join('')],
    ['rectangles that are filled without a terminal', `${letters.map(fill).join('')}\n`, noTerminal],
    ['letters that are copied', `${alphabet}\r\n${letters.map(copy).join('')}`],
    ['a saved cursor', `\x1b[8m\x1b7\x1b[28m\x1b8${text}`],
    ['a saved cursor of SCO', `\x1b[8m\x1b[s\x1b[28m\x1b[u${text}`],
    ['a saved cursor of mode 1048', `\x1b[8m\x1b[?1048h\x1b[0m\x1b[?1048l${text}`],
    ['a saved cursor of mode 1049', `\x1b[8m\x1b[?1049h\x1b[0m\x1b[?1049l${text}`],
    ['concealed text after an empty parameter', `\x1b[;8m${text}`],
    ['parameters that the emulator ignores', `\x1b[${'1;'.repeat(31)}8;28m${text}`],
    ['concealed text without a terminal', `\x1b[8m${text}\x1b[0m\n`, noTerminal],
    ['equal colours without a terminal', `\x1b[30;40m${text}\x1b[0m\n`, noTerminal],
    ['equal colours of palette and RGB', `\x1b[38;5;16;48;2;0;0;0m${text}`],
    ['equal colours with leading zeros', `\x1b[38;02;0;0;0;48;2;00;0;0m${text}`],
    ['equal colours with empty values', `\x1b[38;2;0;0;0;48;2;;;m${text}`],
    ['nearly equal colours', `\x1b[38;2;1;1;1;48;2;0;0;0m${text}`],
    ['the default background as palette colour', `\x1b[30m${text}`],
    ['the default background as RGB', `\x1b[38;2;16;20;24m${text}`],
    ['the default foreground as background', `\x1b[48;2;214;219;224m${text}`],
    ['tag characters', `hi${letters.map(tag).join('')}`],
    ['a long line of concealed text', `\x1b[8m${'x'.repeat(5000)} ${text} ${'x'.repeat(5000)}`],
    [
      'many pieces of concealed text',
      `\x1b[8m${'x'.repeat(3000)}${letters.map((l) => `\x1b[8m${l}`).join('')}`,
    ],
    ['a long line of concealed text without a terminal', `\x1b[8m${'x'.repeat(5000)} ${text}\n`, noTerminal],
    ['strings after strings that are not counted', `\x1b_${'.'.repeat(600)}\x1b\\\x1b_${text}\x1b\\`],
    [
      'strings between dots that are overwritten',
      Array.from({ length: 20 }, (_, at) => `${'.\b'.repeat(400)}\x1b_${text} ${at}\x1b\\`).join(''),
    ],
    [
      'different strings between dots',
      Array.from({ length: 30 }, (_, at) => `${'.'.repeat(50)}\r\x1bP${text} ${at}\x1b\\`).join(''),
    ],
    ['tag characters in strings', `\x1b_${text}${letters.map(tag).join('').repeat(20)}\x1b\\`],
  ])('by %s is counted, shown on request, and searched', async (_how, output, size) => {
    const views = await viewsOf(['$ id\r\n', output], size);
    expect(views.index.hidden).toBeGreaterThan(0);
    expect(views.transcript.hidden.characters).toBe(views.index.hidden);
    expect(views.transcript.hidden.rows.map(([, row]) => row).join('\n')).toContain(text);
    expect(views.exported).toContain(text);
    expect(views.notices).toContain('characters were written but never visible');
    expect(views.finds('kestrel')).toBe(true);
    expect(views.alerts('hidden:>0')).toBe(true);
  });

  it.each([
    ['variation selectors', [`hi${letters.map(selector).join('')}`]],
    ['variation selectors in pieces', ['hi', ...letters.map(selector)]],
    ['letters above letters', [`x${'\u0363\u0364\u0365\u0366'.repeat(10)}`]],
    ['characters without width', [`hi${'\u200b\u200c\u2060\u200c'.repeat(10)}`]],
  ])('by %s is counted', async (_how, writes) => {
    const views = await viewsOf(['$ id\r\n', ...writes]);
    expect(views.index.hidden).toBeGreaterThanOrEqual(28);
    expect(views.alerts('hidden:>0')).toBe(true);
  });

  it.each([
    ['digits in a sequence without an end', [`\x1b[${'1;'.repeat(200)}`, '\x1b[m'.repeat(3)], 400],
    ['digits in strings', [`\x1b_${'0123456789'.repeat(100)}\x1b\\`], 1000],
    ['tag characters in strings', [`\x1b_${tag('a').repeat(1000)}\x1b\\`], 1000],
    ['final bytes of long sequences', [`\x1b[${'1;'.repeat(600)}kestrel`], 1201],
    [
      'final bytes of unknown sequences',
      Array.from('kestrel'.repeat(20), (letter) => `\x1b[?!${letter}`),
      124,
    ],
    ['final bytes of unknown escapes', Array.from('fastbytes'.repeat(20), (letter) => `\x1b${letter}`), 164],
    ['words in drawings', ['\x1b(0vault null mutual\x1b(B'], 15],
  ])('by %s is counted exactly', async (_how, writes, hidden) => {
    const views = await viewsOf(['$ id\r\n', ...writes]);
    expect(views.index.hidden).toBeGreaterThanOrEqual(hidden);
    expect(views.index.hidden).toBeLessThanOrEqual(hidden + 20);
  });

  it('is shown in the transcript although some of it is not counted', async () => {
    const views = await viewsOf([
      `\x1b_${text}\x1b\\`,
      ...Array.from({ length: 60 }, (_, at) => `\x1b_more text ${at}\x1b\\`),
    ]);
    const rows = views.transcript.hidden.rows.map(([, row]) => row);
    expect(rows).toContain(text);
    expect(rows).toContain('more text 59');
  });

  it('in strings of five letters is joined and exported, although it is not counted', async () => {
    const strings = (text.match(/.{1,5}/g) ?? []).map((piece) => `\x1b_${piece}\x1b\\`);
    const views = await viewsOf(['$ id\r\n', strings.join('')]);
    expect(views.index.hidden).toBe(0);
    expect(views.exported).toContain(`Text in control strings, such as window titles:\n`);
    expect(views.exported).toContain(text);
    expect(views.alerts('text:kestrel')).toBe(true);
  });

  it('is not counted in an honest session', async () => {
    const shell = Array.from(
      { length: 40 },
      (_, line) =>
        `\x1b]133;A\x07\x1bkbash\x1b\\\x1b]0;~\x07web-0:~$ ls dir${line}\r\n\x1bkls ` +
        `dir${line}\x1b\\\x1b]133;C\x07file\r\n\x1b]133;D;0\x07`,
    );
    const views = await viewsOf([
      ...shell,
      ...Array.from(
        { length: 200 },
        (_, at) =>
          `\x1b]7;file://web-0/srv\x07\x1b]0;alice@web-0: /srv/${at}\x07alice@web-0:/srv/${at}$ \r\n`,
      ),
      '\x1b]8;;http://a/b\x07link\x1b]8;;\x07 \x1b]11;?\x07\x1b]104\x07\x1b]112\x07\x1bP$qm\x1b\\',
      '\x1b[32;1;1;24;80$x\x1b[1;1;23;80;1;2;1;1$v',
      '👨\u200d👩\u200d👧 ❤\ufe0f\u200d🔥 1\ufe0f\u20e3 葛\u{e0100} ' +
        '\u{1f3f4}\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f} e\u0301',
      '\x1b[7;37mtab\x1b[0m \x1b[38;5;240mfaint\x1b[0m \x1b[30;47mbar\x1b[0m ' +
        '\x1b[8m\x1b7\x1b[0mshown\x1b[8m\x1b[!pshown',
    ]);
    expect(views.index.hidden).toBe(0);
    expect(views.alerts('hidden:>0')).toBe(false);
  });
});

describe('the size that a client reports', () => {
  it.each([
    { width: 1, height: 1 },
    { width: 19, height: 24 },
    { width: 80, height: 4 },
  ])('of %j is shown as it is, with a notice, and read as 80x24', async (size) => {
    const views = await viewsOf(['$ cat /etc/shadow\r\n', 'root:kestrel:19000\r\n'], size);
    expect(views.index.tinySize).toBe(`${size.width}x${size.height}`);
    expect(views.transcript.rows.map(([, text]) => text)).toEqual([
      '$ cat /etc/shadow',
      'root:kestrel:19000',
    ]);
    expect(views.exported).toContain('root:kestrel:19000');
    expect(views.finds('"root kestrel"')).toBe(true);
    expect(views.alerts('kestrel')).toBe(true);
  });

  it('is limited in every view', async () => {
    const views = await viewsOf(['$ cat /etc/shadow\r\n'], { width: 1_000_000, height: 1_000_000 });
    expect(views.screen).toBe('$ cat /etc/shadow');
    expect(views.finds('shadow')).toBe(true);
  });
});

/** The lines of a text without its colour sequences. */
function plainText(text: string): readonly string[] {
  return text.replaceAll(COLOUR, '').trim().split('\r\n');
}

// oxlint-disable-next-line no-control-regex -- a colour is a control sequence
const COLOUR = /\x1b\[[\d;]*m/g;

describe('a session without a terminal', () => {
  it('is lines: nothing of its output is executed', async () => {
    const views = await viewsOf(
      ['one\ntwo\x1b[2J\x1b[H', '\x1b[8mthree\x1b]0;kestrel\x07\rfour\n', '\x1b(0five\x1bPsix\n'],
      {
        width: 0,
        height: 0,
      },
    );
    const lines = ['one', 'twothree0;kestrel', 'four', 'fivesix'];
    expect(views.transcript.rows.map(([, text]) => text)).toEqual(lines);
    expect(views.screen.split('\n')).toEqual(lines);
    expect(plainText(views.played)).toEqual(lines);
    expect(views.finds('"twothree0 kestrel"')).toBe(true);
    expect(views.alerts('fivesix')).toBe(true);
    // every view contains the concealed text, but the player does not show it
    expect(views.index.hidden).toBe(lines.slice(1).join('').length - 'two'.length);
  });
});

describe('a flood', () => {
  it.each(['S', 'T', 'L', 'M', 'I', 'Z', '@', 'P', 'X', 'b'])(
    'of %s with the largest parameter costs no more than its bytes',
    async (final) => {
      const started = process.cpuUsage();
      const terminal = createTerminal({ columns: 80, rows: 24, withoutTerminal: false });
      for (let count = 0; count < 20; count += 1) await terminal.write(`x\x1b[2147483647${final}`.repeat(50));
      terminal.dispose();
      const { user } = process.cpuUsage(started);
      expect(user / 1e6).toBeLessThan(5);
    },
  );

  it('of overwritten characters at the end of a long line displaces no text of the transcript', async () => {
    const overwritten = Array.from({ length: 20_000 }, (_, at) => `${String.fromCharCode(97 + (at % 26))}\b`);
    const started = process.cpuUsage();
    const views = await viewsOf([`\x1b[H${'wxyz '.repeat(380)}`, overwritten.join(''), '\r\n', SECRET]);
    expect(process.cpuUsage(started).user / 1e6).toBeLessThan(5);
    expect(views.transcript.stoppedAt).toBeUndefined();
    expect(views.transcript.rows.map(([, text]) => text)).toContain('root:kestrel:19000');
    expect(views.finds('"root kestrel"')).toBe(true);
    expect(views.transcript.isPartial).toBe(false);
    expect(JSON.stringify(views.transcript.rows).length).toBeLessThan(400_000);
  });

  it('of visible text hides no invisible text behind it', async () => {
    const flood = Array.from(
      { length: 900 },
      (_, at) =>
        `${Array.from({ length: 1100 }, (__, word) => String(at * 1100 + word).padStart(9, '0')).join('')}\r\n`,
    );
    const views = await viewsOf([...flood, `\x1b[8m${SECRET}\x1b[m`]);
    expect(views.transcript.isPartial).toBe(true);
    expect(views.index.hidden).toBeGreaterThan(20);
    expect(views.transcript.hidden.rows.map(([, row]) => row)).toContain('root:kestrel:19000');
    expect(views.alerts('hidden:>0')).toBe(true);
  });

  it('of DEL bytes writes nothing to the console', async () => {
    const views = await viewsOf(['\x7f'.repeat(10_000), 'end\r\n']);
    expect(views.screen).toBe('end');
    expect(views.notices).toBe('');
  });
});
