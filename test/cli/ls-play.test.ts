import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { beforeAll, describe, expect, it } from 'vitest';
import { runProgram } from '../../src/cli/program.ts';
import { generateSigningKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { runCommand } from '../support/run-command.ts';
import { createRig, HEADER, holdSigner, uploadWhole } from '../tsrecorder/recorder-rig.ts';
import { openViewedRecorder } from '../tsrecorder/viewed-recorder.ts';

const NODE = 'nTEST1CNTRL';
const folder = mkdtempSync(join(tmpdir(), 'tailcast-ls-'));

function put(
  time: string,
  command: string,
  user: string,
  events: readonly unknown[],
  { store = folder, ...more }: { readonly store?: string; readonly tailcastCluster?: string } = {},
): void {
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
    ...more,
  };
  mkdirSync(join(store, NODE), { recursive: true });
  const lines = [header, ...events].map((line) => `${JSON.stringify(line)}\n`);
  writeFileSync(join(store, NODE, `${time}.cast`), lines.join(''));
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
  page?: (text: string) => Promise<boolean>,
): Promise<Ran> {
  let stdout = '';
  let stderr = '';
  const out = Object.assign(new PassThrough(), { isTTY, columns: 80, rows: 24 });
  out.on('data', (data) => (stdout += String(data)));
  const err = new PassThrough();
  err.on('data', (data) => (stderr += String(data)));
  const { signal } = new AbortController();
  const code = await runProgram(['ls', ...(args.includes('--store') ? [] : ['--store', folder]), ...args], {
    stdout: out,
    stderr: err,
    environment,
    signal,
    ...(page === undefined ? {} : { page }),
  });
  return { code, stdout, stderr };
}

/** The last column of the list, in the order of the rows. */
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
    expect(stdout.split('\n')[0]).toMatch(
      /^ID +TRUST +STARTED +WHO +WHERE +LENGTH +SIZE +STATE +RESULT +COMMAND$/,
    );
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
      ['--trust', 'unverified', '--state', 'completed'],
      ['third', 'second', 'first'],
    ],
    [['--trust', 'verified'], []],
    [['--result', '0'], []],
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

  it('filters by cluster, and shows its name before the namespace', async () => {
    const store = join(folder, 'clusters');
    mkdirSync(store);
    for (const [second, name] of ['prod', 'dev', 'Prod/web'].entries())
      put(`2026-01-02T03:04:0${second}Z`, `in ${name}`, 'alice@example.com', [[1, 'o', 'x']], {
        store,
        tailcastCluster: name,
      });
    expect(commands(await ls(['--store', store, '--cluster', 'prod']))).toEqual(['in prod']);
    expect(commands(await ls(['--store', store, '--cluster', 'Prod/web']))).toEqual([]);
    const { stdout } = await ls(['--store', store, '--columns', 'cluster,where']);
    expect(
      stdout
        .split('\n')
        .slice(1, 4)
        .map((line) => line.trim()),
    ).toEqual(['prod/web-0', 'dev      dev:prod/web-0', 'prod     prod:prod/web-0']);
  });

  it('prints the columns that are named', async () => {
    const { stdout } = await ls(['--columns', 'command,who', '--limit', '1']);
    expect(stdout).toBe('COMMAND  WHO\nthird    carol@example.com\n');
  });

  it('takes no word of a store for trust: only the keys that are named prove a recording', async () => {
    await using rig = await createRig();
    await uploadWhole(rig.recorder, HEADER);
    const store = ['--store', rig.directory];
    const trust = async (
      args: readonly string[],
      environment?: Map<string, string>,
    ): Promise<readonly unknown[]> => {
      const { stdout } = await ls([...store, ...args, '--json'], false, environment);
      const { trust: level, trustReason } = JSON.parse(stdout) as Record<string, unknown>;
      return [level, trustReason];
    };
    expect((await ls(store)).stdout).toMatch(/^ID +TRUST .*\n\S+ +unverified /);
    expect(await trust([])).toEqual(['unverified', expect.stringContaining('--recorder-keys')]);
    const { key } = await holdSigner(rig);
    const own = join(rig.directory, 'own.pem');
    const other = join(rig.directory, 'other.pem');
    writeFileSync(own, key.public.pem);
    writeFileSync(other, generateSigningKey().public.pem);
    expect(await trust(['--recorder-keys', own])).toEqual(['verified', undefined]);
    expect(await trust([], new Map([['TAILCAST_RECORDER_KEYS', own]]))).toEqual(['verified', undefined]);
    expect(await trust(['--recorder-keys', other])).toEqual([
      'unverified',
      `it is signed by the key ${key.public.id}, which is not trusted`,
    ]);
    const [{ id } = { id: '' }] = await rig.list();
    const sidecar = join(rig.directory, `${id.replace('_', '/')}.json`);
    writeFileSync(sidecar, readFileSync(sidecar, 'utf8').replace('a@example.com', 'b@example.com'));
    expect((await trust(['--recorder-keys', own]))[0]).toBe('failed');
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

  it('fits 80 columns at a terminal, with short ids that other commands take', async () => {
    const { stdout } = await ls([], true, new Map([['NO_COLOR', '1']]));
    const lines = stdout.trimEnd().split('\n');
    expect(lines[0]).toMatch(/^ID +TRUST +STARTED +WHO +WHERE +STATE +COMMAND$/);
    for (const line of lines) expect(line.length).toBeLessThanOrEqual(80);
    const ids = lines.slice(1).map((line) => line.split(' ')[0] ?? '');
    expect(new Set(ids).size).toBe(3);
    for (const id of ids) expect(id).toMatch(/^[0-9a-f]{6}$/);
    const found = await runCommand('play', ids[0]!, '--store', folder, '--speed', '1000');
    expect(found.out).toContain('the end');
    const wide = await ls(['--wide'], true);
    expect(wide.stdout).toContain(`${NODE}_2026-01-03T03:04:05.000000000Z`);
  });

  it('shortens other columns before the command at 80 columns', async () => {
    const store = join(folder, 'long');
    mkdirSync(store);
    const command = 'kubectl rollout restart deployment/checkout --namespace shop';
    for (const second of [1, 2])
      put(
        `2026-01-02T03:04:0${second}Z`,
        command,
        'a.rather.long.name@engineering.example.com',
        [[1, 'o', 'x']],
        {
          store,
          tailcastCluster: 'production-europe-west',
        },
      );
    const { stdout } = await ls(['--store', store], true, new Map([['NO_COLOR', '1']]));
    const [header = '', ...lines] = stdout.trimEnd().split('\n');
    for (const line of lines) {
      expect(line.length).toBeLessThanOrEqual(80);
      expect(line.slice(header.indexOf('COMMAND'))).toMatch(/^kubectl rollout restart/);
      expect(line).toContain(' a.rath…  ');
    }
    const coloured = (await ls(['--store', store], true)).stdout;
    expect(coloured).toContain('\x1b[31munver');
    expect(coloured).toMatch(/ compl\S* /);
  });

  it('cuts long cells at a narrow terminal, wide characters included', async () => {
    const many = mkdtempSync(join(tmpdir(), 'tailcast-ls-'));
    const header = {
      version: 2,
      width: 80,
      height: 24,
      timestamp: 1,
      command: '漢字'.repeat(60),
      tailcast: 1,
    };
    mkdirSync(join(many, NODE));
    writeFileSync(join(many, NODE, '2026-01-02T03:04:05.000000000Z.cast'), `${JSON.stringify(header)}\n`);
    const { stdout } = await ls(['--store', many], true, new Map([['NO_COLOR', '1']]));
    rmSync(many, { recursive: true });
    const [, line = ''] = stdout.split('\n');
    const columns = Array.from(line).reduce((sum, letter) => sum + (letter > '\u2e80' ? 2 : 1), 0);
    expect(columns).toBeGreaterThan(70);
    expect(columns).toBeLessThanOrEqual(80);
    expect(line).toMatch(/…$/);
  });

  it('opens a pager at a terminal only', async () => {
    const pages: string[] = [];
    const page = (text: string): Promise<boolean> => {
      pages.push(text);
      return Promise.resolve(true);
    };
    expect((await ls([], true, new Map(), page)).stdout).toBe('');
    expect(pages.join()).toContain('third');
    expect((await ls([], false, new Map(), page)).stdout).toContain('third');
    expect(pages).toHaveLength(1);
    expect((await ls([], true, new Map(), () => Promise.resolve(false))).stdout).toContain('third');
  });

  it('names the viewer if no viewer rule matches', async () => {
    const { rig, as } = await openViewedRecorder(['carol@example.com']);
    const list = (...more: string[]) => runCommand('ls', '--recorder', rig.recorder.url, ...more);
    expect(await list()).toMatchObject({ code: 0, err: 'no recording matches\n' });
    as({ node: 'laptop.tail1.ts.net', nodeId: 'nLAP', user: 'mallory@example.com' });
    const { code, out, err } = await list('--user', 'alice@example.com');
    expect([code, out]).toEqual([0, '']);
    expect(err).toMatch(/^no viewer rule matches mallory@example\.com: .*--viewers/);
  });

  it('says which states there are', async () => {
    const { code, stderr } = await ls(['--state', 'opne']);
    expect(code).toBe(2);
    expect(stderr).toMatch(/--state.*opne.*running, completed/);
    expect(stderr).not.toMatch(/[{}]/);
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

  /** Runs `tailcast play` with a simulated terminal, and presses each key after the expected output. */
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
    // sequences that could control the viewer's terminal are removed
    expect(stdout).not.toContain('\x1b]52');
  });

  it('says what is missing before it plays', async () => {
    const store = mkdtempSync(join(tmpdir(), 'tailcast-ls-'));
    mkdirSync(join(store, NODE));
    const lines = readFileSync(file, 'utf8').split('\n').slice(0, 2);
    writeFileSync(
      join(store, NODE, '2026-01-04T03:04:05.000000000Z.cast'),
      `${lines.join('\n')}\n[2,"o","cu`,
    );
    const { out, err } = await runCommand('play', 'latest', '--store', store, '--speed', '1000');
    rmSync(store, { recursive: true });
    expect(out).toContain('the beginning');
    expect(err).toMatch(/^tailcast: interrupted: the recording ends inside of a line\n/);
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

  it.each([
    ['9999', /--from: 2:46:39 is after the end of the recording at 16:40/],
    ['99:99', /--from: 99:99 is not a time/],
    ['1:60', /--from: 1:60 is not a time/],
  ])('refuses --from %s', async (from, message) => {
    for (const place of [[file], ['third', '--store', folder].with(0, `${NODE}_2026-01-04`)]) {
      const { code, out, err } = await runCommand('play', ...place, '--from', from);
      expect([code, out]).toEqual([2, '']);
      expect(err).toMatch(message);
    }
  });

  it('says when the terminal is too small, resizes it with --fit, and ends visibly', async () => {
    const run = async (columns: number, ...args: string[]): Promise<Ran> => {
      let stdout = '';
      let stderr = '';
      const out = Object.assign(new PassThrough(), { isTTY: true, columns, rows: 24 });
      out.on('data', (data) => (stdout += String(data)));
      const err = new PassThrough().on('data', (data) => (stderr += String(data)));
      const code = await runProgram(['play', file, '--speed', '1000', ...args], {
        stdout: out,
        stderr: err,
        environment: new Map(),
        signal: AbortSignal.timeout(30_000),
      });
      return { code, stdout, stderr };
    };
    const small = await run(60);
    expect(small.stderr).toMatch(/80 columns and 24 rows, this terminal 60 and 24: enlarge it, or use --fit/);
    expect(small.stdout).toMatch(/end of the recording\n$/);
    const fitted = await run(60, '--fit');
    expect(fitted.stderr).toBe('');
    expect(fitted.stdout.startsWith('\x1b[8;24;80t')).toBe(true);
    expect(fitted.stdout.endsWith('\x1b[8;24;60tend of the recording\n')).toBe(true);
    expect((await run(80)).stderr).toBe('');
  });

  it('says at the end that it is the end', async () => {
    const { code } = await play([
      [/the beginning/, 'g'],
      [/go to /, '16:40\r'],
      [/16:40\.0/, ' '],
      [/end of the recording/, 'q'],
    ]);
    expect(code).toBe(0);
  });
});
