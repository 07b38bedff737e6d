/** Only the user who started the demo can use it. */
import { execFile, spawn, type ChildProcessByStdio } from 'node:child_process';
import { mkdtempSync, readFileSync, statSync } from 'node:fs';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parse } from 'yaml';

const MAIN = new URL('../../src/main.ts', import.meta.url).pathname;
const NOBODY = 65_534;
const EXEC = '/api/v1/namespaces/default/pods/shell/exec?command=id&stdout=true';
const UPGRADE = {
  connection: 'Upgrade',
  upgrade: 'websocket',
  'sec-websocket-version': '13',
  'sec-websocket-key': Buffer.alloc(16).toString('base64'),
  'sec-websocket-protocol': 'v5.channel.k8s.io',
};

let home: string;
let demo: ChildProcessByStdio<null, Readable, Readable>;
let stdout = '';
let stderr = '';
let gateway: { readonly url: URL; readonly ca: string; readonly token: string };
let player: string;

beforeAll(async () => {
  home = mkdtempSync(join(tmpdir(), 'tailcast-access-'));
  demo = spawn(process.execPath, [MAIN, 'demo'], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: environment(),
  });
  demo.stderr.on('data', (chunk: Buffer) => (stderr += chunk.toString()));
  await new Promise<void>((resolve, reject) => {
    demo.stdout.on('data', (chunk: Buffer) => {
      stdout += chunk.toString();
      if (/^player: .*$/m.test(stdout)) resolve();
    });
    demo.once('exit', (code) => reject(new Error(`ended with ${String(code)}: ${stderr}`)));
  });
  player = /^player: (.*)$/m.exec(stdout)?.[1] ?? '';
  const config = parse(readFileSync(kubeconfigPath(), 'utf8')) as {
    clusters: [{ cluster: { server: string; 'certificate-authority-data': string } }];
    users: [{ user: { token: string } }];
  };
  const [{ cluster }] = config.clusters;
  gateway = {
    url: new URL(cluster.server),
    ca: Buffer.from(cluster['certificate-authority-data'], 'base64').toString(),
    token: config.users[0].user.token,
  };
}, 60_000);

afterAll(async () => {
  const ended = new Promise((resolve) => demo.once('exit', resolve));
  demo.kill('SIGINT');
  await ended;
});

function environment(): NodeJS.ProcessEnv {
  return { PATH: process.env['PATH'], HOME: home, XDG_STATE_HOME: join(home, 'state') };
}

function kubeconfigPath(): string {
  return join(home, 'state', 'tailcast', 'demo', 'kubeconfig');
}

/** Sends a request to the gateway, and returns the status of the response. */
async function ask(path: string, headers: Readonly<Record<string, string>>): Promise<number> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = gateway.url;
    const asked = request({ hostname, port, path, ca: gateway.ca, headers, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    asked.once('upgrade', (response, socket) => {
      socket.destroy();
      resolve(response.statusCode ?? 0);
    });
    asked.once('error', reject);
    asked.end();
  });
}

describe('the gateway of the demo', () => {
  const wrong: readonly (readonly [string, () => Readonly<Record<string, string>>])[] = [
    ['no token', () => ({})],
    ['the token of every tailnet kubeconfig', () => ({ authorization: 'Bearer unused' })],
    ['an empty token', () => ({ authorization: 'Bearer ' })],
    ['half of the token', () => ({ authorization: `Bearer ${gateway.token.slice(0, 20)}` })],
    ['the token as a password', () => ({ authorization: `Basic ${gateway.token}` })],
  ];

  it.each(wrong)('answers 401 to %s', async (_what, headers) => {
    expect(await ask('/version', headers())).toBe(401);
    expect(await ask(EXEC, { ...headers(), ...UPGRADE })).toBe(401);
    expect(await ask('/-/recordings/', headers())).toBe(401);
  });

  it('answers to the token of its kubeconfig', async () => {
    const authorization = `Bearer ${gateway.token}`;
    expect(await ask('/version', { authorization })).toBe(200);
    expect(await ask(EXEC, { authorization, ...UPGRADE })).toBe(101);
  });

  it('keeps its token in a file of its user', () => {
    expect(gateway.token.length).toBeGreaterThanOrEqual(43);
    expect(statSync(kubeconfigPath()).mode & 0o777).toBe(0o600);
    expect(stdout + stderr).not.toContain(gateway.token);
    if (process.platform !== 'linux') return;
    expect(readFileSync(`/proc/${demo.pid}/cmdline`, 'utf8')).not.toContain(gateway.token);
    expect(readFileSync(`/proc/${demo.pid}/environ`, 'utf8')).not.toContain(gateway.token);
  });

  it('says where shells run', () => {
    expect(stderr).toMatch(/shells run on this machine, as you/);
  });
});

describe('the recorder of the demo', () => {
  it('shows its user the recordings', async () => {
    const list = await fetch(`${player}api/v1/recordings`);
    expect(list.status).toBe(200);
    await list.body?.cancel();
  });

  it.each(['record', 'v2/event'])('takes no upload to %s from a web page', async (path) => {
    for (const headers of [{ origin: 'https://evil.example' }, { 'sec-fetch-site': 'cross-site' }]) {
      const response = await fetch(`${player}${path}`, { method: 'POST', body: '{}', headers });
      expect(response.status).toBe(403);
      await response.body?.cancel();
    }
  });

  it.runIf(process.platform === 'linux' && process.getuid?.() === 0)(
    'has nothing for another user of the machine',
    async () => {
      const script = `Promise.all([
        fetch('${player}api/v1/recordings'),
        fetch('${player}record', { method: 'POST', body: 'x' }),
        fetch('${player}v2/event', { method: 'POST', body: '{}' }),
      ]).then((all) => console.log(all.map((response) => response.status).join()))`;
      // runs the system's `node`, because the other user cannot read a `node` executable in this user's folders
      const { stdout: statuses } = await promisify(execFile)('node', ['-e', script], {
        uid: NOBODY,
        gid: NOBODY,
        cwd: '/',
        env: { PATH: '/usr/local/bin:/usr/bin:/bin' },
      });
      expect(statuses.trim()).toBe('403,403,403');
    },
  );
});

describe('a second demo', () => {
  it('names the first one', async () => {
    const second = spawn(process.execPath, [MAIN, 'demo'], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: environment(),
    });
    let said = '';
    second.stderr.on('data', (chunk: Buffer) => (said += chunk.toString()));
    expect(await new Promise((resolve) => second.once('close', resolve))).toBe(1);
    expect(said).toContain(`tailcast is already running: the demo is process ${demo.pid}, ${player}\n`);
    expect(said).not.toMatch(/configuration|spool/);
    expect(said).toMatch(/\[ALREADY_RUNNING\]\n$/);
    expect(await ask('/version', { authorization: `Bearer ${gateway.token}` })).toBe(200);
  });
});
