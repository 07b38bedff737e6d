/**
 * Access on request in the demo: plain kubectl requests access, and the second user of the demo decides with the
 * commands `requests`, `approve` and `revoke`.
 */
import { execFile, spawn, type ChildProcessByStdio } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const MAIN = new URL('../../src/main.ts', import.meta.url).pathname;
const run = promisify(execFile);

let home: string;
let demo: ChildProcessByStdio<null, Readable, Readable>;
let stdout = '';

const environment = (): NodeJS.ProcessEnv => ({
  PATH: process.env['PATH'],
  HOME: home,
  XDG_STATE_HOME: join(home, 'state'),
});
const kubeconfig = (name: string): string => join(home, 'state', 'tailcast', 'demo', name);

beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'tailcast-access-'));
  demo = spawn(process.execPath, [MAIN, 'demo'], { stdio: ['ignore', 'pipe', 'pipe'], env: environment() });
  demo.stderr.resume();
  const ended = once(demo, 'exit').then(() => Promise.reject(new Error('the demo exited')));
  const printed = new Promise<void>((resolve) => {
    demo.stdout.on('data', (chunk: Buffer) => {
      stdout += chunk.toString();
      if (/^access: .*$/m.test(stdout)) resolve();
    });
  });
  ended.catch(() => undefined);
  await Promise.race([printed, ended]);
}, 120_000);

afterAll(async () => {
  const ended = once(demo, 'exit');
  demo.kill('SIGINT');
  await ended;
});

interface Result {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

async function call(program: string, ...args: readonly string[]): Promise<Result> {
  try {
    const { stdout: out, stderr: err } = await run(program, args, { env: environment() });
    return { code: 0, out, err };
  } catch (error) {
    const { code, stdout: out, stderr: err } = error as { code: number; stdout: string; stderr: string };
    return { code, out, err };
  }
}

const cli = (...args: readonly string[]): Promise<Result> => call(process.execPath, MAIN, ...args);
const asRequester = ['--kubeconfig'] as const;
const requester = (): readonly string[] => [...asRequester, kubeconfig('kubeconfig')];
const approver = (): readonly string[] => ['--kubeconfig', kubeconfig('approver.kubeconfig')];
const kubectl = (...args: readonly string[]): Promise<Result> =>
  call('kubectl', ...requester(), '--as', 'me', '--as-group', 'sre', ...args);
const pendingIn = (text: string): string => /request ([a-z0-9]{10}) needs/.exec(text)?.[1] ?? '';

describe('access on request in the demo', () => {
  it('is asked for by kubectl, approved by the second user, used, and revoked during a session', async () => {
    const refused = await kubectl('get', 'pods');
    const id = pendingIn(refused.err);
    expect([refused.code, id]).toEqual([1, expect.stringMatching(/^\w{10}$/)]);
    expect((await cli('approve', id, ...requester())).err).toContain('cannot decide about the own request');
    expect((await cli('requests', ...approver())).out).toContain(
      `${id}  pending  group sre  demo@example.com`,
    );
    expect((await cli('approve', id, ...approver())).out).toContain('granted');
    const used = await kubectl('get', 'pods');
    expect([used.code, used.err]).toEqual([0, expect.stringContaining('Warning: access to group sre until')]);
    const session = kubectl('exec', 'shell', '--', 'sh', '-c', 'sleep 600');
    // waits until the session has started, because the revocation must end a running session
    await expect
      .poll(async () => (await cli('ls', '--state', 'running', '--json')).out, { timeout: 30_000 })
      .toContain('sleep 600');
    expect((await cli('revoke', id, '--reason', 'incident is over', ...approver())).out).toContain('revoked');
    expect((await session).err).toContain(
      `access request ${id} was revoked by approver@example.com: incident`,
    );
  }, 120_000);

  it('is asked for with a reason, and denied', async () => {
    const asked = cli(
      'request',
      '--group',
      'sre',
      '--reason',
      'disk is full',
      '--for',
      '5m',
      '--wait',
      ...requester(),
    );
    let line = '';
    await expect
      .poll(async () => (line = (await cli('requests', ...approver())).out), { timeout: 30_000 })
      .toContain('"disk is full"');
    const id = line.slice(0, 10);
    expect((await cli('deny', id, '--reason', 'freeze', ...approver())).code).toBe(0);
    expect(await asked).toMatchObject({
      code: 1,
      out: expect.stringContaining('denied by approver@example.com "freeze"'),
    });
    expect((await cli('request', '--group', 'sre', '--for', '1d', ...requester())).err).toContain(
      'the access may last at most 15 minutes',
    );
    expect((await cli('request', '--group', 'other', ...requester())).err).toContain('no rule of your grant');
  }, 120_000);

  it('is reported', async () => {
    const markdown = await cli('report', '--since', '30d');
    expect(markdown.out).toContain('2 requests, 1 granted, 0 granted and not used');
    const csv = await cli('report', '--format', 'csv');
    expect(csv.out).toMatch(/"revoked","approver@example.com",.*,"[1-9]\d*","1","false"/);
    const { requests } = JSON.parse((await cli('report', '--format', 'json')).out) as {
      requests: readonly { result: string }[];
    };
    expect(requests.map(({ result }) => result)).toEqual(['revoked', 'denied']);
  }, 60_000);
});
