import { spawn } from 'node:child_process';
import { mkdtempSync, symlinkSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer, type Server } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createTestAuthority } from '../support/issued-certificates.ts';

const MAIN = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
const RECORDING = {
  id: 'n1_2026-01-02T03:04:05.678Z',
  key: 'n1/2026-01-02T03:04:05.678Z.cast',
  state: 'completed',
  startedAt: '2026-01-02T03:04:05.678Z',
  bytes: 10,
  width: 80,
  height: 24,
  kind: 'exec',
  source: { node: 'laptop', nodeId: 'n1', user: 'alice@example.com' },
  destination: { node: 'cluster', nodeId: 'n2' },
};

const folder = mkdtempSync(join(tmpdir(), 'tailcast-context-'));
const plugin = join(folder, 'kubectl-tailcast');
let gateway: Server;
let url: string;
let caPem: string;
let answer: { status: number; body: object };
let headers: Record<string, unknown>;
let asked: string[];

beforeAll(async () => {
  symlinkSync(MAIN, plugin);
  const authority = await createTestAuthority();
  caPem = authority.caPem;
  const { certificatePem, keyPem } = await authority.issue(['127.0.0.1']);
  gateway = createServer({ cert: certificatePem, key: keyPem }, (request, response) => {
    asked.push(request.url ?? '');
    ({ headers } = request);
    response
      .writeHead(answer.status, { 'content-type': 'application/json' })
      .end(JSON.stringify(answer.body));
  });
  await once(gateway.listen(0, '127.0.0.1'), 'listening');
  const address = gateway.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  url = `https://127.0.0.1:${address.port}`;
});

afterAll(async () => {
  await new Promise((done) => gateway.close(done));
});

beforeEach(() => {
  asked = [];
  answer = { status: 200, body: { recordings: [RECORDING] } };
});

interface Ending {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

async function runPlugin(cluster: object, ...args: readonly string[]): Promise<Ending> {
  const file = join(folder, 'config');
  const config = {
    'current-context': 'prod',
    clusters: [{ name: 'prod', cluster: { server: url, ...cluster } }],
    users: [{ name: 'me', user: { token: 'secret' } }],
    contexts: [{ name: 'prod', context: { cluster: 'prod', user: 'me' } }],
  };
  writeFileSync(file, JSON.stringify(config));
  const child = spawn(process.execPath, [plugin, ...args], {
    env: { PATH: process.env['PATH'], HOME: folder, KUBECONFIG: file },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const ended = new Promise<number | null>((done) => child.once('close', done));
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
  return { code: await ended, stdout, stderr };
}

const trusted = (): object => ({ 'certificate-authority-data': Buffer.from(caPem).toString('base64') });

describe('kubectl tailcast', () => {
  it('lists what the gateway of the current context shows, over TLS that the kubeconfig vouches for', async () => {
    const { code, stdout, stderr } = await runPlugin(trusted(), 'ls');
    expect(stderr).toBe('');
    expect(stdout).toContain('alice@example.com');
    expect(code).toBe(0);
    expect(asked.at(-1)).toBe('/-/recordings/api/v1/recordings?limit=50');
  });

  it('searches what the gateway of the current context shows, and links into its page', async () => {
    answer = {
      status: 200,
      body: {
        recordings: [],
        sessions: [
          {
            recording: RECORDING,
            hits: [{ at: 7.5, text: 'a needle', marks: [[2, 8]], isCommand: false }],
            more: false,
            partial: false,
          },
        ],
        index: { state: 'ready' },
      },
    };
    const { code, stdout, stderr } = await runPlugin(trusted(), 'search', 'needle');
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toContain('a needle');
    expect(stdout).toContain(`${url}/-/recordings/#/r/${encodeURIComponent(RECORDING.id)}?t=5`);
    expect(asked.at(-1)).toBe('/-/recordings/api/v1/search?q=needle&limit=20');
  });

  it.each([
    [['search', 'needle', '--recorder', 'http://127.0.0.1:9'], /127\.0\.0\.1:9/],
    [
      ['search', 'needle', '--recorder', 'http://127.0.0.1:9', '--context', 'prod'],
      /--context and --kubeconfig name an archive, and so do --recorder/,
    ],
    [['index', 'status'], /no recorder is named: give --recorder <url>, set/],
  ])('asks no gateway for %j', async (args, why) => {
    const { code, stderr } = await runPlugin(trusted(), ...args);
    expect(code).not.toBe(0);
    expect(stderr).toMatch(why);
    expect(asked).toEqual([]);
  });

  it('keeps the credentials of the context to itself', async () => {
    await runPlugin(trusted(), 'ls', '--context', 'prod');
    expect(asked.length).toBeGreaterThan(0);
    expect(headers['authorization']).toBeUndefined();
  });

  it('calls itself what was typed', async () => {
    expect((await runPlugin({}, 'ls', '--help')).stdout).toMatch(/^Usage: kubectl tailcast ls /);
  });

  it.each([
    [
      'a context that is not there',
      {},
      ['ls', '--context', 'nope'],
      /no context "nope"; name one of the contexts: prod/,
    ],
    ['a certificate of nobody', {}, ['ls'], /127\.0\.0\.1:\d+\/-\/recordings\/: .*certificate/],
    [
      'verification that is off',
      { 'insecure-skip-tls-verify': true },
      ['ls'],
      /set certificate-authority instead/,
    ],
    [
      'a proxy',
      { 'proxy-url': 'http://127.0.0.1:9' },
      ['ls'],
      /context prod has proxy-url.*cannot use a proxy/,
    ],
    ['two archives at once', {}, ['ls', '--context', 'prod', '--store', '/nowhere'], /name an archive/],
  ])('says what is wrong with %s, and what to do', async (_, cluster, args, sentence) => {
    const { code, stderr } = await runPlugin(cluster, ...args);
    expect(code).not.toBe(0);
    expect(stderr).toMatch(sentence);
    expect(stderr.trim().split('\n').length).toBeLessThanOrEqual(stderr.includes(':\n  ') ? 3 : 2);
  });

  it('says that a plain API server shows no recordings', async () => {
    answer = { status: 404, body: { kind: 'Status', message: 'not found' } };
    const { code, stderr } = await runPlugin(trusted(), 'ls');
    expect(stderr).toMatch(
      /^tailcast: .*the server of context prod \(.*\) shows no recordings: it is not a gateway/m,
    );
    expect(code).toBe(2);
  });
});
