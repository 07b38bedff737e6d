import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { runProgram } from '../../src/cli/program.ts';
import { startLocalApiDouble, type LocalApiDouble } from '../support/local-api-double.ts';
import { createRig, HEADER, uploadWhole, type Rig } from '../tsrecorder/recorder-rig.ts';
import { LEDGER, argumentsOf, commandsOf, shownIn, type Words } from './ledger.ts';

const root = fileURLToPath(new URL('../../', import.meta.url));
const PAGES = [
  'README.md',
  ...readdirSync(join(root, 'docs'))
    .filter((name) => name.endsWith('.md'))
    .map((name) => `docs/${name}`),
];
const read = (path: string): string => readFileSync(join(root, path), 'utf8');

describe('the commands that pages show', () => {
  it.each(PAGES)('are all in the ledger: %s', (page) => {
    const known = LEDGER.filter((shown) => shown.page === page).map(({ command }) => command);
    expect(shownIn(read(page)).toSorted()).toEqual(known.toSorted());
  });

  it('are on pages that exist', () => {
    expect(LEDGER.filter(({ page }) => !PAGES.includes(page))).toEqual([]);
  });

  it('are run by a test that does what it is said to', () => {
    for (const { command, runner } of LEDGER) {
      if (typeof runner === 'string') continue;
      expect(existsSync(join(root, runner.path)), command).toBe(true);
      expect(read(runner.path), command).toContain(runner.contains);
    }
    for (const suite of ['host', 'chart'] as const) {
      expect(read(`test/real/suites/${suite}.test.ts`)).toContain(`commandsOf('${suite}')`);
    }
  });

  it('are noticed when a word of theirs changes', () => {
    expect(() => argumentsOf('tailcast ls', { '--recorder': '--store' })).toThrow('has no --recorder');
    expect(shownIn('```sh\nfoo \\\n  --bar   # why\n\n# a comment\n```\n```yaml\na: b\n```\n')).toEqual([
      'foo --bar',
    ]);
  });
});

describe('a shown command', () => {
  let rig: Rig;
  let daemon: LocalApiDouble;
  let scratch: string;

  beforeAll(async () => {
    rig = await createRig();
    await uploadWhole(
      rig.recorder,
      `${HEADER.replace('a@example.com', 'alice@example.com')}[0.1,"o","recorded output\\r\\n"]\n`,
    );
    daemon = await startLocalApiDouble();
    daemon.status = {
      BackendState: 'Running',
      Peer: Object.fromEntries(
        [0, 1].map((n) => [
          String(n),
          { ID: `n${n}`, DNSName: `tailcast-gateway-${n}.lab.ts.net.`, TailscaleIPs: [`100.64.0.${n + 1}`] },
        ]),
      ),
    };
    scratch = await mkdtemp(join(tmpdir(), 'tailcast-ledger-'));
  });

  afterAll(async () => {
    await daemon.close();
    await rig[Symbol.asyncDispose]();
  });

  const url = (): string => rig.recorder.url;
  /**
   * For each command: replacements for the reader's values, arguments to add because the test has no demo and no
   * tailnet, and a check of the output.
   */
  const CASES: Readonly<
    Record<string, { words?: () => Words; more?: () => readonly string[]; check: (text: string) => void }>
  > = {
    'tailcast ls': {
      more: () => ['--store', rig.directory],
      check: (text) => expect(text.trim().split('\n').length).toBeGreaterThan(0),
    },
    'tailcast ls --since 7d --text deploy --sort -size': {
      words: () => ({ deploy: 'alice' }),
      more: () => ['--store', rig.directory],
      check: (text) => expect(text).toContain('alice@example.com'),
    },
    'tailcast ls --columns id,started,who,problem': {
      more: () => ['--store', rig.directory],
      check: (text) => expect(text).toMatch(/^ID +STARTED +WHO +PROBLEM\n/),
    },
    'tailcast play latest --from 0:10 --speed 2 --fit': {
      words: () => ({ '0:10': '0:00' }),
      more: () => ['--store', rig.directory],
      check: (text) => expect(text).toContain('recorded output'),
    },
    'tailcast play latest --speed 2 --idle-limit 1': {
      more: () => ['--store', rig.directory],
      check: (text) => expect(text).toContain('recorded output'),
    },
    'tailcast kubeconfig tailcast-gateway-0 tailcast-gateway-1': {
      more: () => ['--socket', daemon.socketPath, '--file', join(scratch, 'config')],
      check: () => {
        const config = parse(readFileSync(join(scratch, 'config'), 'utf8')) as {
          contexts: { name: string }[];
        };
        expect(config.contexts.map(({ name }) => name)).toEqual([
          'tailcast-gateway-0.lab.ts.net',
          'tailcast-gateway-1.lab.ts.net',
        ]);
      },
    },
    'tailcast ls --recorder http://recorder.tail1234.ts.net --user alice@example.com --limit 20': {
      words: () => ({ 'http://recorder.tail1234.ts.net': url() }),
      check: (text) => expect(text).toContain('alice@example.com'),
    },
    'tailcast play latest --recorder http://recorder.tail1234.ts.net --speed 2 --idle-limit 1': {
      words: () => ({ 'http://recorder.tail1234.ts.net': url() }),
      check: (text) => expect(text).toContain('recorded output'),
    },
    'tailcast ls --store /var/lib/tailcast/recordings --json': {
      words: () => ({ '/var/lib/tailcast/recordings': rig.directory }),
      check: (text) => expect(JSON.parse(text.split('\n')[0] ?? '')).toBeDefined(),
    },
  };

  it.each(commandsOf('tools'))('runs: %s', async (command) => {
    const one = CASES[command];
    if (one === undefined) throw new Error(`nothing is said of: ${command}`);
    const [program, ...args] = argumentsOf(command, one.words?.() ?? {});
    expect(program).toBe('tailcast');
    const [stdout, stderr] = [new PassThrough(), new PassThrough()];
    const context = {
      stdout,
      stderr,
      environment: new Map<string, string>(),
      signal: new AbortController().signal,
    };
    const code = await runProgram([...args, ...(one.more?.() ?? [])], context);
    expect({ code, stderr: String(stderr.read() ?? '') }).toEqual({ code: 0, stderr: '' });
    one.check(String(stdout.read() ?? ''));
  });
});
