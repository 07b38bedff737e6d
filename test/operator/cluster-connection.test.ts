import { chmodSync, mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { Writable } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { runOperator } from '../../src/compose/operator.ts';
import { OPERATOR_SETTINGS } from '../../src/config/operator.ts';
import { connectCluster } from '../../src/operator/cluster-connection.ts';
import { listenOn } from '../../src/listen.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { startApiServerDouble, type ApiServerDouble } from './api-server-double.ts';
import { settingsOf } from '../support/settings.ts';

let api: ApiServerDouble;
let folder: string;
let server: string;

beforeEach(async () => {
  api = await startApiServerDouble();
  server = connectOnce(api.kubeconfig);
  folder = mkdtempSync(join(tmpdir(), 'tailcast-operator-'));
});

afterEach(async () => {
  await api.close();
});

function connectOnce(kubeconfig: string): string {
  const connection = connectCluster({ kubeconfig, context: undefined }, new Map());
  connection.close();
  return connection.server;
}

/** Writes a kubeconfig into a new folder. */
function write(name: string, config: object): string {
  mkdirSync(join(folder, name));
  writeFileSync(join(folder, name, 'config'), JSON.stringify(config));
  return join(folder, name, 'config');
}

function clusters(): object {
  return { clusters: [{ name: 'k', cluster: { server, 'insecure-skip-tls-verify': true } }] };
}

/** Connects with a kubeconfig, and returns the authorization header that the API server received. */
async function authorizationFrom(kubeconfig: string, context?: string): Promise<string | undefined> {
  const connection = connectCluster({ kubeconfig, context }, new Map());
  try {
    const signal = AbortSignal.timeout(60_000);
    await connection.request({
      method: 'GET',
      path: '/api/v1/namespaces',
      accept: 'application/json',
      signal,
    });
  } finally {
    connection.close();
  }
  return api.requests.at(-1)?.authorization;
}

describe('the operator’s kubeconfig', () => {
  it('is a list in KUBECONFIG, of which every file is read', async () => {
    const list = [
      write('first', {
        contexts: [{ name: 'c', context: { cluster: 'k', user: 'u', namespace: 'tailcast' } }],
        'current-context': 'c',
      }),
      join(folder, 'missing'),
      write('second', { ...clusters(), users: [{ name: 'u', user: { token: 'of-the-list' } }] }),
    ].join(delimiter);
    const config = settingsOf(OPERATOR_SETTINGS, { dryRun: true, logLevel: 'silent' });
    const stdout = new Writable({ write: (_chunk, _encoding, done) => done() });
    const environment = new Map([['KUBECONFIG', list]]);
    await runOperator(config, { stdout, stderr: stdout, environment, signal: AbortSignal.any([]) }, '0.0.0');
    expect(new Set(api.requests.map(({ authorization }) => authorization))).toEqual(
      new Set(['Bearer of-the-list']),
    );
  });

  it('names files and commands relative to where it stands', async () => {
    const users = [
      { name: 'file', user: { tokenFile: 'token' } },
      {
        name: 'plugin',
        user: { exec: { apiVersion: 'client.authentication.k8s.io/v1', command: './plugin' } },
      },
    ];
    const contexts = users.map(({ name }) => ({ name, context: { cluster: 'k', user: name } }));
    const path = write('relative', { ...clusters(), users, contexts, 'current-context': 'file' });
    writeFileSync(join(folder, 'relative', 'token'), 'of-the-file');
    const credential = {
      apiVersion: 'client.authentication.k8s.io/v1',
      kind: 'ExecCredential',
      status: { token: 'of-the-plugin' },
    };
    const plugin = join(folder, 'relative', 'plugin');
    writeFileSync(plugin, `#!/bin/sh\necho '${JSON.stringify(credential)}'\n`);
    chmodSync(plugin, 0o755);
    expect(await authorizationFrom(path)).toBe('Bearer of-the-file');
    expect(await authorizationFrom(path, 'plugin')).toBe('Bearer of-the-plugin');
  });

  it('is refused with the file and what is wrong in it', () => {
    const path = write('bad', { ...clusters(), contexts: [], 'current-context': 'gone' });
    expect(() => connectOnce(path)).toThrow(/kubeconfig \S+bad\/config: there is no context "gone"/);
  });
});

it('a request gets through however many watches there are', { timeout: 60_000 }, async () => {
  const { certificatePem: cert, keyPem: key } = await (await createTestAuthority()).issue(['127.0.0.1']);
  const secure = createServer({ cert, key }, (request, response) => {
    response.writeHead(200);
    // The server keeps a watch open without sending events.
    if (request.url?.includes('watch') === true) response.flushHeaders();
    else response.end('{}');
  });
  const { port } = await listenOn(secure, { host: '127.0.0.1', port: 0 });
  server = `https://127.0.0.1:${port}`;
  const contexts = [{ name: 'c', context: { cluster: 'k', user: 'u' } }];
  const users = [{ name: 'u', user: { token: 't' } }];
  const path = write('tls', { ...clusters(), users, contexts, 'current-context': 'c' });
  const connection = connectCluster({ kubeconfig: path, context: undefined }, new Map());
  const end = new AbortController();
  try {
    const watch = { path: '/watch', accept: 'application/json', signal: end.signal };
    const streams = await Promise.all(Array.from({ length: 100 }, () => connection.stream(watch)));
    expect(streams.map(({ status }) => status)).toEqual(streams.map(() => 200));
    const ask = { method: 'GET', path: '/', accept: 'application/json', signal: AbortSignal.timeout(20_000) };
    expect((await connection.request(ask)).status).toBe(200);
  } finally {
    end.abort();
    connection.close();
    secure.closeAllConnections();
    secure.close();
  }
});
