/**
 * Recordings for comparing screens: real programs on a pseudo-terminal, and streams with the features that programs
 * use.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openTerminal, type Terminal } from '../rig/terminal.ts';
import type { CastLine, CastSpec } from './casts.ts';

interface Program {
  readonly name: string;
  readonly path: string;
  readonly args: readonly string[];
  readonly columns: number;
  readonly rows: number;
  /** Input of a user: keystrokes, terminal sizes, and pauses in milliseconds. */
  readonly does: readonly (string | number | readonly [columns: number, rows: number])[];
}

const KEYS = { escape: '\x1b', enter: '\r', prefix: '\x02' };
const TEXT = Array.from(
  { length: 300 },
  (_, line) => `${line + 1} größe 漢字 ${'lorem ipsum dolor sit amet '.repeat(1 + (line % 4))}`,
).join('\n');

function programs(folder: string): readonly Program[] {
  const file = join(folder, 'text.txt');
  writeFileSync(file, TEXT);
  const at80 = { columns: 80, rows: 24 };
  const at120 = { columns: 120, rows: 40 };
  const vim = { path: '/usr/bin/vim', args: ['-u', 'NONE', '-N', '-n', file] };
  const less = { path: '/usr/bin/less', args: [file] };
  const tmux = {
    path: '/usr/bin/tmux',
    args: ['-L', folder.replaceAll('/', '_'), '-f', '/dev/null', 'new', 'sh'],
  };
  const top = { path: '/usr/bin/top', args: ['-d', '0.3'] };
  const quit = [KEYS.escape, ':q!', KEYS.enter];
  return [
    {
      name: 'vim',
      ...vim,
      ...at80,
      does: [400, 'ihello ', KEYS.escape, 'yyp', 200, ':set number', KEYS.enter, 200, 'G', 200, ...quit],
    },
    {
      name: 'vim resized',
      ...vim,
      ...at80,
      does: [400, 'G', 200, [130, 40], 400, 'gg', 200, 'O新しい行', KEYS.escape, 200, ...quit],
    },
    {
      name: 'vim made smaller',
      ...vim,
      ...at120,
      does: [400, '\x06', 200, [60, 15], 400, '\x06', 200, ...quit],
    },
    {
      name: 'vim in windows',
      ...vim,
      ...at120,
      does: [
        400,
        ':vsplit',
        KEYS.enter,
        ':split',
        KEYS.enter,
        300,
        '/ipsum',
        KEYS.enter,
        200,
        'nn',
        200,
        ':qa!',
        KEYS.enter,
      ],
    },
    {
      name: 'vim with colours',
      ...vim,
      ...at80,
      does: [
        400,
        ':set hlsearch t_Co=256 cursorline',
        KEYS.enter,
        ':syntax on',
        KEYS.enter,
        '/dolor',
        KEYS.enter,
        300,
        'jjj',
        200,
        ...quit,
      ],
    },
    {
      name: 'less',
      ...less,
      ...at80,
      does: [300, ' ', 150, ' ', 150, 'b', 150, '/ipsum', KEYS.enter, 200, 'n', 150, 'G', 150, 'q'],
    },
    {
      name: 'less resized',
      ...less,
      ...at80,
      does: [300, ' ', 150, [100, 30], 300, ' ', 150, [50, 12], 300, 'b', 150, 'q'],
    },
    { name: 'top', ...top, ...at80, does: [900, 'z', 500, 'x', 500, 'q'] },
    { name: 'top resized', ...top, ...at80, does: [700, [140, 45], 900, '1', 400, 'q'] },
    {
      name: 'tmux',
      ...tmux,
      ...at80,
      does: [
        500,
        `echo one${KEYS.enter}`,
        200,
        `${KEYS.prefix}%`,
        300,
        `seq 1 60${KEYS.enter}`,
        300,
        `${KEYS.prefix}"`,
        300,
        `ls /${KEYS.enter}`,
        300,
        `${KEYS.prefix}:kill-server${KEYS.enter}`,
        200,
      ],
    },
    {
      name: 'tmux resized',
      ...tmux,
      ...at80,
      does: [
        500,
        `${KEYS.prefix}"`,
        300,
        [120, 36],
        400,
        `seq 1 50${KEYS.enter}`,
        300,
        `${KEYS.prefix}[`,
        200,
        '\x1b[A\x1b[A\x1b[A',
        200,
        'q',
        `${KEYS.prefix}:kill-server${KEYS.enter}`,
        200,
      ],
    },
    {
      name: 'shell',
      path: '/bin/bash',
      args: ['--norc', '-i'],
      ...at80,
      does: [
        300,
        `for n in 1 2 3; do printf '\\e[3%dmcolour %d\\e[0m\\n' $n $n; done${KEYS.enter}`,
        200,
        `seq 1 100 | column${KEYS.enter}`,
        200,
        `echo ${'long '.repeat(40)}${KEYS.enter}`,
        200,
        '\x1b[A',
        150,
        '\x03',
        150,
        `exit${KEYS.enter}`,
      ],
    },
  ];
}

/** Runs all programs at the same time. */
export async function captureAll(): Promise<readonly CastSpec[]> {
  const folder = mkdtempSync(join(tmpdir(), 'tccap-'));
  try {
    const captured: CastSpec[] = [];
    for (const program of programs(folder)) captured.push(await capture(program, folder));
    return [...captured, ...streams()];
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function capture(program: Program, home: string): Promise<CastSpec> {
  const { columns, rows, name, path, args, does } = program;
  const events: CastLine[] = [];
  const started = performance.now();
  const now = (): number => Math.round((performance.now() - started) * 1000) / 1e6;
  const env = {
    TERM: 'xterm-256color',
    HOME: home,
    PATH: '/usr/bin:/bin',
    LANG: 'C.UTF-8',
    LC_ALL: 'C.UTF-8',
    SHELL: '/bin/sh',
  };
  const terminal: Terminal = openTerminal(path, args, {
    env,
    columns,
    rows,
    onOutput: (text) => events.push([now(), 'o', text]),
  });
  for (const step of does) {
    if (typeof step === 'number') await new Promise((resolve) => setTimeout(resolve, step));
    else if (typeof step === 'string') terminal.type(step);
    else {
      events.push([now(), 'r', `${step[0]}x${step[1]}`]);
      terminal.resize(step[0], step[1]);
    }
  }
  const timer = setTimeout(() => terminal.kill(), 5000);
  await terminal.ended;
  clearTimeout(timer);
  return { command: name, columns, rows, events };
}

/** Returns synthetic recordings of rarely used characters and control sequences, one recording per topic. */
function streams(): readonly CastSpec[] {
  const at = (row: number, column: number): string => `\x1b[${row};${column}H`;
  const all: Readonly<Record<string, readonly (string | readonly [number, number])[]>> = {
    'wide characters': [
      '漢字かな交じり文\r\n',
      '한국어 텍스트\r\n',
      `${at(5, 79)}漢`,
      `${at(6, 80)}漢字`,
      `${at(1, 2)}x`,
    ],
    'combining marks': ['e\u0301 n\u0303 a\u0308\u0304\r\n', 'क्षि देवनागरी\r\n', 'عربي עברית\r\n'],
    emoji: ['👍 🚀 ✅ ⚠ ❤\r\n', '🇩🇪 👩‍💻\r\n'],
    'line graphics': [
      '\x1b(0lqqqqk\r\nx    x\r\nmqqqqj\x1b(B\r\n',
      '┌──┬──┐\r\n│▀▄│█░│\r\n└──┴──┘\r\n',
      '\x1b)0\x0eaaqq\x0fqq',
    ],
    'the palette': Array.from(
      { length: 16 },
      (_, row) =>
        `${Array.from({ length: 16 }, (__, n) => `\x1b[48;5;${row * 16 + n}m\x1b[38;5;${255 - row * 16 - n}m${n % 10} `).join('')}\x1b[0m\r\n`,
    ),
    'true colour': Array.from(
      { length: 8 },
      (_, row) =>
        `${Array.from({ length: 70 }, (__, n) => `\x1b[48;2;${n * 3};${row * 30};${255 - n * 3}m `).join('')}\x1b[0m\r\n`,
    ),
    attributes: [
      '\x1b[1mbold\x1b[0m \x1b[2mdim\x1b[0m \x1b[3mitalic\x1b[0m \x1b[4munder\x1b[0m \x1b[7minverse\x1b[0m ' +
        '\x1b[8mhidden\x1b[0m \x1b[9mstruck\x1b[0m \x1b[53mover\x1b[0m\r\n',
      '\x1b[1;31;44mall \x1b[7mof it\x1b[0m\r\n',
      '\x1b[7mblank   \x1b[0m',
    ],
    'scroll region': [
      'top\r\n',
      '\x1b[3;10r',
      at(10, 1),
      ...Array.from({ length: 20 }, (_, n) => `row ${n}\r\n`),
      '\x1b[r',
      at(24, 1),
      'bottom',
    ],
    'insert and delete': [
      ...Array.from({ length: 10 }, (_, n) => `line ${n} abcdefghij\r\n`),
      `${at(3, 3)}\x1b[2L`,
      `${at(5, 1)}\x1b[3M`,
      `${at(2, 4)}\x1b[4@`,
      `${at(6, 4)}\x1b[3P`,
      `${at(7, 2)}\x1b[5X`,
    ],
    'erase with colour': [
      '\x1b[44m\x1b[2J',
      'on blue',
      '\x1b[41m\x1b[K\r\n',
      '\x1b[0m\x1b[1K',
      `${at(5, 5)}\x1b[42m\x1b[J`,
    ],
    'alternate screens': [
      'shell\r\n',
      '\x1b[?1049h\x1b[2Jfull screen',
      `${at(10, 10)}box`,
      '\x1b[?1049l',
      'back\r\n',
      '\x1b[?47h',
      'old kind',
      '\x1b[?47l',
    ],
    'origin and margins': [
      '\x1b[5;15r\x1b[?6h',
      `${at(1, 1)}first of region`,
      `${at(99, 1)}last of region`,
      '\x1b[?6l',
      `${at(1, 1)}home`,
    ],
    progress: Array.from({ length: 40 }, (_, n) => `\r${'#'.repeat(n)}${'.'.repeat(40 - n)} ${n}%`),
    tabs: ['a\tb\tc\r\n', '\x1b[3g', `${at(2, 5)}\x1bH${at(2, 20)}\x1bH\r\n`, 'x\ty\tz\r\n', '\x1b[2Zq'],
    'wrapping at the edge': [
      'x'.repeat(80),
      'y',
      '\r\n',
      'z'.repeat(200),
      '\x1b[?7l',
      'w'.repeat(100),
      '\x1b[?7h',
    ],
    'resizes of a shell': [
      ...Array.from({ length: 30 }, (_, n) => `prompt ${n} ${'word '.repeat(20)}\r\n`),
      [40, 12],
      'narrow\r\n',
      [130, 40],
      'wide '.repeat(30),
      [80, 24],
      '\r\nagain',
    ],
    'hostile strings': [
      '\x1b]0;title\x07',
      '\x1b]52;c;aGFja2Vk\x07',
      '\x1b]8;;https://example.com\x07link\x1b]8;;\x07\r\n',
      '<img src=x onerror=alert(1)>\r\n',
      '\x1bP1$q"p\x1b\\',
      '\x1b[c\x1b[6n',
      '\u202eright to left\u202c\r\n',
    ],
    'saved cursors': ['one\x1b7', at(10, 10), 'two\x1b8three', '\x1b[s', at(12, 1), 'four\x1b[ufive'],
    repeat: ['a\x1b[10b\r\n', '漢\x1b[3b\r\n', '\x1b[5;5HX\x1b[1;80Hend'],
  };
  return Object.entries(all).map(([command, pieces]) => ({
    command,
    columns: 80,
    rows: 24,
    events: pieces.map((piece, index): CastLine => {
      const seconds = Math.round((index + 1) * 100) / 1000;
      return typeof piece === 'string' ? [seconds, 'o', piece] : [seconds, 'r', `${piece[0]}x${piece[1]}`];
    }),
  }));
}
