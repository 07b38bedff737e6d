/** A gateway of several processes, from outside. */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { get as httpsGet } from 'node:https';
import { connect as connectTls } from 'node:tls';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startDemoCluster, type DemoCluster } from '../../src/demo/cluster.ts';
import { mergeKubeconfig } from '../../src/kube/kubeconfig-write.ts';
import { createSilentLogger } from '../../src/observe/logger.ts';
import type { Recording } from '../../src/wire/recorder-api/recording.ts';
import { createRecorder, type RunningRecorder } from '../../src/compose/recorder-parts.ts';
import { startLocalApiDouble, userNode } from '../support/local-api-double.ts';
import { openExec, RefusedError, type ExecClient } from '../support/exec-client.ts';
import { eventually, type RoleProcess, servedBy, startRole } from './role-process.ts';

const SLOTS = [0, 1] as const;
const PER_USER = 5;

let directory: string;
let cluster: DemoCluster;
let recorder: RunningRecorder;
let upstream: string;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tailcast-workers-'));
  const log = createSilentLogger();
  cluster = await startDemoCluster({ log });
  recorder = await createRecorder({
    listen: { host: '127.0.0.1', port: 0 },
    directory: join(directory, 'recordings'),
    identify: async () => ({ kind: 'accepted', nodeId: 'nGW', nodeName: 'gateway.test' }),
    log,
    limits: { minFreeBytes: 0 },
    timing: { resumeGraceMs: 300, closeGraceMs: 500 },
  });
  upstream = join(directory, 'upstream');
  const entry = { name: 'up', server: cluster.url, caPem: cluster.caPem, userName: 'admin' };
  await writeFile(upstream, mergeKubeconfig(undefined, { ...entry, token: cluster.adminToken }, upstream), {
    mode: 0o600,
  });
  const capabilities = {
    'tailscale.com/cap/kubernetes': [
      {
        impersonate: { groups: ['system:masters'] },
        recorderAddrs: [`${recorder.address.host}:${recorder.address.port}`],
        enforceRecorder: true,
      },
    ],
  };
  const identity = { nodeId: 'nLAPTOP', nodeName: 'laptop.test', login: 'alice@example.com', capabilities };
  await writeFile(join(directory, 'identity.json'), JSON.stringify(identity));
  await writeFile(join(directory, 'policy.yaml'), `sessions:\n  perUser: ${PER_USER}\n`);
});

afterAll(async () => {
  await recorder.close();
  await cluster.close();
  await rm(directory, { recursive: true, force: true });
});

interface Gateway extends RoleProcess, AsyncDisposable {
  readonly url: string;
  readonly caPem: string;
  exec(...command: string[]): Promise<ExecClient>;
  /** A session of each worker. */
  spread(): Promise<readonly { readonly exec: ExecClient; readonly sessionId: string }[]>;
}

async function startGateway(...extra: string[]): Promise<Gateway> {
  const args = ['--kubeconfig', upstream, '--identity', 'static', '--workers', String(SLOTS.length)];
  const files = [
    '--static-identity',
    join(directory, 'identity.json'),
    '--policy',
    join(directory, 'policy.yaml'),
  ];
  const state = join(directory, 'gateway');
  const role = await startRole([
    'gateway',
    ...args,
    ...files,
    '--listen',
    '127.0.0.1:0',
    '--state-directory',
    state,
    '--check-rights',
    'false',
    ...extra,
  ]);
  const url = `https://127.0.0.1:${role.port}`;
  const caPem = await readFile(join(state, 'ca', 'ca.crt'), 'utf8');
  const exec = (...command: string[]): Promise<ExecClient> => openExec({ url, caPem, pod: 'shell', command });
  return {
    ...role,
    url,
    caPem,
    exec,
    async spread() {
      const found: { readonly exec: ExecClient; readonly sessionId: string }[] = [];
      for (const slot of SLOTS) {
        const session = await servedBy(role, slot, () => exec('cat'));
        const { sessionId } = await role.line(
          ({ msg, worker }) => msg === 'session started' && worker === slot,
        );
        found.push({ exec: session, sessionId: String(sessionId) });
      }
      return found;
    },
    async [Symbol.asyncDispose]() {
      await role.stop();
    },
  };
}

async function recordings(): Promise<readonly Recording[]> {
  const { recordings: found } = await recorder.catalog.list({ limit: 100 });
  return found;
}

/** One request on a connection of its own. @returns its status, 0 for none */
function request({ url, caPem }: Gateway): Promise<number> {
  return new Promise((resolve) => {
    httpsGet(`${url}/version`, { ca: caPem, agent: false }, (response) => {
      response.resume();
      response.once('end', () => resolve(response.statusCode ?? 0));
    }).once('error', () => resolve(0));
  });
}

describe('a gateway of two processes', () => {
  it('goes on with a recorded session when the other worker crashes, and accounts for what that one had', async () => {
    await using gateway = await startGateway();
    const [victim, survivor] = await gateway.spread();
    survivor!.exec.write('before\n');
    await survivor!.exec.until('before\n');
    victim!.exec.write('lost\n');
    // what a gateway that is killed has not sent yet is in no recording
    await eventually('the recorder has it', () => castWith('lost'));
    process.kill(gateway.worker(0), 'SIGKILL');
    await victim!.exec.over;

    survivor!.exec.write('after\n');
    await survivor!.exec.until('after\n');
    const ended = await gateway.line(
      ({ msg, sessionId }) => msg === 'session ended' && sessionId === victim!.sessionId,
    );
    expect(ended).toMatchObject({
      outcome: 'interrupted',
      user: 'alice@example.com',
      reason: expect.stringContaining('SIGKILL') as string,
    });
    await eventually('the worker is replaced', async () =>
      (await fetch(`${gateway.ops}/readyz`)).status === 200 ? true : undefined,
    );
    expect(await gateway.metric('tailcast_sessions_lost_total')).toBe(1);
    expect(await gateway.metric('tailcast_worker_ends_total{wanted="false"}')).toBe(1);
    expect(await gateway.metric('tailcast_sessions_active')).toBe(1);

    survivor!.exec.close();
    const closed = await eventually('the survivor is in the store', () => castWith('after', 'closed'));
    expect(closed).toContain('before');
    await eventually('what there is of the other is, too', () => castWith('lost', 'interrupted'));
  });

  it('counts the sessions of one user over both, and frees those of a crashed worker', async () => {
    await using gateway = await startGateway();
    const sessions: ExecClient[] = [];
    for (let count = 0; count < PER_USER; count++) {
      sessions.push(await servedBy(gateway, SLOTS[count % 2]!, () => gateway.exec('cat')));
    }
    const refusal = await gateway.exec('cat').catch((error: unknown) => error);
    expect(refusal).toBeInstanceOf(RefusedError);
    expect(refusal).toMatchObject({
      httpStatus: 429,
      body: { reason: 'TooManyRequests', message: expect.stringMatching(/you have 5 sessions/) as string },
    });
    expect((refusal as RefusedError).headers['retry-after']).toMatch(/^\d+$/);

    sessions[0]!.close();
    const again = await eventually('a place is free', () => gateway.exec('cat').catch(() => undefined));
    sessions[0] = again;

    process.kill(gateway.worker(0), 'SIGKILL');
    const more = await eventually('the places of the crashed worker are free', () =>
      gateway.exec('cat').catch(() => undefined),
    );
    more.write('here\n');
    await more.until('here\n');
    for (const session of [...sessions, more]) session.close();
  });

  it('sums its metrics, which never fall', async () => {
    await using gateway = await startGateway();
    const total = 'tailcast_requests_total{protocol="h1",code="200"}';
    for (let count = 0; count < 10; count++) expect(await request(gateway)).toBe(200);
    expect(await gateway.metric(total)).toBe(10);
    process.kill(gateway.worker(1), 'SIGKILL');
    await gateway.line(({ msg }) => msg === 'worker ended by itself');
    expect(await gateway.metric(total)).toBe(10);
    for (let count = 0; count < 4; count++) expect(await request(gateway)).toBe(200);
    expect(await gateway.metric(total)).toBe(14);
    expect(await gateway.metric('tailcast_primary_resident_memory_bytes')).toBeLessThan(200 * 1024 ** 2);
  });

  it('restarts one worker after another without failing a request, and tells sessions why they end', async () => {
    await using gateway = await startGateway('--drain-seconds', '3');
    const [first, second] = await gateway.spread();
    const before = SLOTS.map((slot) => gateway.worker(slot));
    let asking = true;
    const statuses = new Map<number, number>();
    const load = (async () => {
      while (asking) {
        const status = await request(gateway);
        statuses.set(status, (statuses.get(status) ?? 0) + 1);
      }
    })();
    gateway.signal('SIGHUP');
    await gateway.line(({ msg }) => msg === 'all workers were restarted');
    asking = false;
    await load;
    expect([...statuses.keys()]).toEqual([200]);
    expect(statuses.get(200)).toBeGreaterThan(20);
    for (const slot of SLOTS) expect(gateway.worker(slot)).not.toBe(before[slot]);
    for (const { exec } of [first!, second!]) {
      await exec.over;
      expect(exec.status?.message).toMatch(/tailcast: the gateway is shutting down/);
    }
    const session = await gateway.exec('cat');
    session.write('new\n');
    await session.until('new\n');
    session.close();
  });

  it('resumes a TLS session of one worker at the other', async () => {
    await using gateway = await startGateway();
    let session: Buffer | undefined;
    const reused: boolean[] = [];
    for (let count = 0; count < 4; count++) {
      const socket = connectTls({
        port: gateway.port,
        host: '127.0.0.1',
        ca: gateway.caPem,
        ...(session === undefined ? {} : { session }),
      });
      const ticket = once(socket, 'session') as Promise<[Buffer]>;
      await once(socket, 'secureConnect');
      reused.push(socket.isSessionReused());
      session ??= (await ticket)[0];
      socket.destroy();
    }
    expect(reused).toEqual([false, true, true, true]);
  });

  it('ends what a caller has open at every worker when the grant is gone', async () => {
    const daemon = await startLocalApiDouble();
    try {
      const granted = userNode();
      granted['CapMap'] = {
        'tailscale.com/cap/kubernetes': [{ impersonate: { groups: ['system:masters'] } }],
      };
      let answer: Record<string, unknown> = granted;
      // whoever it is, from whatever port
      daemon.whois.get = () => answer;
      await using gateway = await startGateway('--identity', 'tailscale', '--socket', daemon.socketPath);
      const sessions = await gateway.spread();
      for (const { exec } of sessions) {
        exec.write('mine\n');
        await exec.until('mine\n');
      }
      answer = { ...granted, CapMap: null };
      for (const { exec } of sessions) {
        await exec.over;
        expect(exec.status?.message).toMatch(/^tailcast: .*access to this cluster has ended/);
      }
    } finally {
      await daemon.close();
    }
  });

  it('ends with all its workers when it is told to', async () => {
    const gateway = await startGateway('--drain-seconds', '3');
    const workers = SLOTS.map((slot) => gateway.worker(slot));
    const [first, second] = await gateway.spread();
    expect(await gateway.stop()).toBe(0);
    for (const { exec } of [first!, second!]) {
      await exec.over;
      expect(exec.status?.message).toMatch(/shutting down/);
    }
    for (const pid of workers) expect(() => process.kill(pid, 0)).toThrow(/ESRCH/);
    const ends = gateway.lines.filter(({ msg }) => msg === 'worker ended');
    expect(ends.map(({ exit }) => exit)).toEqual(['code 0', 'code 0']);
  });

  it('says what is wrong, once, when the settings are', async () => {
    await expect(startGateway('--policy', join(directory, 'none.yaml'))).rejects.toThrow(
      /none\.yaml[\s\S]*a worker process could not be started/,
    );
  });
});

/** The cast that holds `word`, if there is one, and if it is in that state. */
async function castWith(word: string, state?: Recording['state']): Promise<string | undefined> {
  for (const recording of await recordings()) {
    if (state !== undefined && recording.state !== state) continue;
    const path = `/api/v1/recordings/${encodeURIComponent(recording.id)}/cast`;
    const text = await (await fetch(new URL(path, recorder.url))).text();
    if (text.includes(word)) return text;
  }
  return undefined;
}
