import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runProgram } from '../../src/cli/program.ts';

const NODE = 'nTEST1CNTRL';
const folder = mkdtempSync(join(tmpdir(), 'tailcast-ls-'));
afterAll(() => rmSync(folder, { recursive: true }));

function put(time: string, command: string, user: string, events: readonly unknown[]): void {
  const header = {
    version: 2,
    width: 80,
    height: 24,
    timestamp: Date.parse(time) / 1000,
    command,
    srcNode: 'laptop.example.ts.net',
    srcNodeID: 'nLAP',
    srcNodeUser: user,
    kubernetes: { PodName: 'web-0', Namespace: 'prod', Container: 'app', SessionType: 'exec' },
    tailcast: 1,
  };
  mkdirSync(join(folder, NODE), { recursive: true });
  const lines = [header, ...events].map((line) => `${JSON.stringify(line)}\n`);
  writeFileSync(join(folder, NODE, `${time}.cast`), lines.join(''));
}

beforeAll(() => {
  put('2026-01-02T03:04:05.000000000Z', 'first', 'alice@example.com', [[1, 'o', 'x'.repeat(3000)]]);
  put('2026-01-03T03:04:05.000000000Z', 'second', 'bob@example.com', [[9, 'o', 'short']]);
  put('2026-01-04T03:04:05.000000000Z', 'third', 'carol@example.com', [
    [1, 'o', 'the beginning\r\n'],
    [500, 'o', '\x1b]52;c;aGk=\x07the word zephyr\r\n'],
    [1000, 'o', 'the end\r\n'],
  ]);
});

interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

async function ls(
  args: readonly string[],
  isTTY = false,
  environment = new Map<string, string>(),
): Promise<Ran> {
  let stdout = '';
  let stderr = '';
  const out = Object.assign(new PassThrough(), { isTTY });
  out.on('data', (data) => (stdout += String(data)));
  const err = new PassThrough();
  err.on('data', (data) => (stderr += String(data)));
  const { signal } = new AbortController();
  const code = await runProgram(['ls', ...(args.includes('--store') ? [] : ['--store', folder]), ...args], {
    stdout: out,
    stderr: err,
    environment,
    signal,
  });
  return { code, stdout, stderr };
}

/** The commands that are listed, in their order. */
function commands({ stdout }: Ran): readonly string[] {
  return stdout
    .trim()
    .split('\n')
    .slice(1)
    .map((line) => line.split(/ {2,}/).at(-1) ?? '');
}

describe('tailcast ls', () => {
  it('says when each began', async () => {
    const { stdout, code } = await ls([]);
    expect(stdout.split('\n')[0]).toMatch(/^ID +STARTED +WHO +WHERE +LENGTH +SIZE +STATE +EXIT +COMMAND$/);
    expect(stdout).toContain('2026-01-03T03:04:05Z');
    expect(code).toBe(0);
  });

  it.each([
    [
      ['--since', '2026-01-03'],
      ['third', 'second'],
    ],
    [['--until', '2026-01-03T03:04:05Z'], ['first']],
    [['--text', 'ALICE'], ['first']],
    [
      ['--sort', 'size'],
      ['second', 'third', 'first'],
    ],
    [['--sort', '-size', '--limit', '1'], ['first']],
    [
      ['--sort', 'who'],
      ['first', 'second', 'third'],
    ],
    [
      ['--sort', 'started'],
      ['first', 'second', 'third'],
    ],
  ])('%j', async (args, wanted) => {
    expect(commands(await ls(args))).toEqual(wanted);
  });

  it('prints the columns that are named', async () => {
    const { stdout } = await ls(['--columns', 'command,who', '--limit', '1']);
    expect(stdout).toBe('COMMAND  WHO\nthird    carol@example.com\n');
  });

  it('has colours for people only', async () => {
    const damaged = mkdtempSync(join(tmpdir(), 'tailcast-ls-'));
    mkdirSync(join(damaged, NODE));
    writeFileSync(join(damaged, NODE, '2026-01-02T03:04:05.000000000Z.cast'), 'no header\n');
    const store = ['--store', damaged];
    expect((await ls(store, true)).stdout).toContain('\x1b[31mdamaged');
    expect((await ls(store)).stdout).toMatch(/ {2}damaged/);
    expect((await ls(store, true, new Map([['NO_COLOR', '1']]))).stdout).not.toContain('\x1b');
    rmSync(damaged, { recursive: true });
  });

  it.each([[['--since', 'yesterday']], [['--columns', 'nope']], [['--sort', 'nope']], [['--limit', 'many']]])(
    'ends with 2 for wrong usage: %j',
    async (args) => {
      const { code, stderr } = await ls(args);
      expect(code).toBe(2);
      expect(stderr).toContain(args[0]);
    },
  );
});

describe('tailcast play', () => {
  const file = join(folder, NODE, '2026-01-04T03:04:05.000000000Z.cast');

  /** Plays at a terminal; each key is pressed once what is before it was seen. */
  async function play(
    steps: readonly (readonly [seen: RegExp, keys: string])[],
    ...args: string[]
  ): Promise<Ran> {
    let stdout = '';
    const keys = Object.assign(new PassThrough(), { isTTY: true, setRawMode: () => undefined });
    const out = Object.assign(new PassThrough(), { isTTY: true, rows: 24, columns: 80 });
    const waiting = [...steps];
    let seenTo = 0;
    const press = (): void => {
      const [next] = waiting;
      const found = next === undefined ? null : next[0].exec(stdout.slice(seenTo));
      if (next === undefined || found === null) return;
      seenTo += found.index + found[0].length;
      waiting.shift();
      keys.write(next[1]);
    };
    out.on('data', (data) => {
      stdout += String(data);
      press();
    });
    const code = await runProgram(['play', file, ...args], {
      stdout: out,
      stderr: new PassThrough(),
      stdin: keys,
      environment: new Map(),
      signal: AbortSignal.timeout(30_000),
    });
    expect(waiting).toEqual([]);
    return { code, stdout, stderr: '' };
  }

  it('pauses, goes to a time, finds, and quits', async () => {
    const { code, stdout } = await play([
      [/the beginning/, ' '],
      [/0:0\d\.\d \/ .*space play/, 'g'],
      [/go to /, '16:40\r'],
      [/the end[^]*16:40\.0/, '/'],
      [/\//, 'ZEPHYR\r'],
      [/zephyr is not after this/, 'N'],
      [/the word zephyr[^]*8:20\.0/, 'q'],
    ]);
    expect(code).toBe(0);
    // what could drive the terminal of whoever watches stays out
    expect(stdout).not.toContain('\x1b]52');
  });

  it('begins where it is told', async () => {
    const { stdout } = await play([[/the word zephyr/, 'q']], '--from', '8:20');
    expect(stdout).not.toContain('the end');
    expect(stdout).toContain('the beginning');
  });

  it('begins there without a terminal too, and says what is no time', async () => {
    let stdout = '';
    let stderr = '';
    const out = new PassThrough().on('data', (data) => (stdout += String(data)));
    const err = new PassThrough().on('data', (data) => (stderr += String(data)));
    const context = { stdout: out, stderr: err, environment: new Map(), signal: AbortSignal.timeout(30_000) };
    expect(await runProgram(['play', file, '--from', '999', '--speed', '1000'], context)).toBe(0);
    expect(stdout).toContain('the end');
    expect(await runProgram(['play', file, '--from', 'noon'], context)).toBe(2);
    expect(stderr).toContain('--from');
  });
});
