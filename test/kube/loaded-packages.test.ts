import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { beforeEach, describe, expect, it } from 'vitest';
import { createTestAuthority } from '../support/issued-certificates.ts';

/**
 * Code that is preloaded into the process and its threads. It appends the name of each loaded package to a file, whose
 * path is in the variable `LOADED`.
 */
const HOOK = `
import { appendFileSync } from 'node:fs';
import { registerHooks } from 'node:module';
registerHooks({ resolve(name, context, next) {
  if (/^[a-z@]/.test(name) && !/^(node|file|data):/.test(name)) appendFileSync(process.env.LOADED, name + '\\n');
  return next(name, context);
} });`;
const API_SERVER = fileURLToPath(new URL('../../src/kube/api-server.ts', import.meta.url));
const PROGRAM = `
const { createApiServer } = await import(${JSON.stringify(API_SERVER)});
const clocks = { now: () => performance.now(), wallClock: Date.now };
const server = await createApiServer({ ...JSON.parse(process.env.OPTIONS), ...clocks });
await server.authorization();
console.log(server.describe());`;

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'tailcast-loaded-'));
});

/** Runs a process that calls `createApiServer` with `options`. @returns the packages that it loads, and its output */
async function packagesOf(options: object): Promise<{ loaded: string[]; output: string }> {
  const list = join(directory, 'loaded');
  writeFileSync(list, '');
  const hook = `data:text/javascript,${encodeURIComponent(HOOK)}`;
  const program = join(directory, 'program.mjs');
  writeFileSync(program, PROGRAM);
  const child = spawn(process.execPath, ['--import', hook, program], {
    env: { ...process.env, LOADED: list, OPTIONS: JSON.stringify(options) },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const [output, errors] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')]);
  return { loaded: readFileSync(list, 'utf8').split('\n'), output: output + errors };
}

function kubeconfig(user: object): { kubeconfig: string[] } {
  const path = join(directory, 'config');
  const config = {
    'current-context': 'c',
    clusters: [{ name: 'k', cluster: { server: 'https://127.0.0.1:1' } }],
    contexts: [{ name: 'c', context: { cluster: 'k', user: 'u' } }],
    users: [{ name: 'u', user }],
  };
  writeFileSync(path, JSON.stringify(config));
  return { kubeconfig: [path] };
}

function openIdConnect(exp: number): object {
  const token = `e30.${Buffer.from(JSON.stringify({ exp })).toString('base64url')}.c2ln`;
  const config = {
    'id-token': token,
    'client-id': 'k',
    'refresh-token': 'r',
    'idp-issuer-url': 'https://127.0.0.1:1',
  };
  return { 'auth-provider': { name: 'oidc', config } };
}

describe('@kubernetes/client-node', () => {
  it('is not loaded inside a cluster', async () => {
    mkdirSync(join(directory, 'account'));
    writeFileSync(join(directory, 'account', 'token'), 'token');
    writeFileSync(join(directory, 'account', 'ca.crt'), (await createTestAuthority()).caPem);
    const inCluster = { host: '10.0.0.1', port: '443', directory: join(directory, 'account') };
    const { loaded, output } = await packagesOf({ inCluster });
    expect(output).toContain('service account of this pod');
    expect(loaded).toContain('zod');
    expect(loaded).not.toContain('@kubernetes/client-node');
    expect(loaded).not.toContain('socks');
  });

  it.each([
    ['a token', { token: 't' }, 'token'],
    ['a valid OpenID Connect token', openIdConnect(Date.now() / 1000 + 3600), 'OpenID Connect token'],
  ])('is not loaded for a kubeconfig with %s', async (_what, user, kind) => {
    const { loaded, output } = await packagesOf(kubeconfig(user));
    expect(output).toContain(`, ${kind})`);
    expect(loaded).not.toContain('@kubernetes/client-node');
  });

  it('is loaded to refresh an expired OpenID Connect token', async () => {
    const { loaded, output } = await packagesOf(kubeconfig(openIdConnect(1)));
    expect(output).toContain(
      'the ID token is expired or refused, and https://127.0.0.1:1 did not refresh it',
    );
    expect(loaded).toContain('@kubernetes/client-node');
  });
});
