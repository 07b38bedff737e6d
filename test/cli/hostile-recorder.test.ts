import { existsSync, mkdtempSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { runProgram } from '../../src/cli/program.ts';

/**
 * A text that writes the clipboard, sets a title, clears the screen, and contains C1 and bidi controls, line breaks and
 * a forged line.
 */
const HOSTILE =
  'x\x1b]52;c;aGk=\x07\x1b]0;title\x1b\\\x1b[2J\x9b2J\x9d0;t\x9c\x90q\x9c\u202eabc\u2066\u200b\u2028\x7f\b\r\nFORGED line\u0085y';
/**
 * Characters that control a terminal or change the displayed order of text. Tabs and line feeds are allowed in output.
 */
const DRIVES_TERMINAL =
  // oxlint-disable-next-line no-control-regex -- the pattern matches control characters
  /[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]/u;
const ID = 'nTEST_2026-01-02T03:04:05.000000000Z';
const OTHER_ID = 'nTEST_2026-01-03T03:04:05.000000000Z';

let server: Server;
let base: string;
let folder: string;
/** Response by path, or one response for all paths. */
let respond: (path: string) => {
  readonly status?: number;
  readonly body: unknown;
  /** True if the body is repeated until the client closes the connection. */
  readonly isEndless?: boolean;
};

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'tailcast-hostile-'));
  respond = respondHostile;
  server = createServer((request, response) => {
    const {
      status = 200,
      body,
      isEndless,
    } = respond(new URL(request.url ?? '/', 'http://recorder').pathname);
    response.writeHead(status, { 'content-type': 'application/json' });
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    if (isEndless !== true) return void response.end(text);
    const repeat = (): void => {
      while (!response.destroyed && response.write(text));
    };
    response.on('drain', repeat);
    repeat();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});

afterEach(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

function recording(id: string): object {
  return {
    id,
    key: HOSTILE,
    state: HOSTILE,
    startedAt: HOSTILE,
    durationSeconds: 1,
    bytes: 1,
    width: 80,
    height: 24,
    command: HOSTILE,
    kind: HOSTILE,
    source: { node: HOSTILE, nodeId: HOSTILE, user: HOSTILE },
    destination: { node: HOSTILE, nodeId: HOSTILE },
    kubernetes: { namespace: HOSTILE, pod: HOSTILE, container: HOSTILE },
    result: 'failed to start',
    resultMessage: HOSTILE,
    problem: HOSTILE,
  };
}

function respondHostile(path: string): { readonly body: unknown } {
  const hit = { at: 1, text: HOSTILE, marks: [], isCommand: true };
  const index = { state: 'building', sessions: 1, partial: 1, bytes: 1, backlog: 1, lagSeconds: 1 };
  if (path.endsWith('/recordings')) return { body: { recordings: [recording(ID), recording(OTHER_ID)] } };
  if (path.endsWith('/search'))
    return {
      body: { sessions: [{ recording: recording(ID), hits: [hit], more: true, partial: true }], index },
    };
  if (path.endsWith('/index/verify'))
    return {
      body: [
        { recording: HOSTILE, fault: HOSTILE },
        { done: true, checked: 1, faults: 1, pending: 0 },
      ]
        .map((line) => `${JSON.stringify(line)}\n`)
        .join(''),
    };
  if (path.endsWith('/index')) return { body: { ...index, problem: HOSTILE } };
  if (path.endsWith('/transcript'))
    return {
      body: { rows: [[1, HOSTILE]], hidden: { characters: 1, rows: [[1, HOSTILE]] }, isPartial: false },
    };
  if (path.endsWith('/cast')) return { body: `${HOSTILE}\n` };
  if (path.endsWith('/notes') || path.endsWith('/sidecar')) return { body: HOSTILE };
  return { body: {} };
}

interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

async function run(args: readonly string[], isTTY = false): Promise<Ran> {
  let stdout = '';
  let stderr = '';
  const out = Object.assign(new PassThrough(), { isTTY, columns: 80, rows: 24 });
  const err = Object.assign(new PassThrough(), { isTTY });
  out.on('data', (data) => (stdout += String(data)));
  err.on('data', (data) => (stderr += String(data)));
  const code = await runProgram(args, {
    stdout: out,
    stderr: err,
    environment: new Map([
      ['TAILCAST_RECORDER', base],
      ['NO_COLOR', '1'],
    ]),
    signal: AbortSignal.timeout(20_000),
  });
  return { code, stdout, stderr };
}

function expectHarmless({ stdout, stderr }: Ran): void {
  for (const text of [stdout, stderr]) {
    expect(DRIVES_TERMINAL.exec(text)?.[0].codePointAt(0)?.toString(16)).toBeUndefined();
    expect(text).not.toMatch(/^FORGED/m);
  }
}

const COMMANDS: readonly (readonly string[])[] = [
  ['ls'],
  ['ls', '--json'],
  ['ls', '--columns', 'id,started,who,from,where,container,kind,state,problem,command'],
  ['search', 'x'],
  ['search', 'x', '--json'],
  ['index', 'status'],
  ['index', 'status', '--json'],
  ['index', 'verify'],
  ['index', 'verify', '--json'],
  ['play', 'latest'],
  ['play', 'nTEST'],
  ['export', 'nTEST', '--output', '-'],
  ['coverage', 'AUDIT'],
];

describe('a hostile recorder', () => {
  it.each(COMMANDS.flatMap((args) => [[args, false] as const, [args, true] as const]))(
    'cannot drive the terminal: %j, terminal %j',
    async (args, isTTY) => {
      const audit = join(folder, 'audit.log');
      writeFileSync(audit, '{}\n');
      const ran = await run(
        args.map((word) => (word === 'AUDIT' ? audit : word)),
        isTTY,
      );
      expect(ran.stdout + ran.stderr).not.toBe('');
      expectHarmless(ran);
    },
  );

  it.each(['txt', 'cast', 'stdout'])('cannot drive the terminal with an export as %s', async (format) => {
    const { stdout, stderr } = await run(['export', ID, '--format', format, '--output', '-'], true);
    expect(stdout + stderr).not.toBe('');
    expect(DRIVES_TERMINAL.exec(stdout.replaceAll('\x08', '').replaceAll('\r', '') + stderr)).toBeNull();
  });

  it.each([400, 403, 404, 421, 500, 503])('cannot drive the terminal with an error %i', async (status) => {
    const bodies = [HOSTILE, { code: HOSTILE, message: HOSTILE }, { kind: 'Status', message: HOSTILE }];
    for (const body of bodies) {
      respond = () => ({ status, body });
      for (const args of COMMANDS) {
        const ran = await run(args.map((word) => (word === 'AUDIT' ? '/dev/null' : word)));
        expect(ran.code).not.toBe(0);
        expectHarmless(ran);
      }
    }
  });

  it.each([200, 500])('gets a sentence for a response %i without an end', async (status) => {
    respond = () => ({ status, body: ' '.repeat(1024 ** 2), isEndless: true });
    const ran = await run(['ls']);
    expect(ran.stderr).toMatch(/^tailcast: the recorder .*RECORDER_UNREACHABLE/ms);
    expect(ran.stderr).toContain(status === 200 ? 'the response is too large' : 'it answered 500');
  });

  it('gets a sentence for a list without an end', async () => {
    const { key, state, startedAt } = {
      key: `${ID}.cast`,
      state: 'completed',
      startedAt: '2026-01-02T03:04:05Z',
    };
    const listed = {
      ...recording(ID),
      key,
      state,
      startedAt,
      kind: 'exec',
      result: undefined,
      command: 'x'.repeat(64 * 1024 ** 2),
    };
    let pages = 0;
    respond = () => ({ body: { recordings: [listed], next: `page ${(pages += 1)}` } });
    const ran = await run(['ls', '--store', folder, '--recorder', base]);
    expect(ran.stderr).toMatch(/^tailcast: the recorder .*the list is too large.*RECORDER_UNREACHABLE/ms);
    expect(pages).toBeLessThan(10);
  });

  it.each([
    ['not JSON', HOSTILE],
    ['an unexpected shape', { recordings: HOSTILE, sessions: HOSTILE, state: HOSTILE }],
    ['null', null],
  ])('gets a sentence for a response that is %s', async (_name, body) => {
    respond = () => ({ body });
    for (const args of [['ls'], ['search', 'x'], ['index', 'status'], ['index', 'verify']]) {
      const ran = await run(args);
      expectHarmless(ran);
      expect(ran.stderr).toMatch(/^tailcast: the recorder .*RECORDER_UNREACHABLE/ms);
      expect(ran.stderr).not.toMatch(/^ +at |ZodError|Unexpected token|"path"/m);
    }
  });

  it.each([
    `../../pwned_2026-01-02T03:04:05Z`,
    'a/b_2026-01-02T03:04:05Z',
    '..',
    HOSTILE,
    `${HOSTILE}_2026-01-02T03:04:05Z`,
    'C:\\x_2026-01-02T03:04:05Z',
    '',
  ])('cannot name a recording %j', async (id) => {
    respond = (path) =>
      path.endsWith('/recordings') ? { body: { recordings: [recording(id)] } } : respondHostile(path);
    const previous = process.cwd();
    process.chdir(folder);
    try {
      for (const args of [['ls'], ['play', 'latest'], ['export', 'latest', '--format', 'txt']]) {
        const ran = await run(args);
        expect(ran.code).toBe(1);
        expect(ran.stderr).toContain('RECORDER_UNREACHABLE');
        expectHarmless(ran);
      }
    } finally {
      process.chdir(previous);
    }
    expect(readdirSync(folder)).toEqual([]);
    expect(existsSync(join(folder, '../../pwned_2026-01-02T03:04:05Z.txt'))).toBe(false);
  });

  it('cannot put a colon into the name of an exported file', async () => {
    const previous = process.cwd();
    process.chdir(folder);
    try {
      expect((await run(['export', 'latest', '--format', 'txt'])).code).toBe(0);
    } finally {
      process.chdir(previous);
    }
    expect(readdirSync(folder)).toEqual(['nTEST_2026-01-02T03-04-05.000000000Z.txt']);
  });
});
