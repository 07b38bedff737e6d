import { chmodSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import type { CredentialSource } from '../../src/kube/credential-cache.ts';
import { createExecCredentialSource } from '../../src/kube/kubeconfig-exec.ts';
import type { KubeconfigExec } from '../../src/kube/kubeconfig.ts';

const V1 = 'client.authentication.k8s.io/v1';
const V1BETA1 = 'client.authentication.k8s.io/v1beta1';

let directory: string;
let nowMs: number;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'tailcast-exec-'));
  nowMs = Date.UTC(2026, 0, 1);
});

/** Creates a credential plugin that counts its runs in the file `runs` and then evaluates `code`. */
function plugin(code: string, spec: Partial<KubeconfigExec> = {}, timeoutMs = 10_000): CredentialSource {
  const counted = `require('fs').appendFileSync(${JSON.stringify(join(directory, 'runs'))}, '.'); ${code}`;
  return createExecCredentialSource({
    spec: { apiVersion: V1, command: process.execPath, args: ['-e', counted], ...spec },
    file: join(directory, 'config'),
    userName: 'u',
    cluster: async () => ({ server: 'https://prod', 'certificate-authority-data': 'Q0E=' }),
    environment: { PATH: process.env['PATH'], INHERITED: 'yes' },
    wallClock: () => nowMs,
    timeoutMs,
  });
}

function runs(): number {
  return readFileSync(join(directory, 'runs'), 'utf8').length;
}

function print(status: object, apiVersion = V1): string {
  return `console.log(${JSON.stringify(JSON.stringify({ apiVersion, kind: 'ExecCredential', status }))});`;
}

describe('credential plugins', () => {
  it.each([V1, V1BETA1])('gives the token that a %s plugin prints', async (apiVersion) => {
    expect(await plugin(print({ token: 't' }, apiVersion), { apiVersion }).credential()).toEqual({
      token: 't',
      certificate: undefined,
    });
  });

  it('gives a client certificate', async () => {
    const source = plugin(print({ clientCertificateData: 'C', clientKeyData: 'K' }));
    expect(await source.credential()).toEqual({ token: undefined, certificate: { cert: 'C', key: 'K' } });
  });

  it('runs once for all who wait and until the credential expires', async () => {
    const expirationTimestamp = new Date(nowMs + 60_000).toISOString();
    const source = plugin(print({ token: 't', expirationTimestamp }));
    await Promise.all([source.credential(), source.credential(), source.credential()]);
    nowMs += 54_000;
    await source.credential();
    expect(runs()).toBe(1);
    nowMs += 2_000;
    await source.credential();
    expect(runs()).toBe(2);
  });

  it('rests between runs even when the credential is expired at once', async () => {
    const source = plugin(print({ token: 't', expirationTimestamp: '2020-01-01T00:00:00+01:00' }));
    await source.credential();
    await source.credential();
    expect(runs()).toBe(1);
    nowMs += 1_000;
    await source.credential();
    expect(runs()).toBe(2);
  });

  it('keeps a credential without a time until it is refused', async () => {
    const source = plugin(print({ token: 't' }));
    await source.credential();
    nowMs += 365 * 86_400_000;
    await source.credential();
    expect(runs()).toBe(1);
    source.forget();
    await source.credential();
    expect(runs()).toBe(2);
  });

  it('does not run for every request while it fails, and recovers', async () => {
    const marker = join(directory, 'ready');
    const source = plugin(
      `if (!require('fs').existsSync(${JSON.stringify(marker)})) process.exit(1); ${print({ token: 't' })}`,
    );
    await expect(source.credential()).rejects.toThrow(/failed/);
    await expect(source.credential()).rejects.toThrow(/failed/);
    expect(runs()).toBe(1);
    writeFileSync(marker, '');
    nowMs += 1_000;
    expect((await source.credential()).token).toBe('t');
  });

  it('tells the plugin about the cluster and gives it its environment', async () => {
    const show = `
      const info = JSON.parse(process.env.KUBERNETES_EXEC_INFO);
      const token = JSON.stringify([info, process.env.INHERITED, process.env.OWN]);
      console.log(JSON.stringify({ apiVersion: '${V1}', kind: 'ExecCredential', status: { token } }));`;
    const env = [{ name: 'OWN', value: 'set' }];
    const { token = '' } = await plugin(show, { provideClusterInfo: true, env }).credential();
    expect(JSON.parse(token)).toEqual([
      {
        apiVersion: V1,
        kind: 'ExecCredential',
        spec: {
          cluster: { server: 'https://prod', 'certificate-authority-data': 'Q0E=' },
          interactive: false,
        },
      },
      'yes',
      'set',
    ]);
    const { token: without = '' } = await plugin(show).credential();
    expect(JSON.parse(without)).toMatchObject([{ spec: { interactive: false } }, 'yes', null]);
    expect(without).not.toContain('prod');
  });

  it('finds a relative command beside the kubeconfig', async () => {
    writeFileSync(
      join(directory, 'plug'),
      `#!/bin/sh\necho '{"apiVersion":"${V1}","kind":"ExecCredential","status":{"token":"rel"}}'\n`,
    );
    chmodSync(join(directory, 'plug'), 0o755);
    expect((await plugin('', { command: './plug', args: null }).credential()).token).toBe('rel');
  });

  it.each<[what: string, code: string, spec: Partial<KubeconfigExec>, message: RegExp]>([
    [
      'a missing command',
      '',
      { command: 'tailcast-no-such-plugin', installHint: 'run: install it' },
      /was not found; run: install it$/,
    ],
    [
      'an exit code',
      'console.error("first"); console.error("not logged in"); process.exit(3)',
      {},
      /failed: not logged in$/,
    ],
    ['no JSON', 'console.log("hunter2")', {}, /something that is not JSON$/],
    ['another kind', 'console.log("{}")', {}, /no usable ExecCredential$/],
    ['another version', print({ token: 't' }, V1BETA1), {}, /answered with .*v1beta1, not/],
    ['nothing in it', print({}), {}, /neither a token nor a client certificate$/],
    ['an empty token', print({ token: '' }), {}, /neither a token nor a client certificate$/],
    ['half a certificate', print({ clientCertificateData: 'C' }), {}, /only one of/],
    ['a bad time', print({ token: 't', expirationTimestamp: 'tomorrow' }), {}, /no usable ExecCredential$/],
    [
      'endless output',
      'for (let i = 0; i < 40; i++) process.stdout.write("x".repeat(65536))',
      {},
      /failed: /,
    ],
  ])('says what is wrong with %s', async (_what, code, spec, message) => {
    await expect(plugin(code, spec).credential()).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(message) as string,
    });
  });

  it('names the file and the user', async () => {
    await expect(plugin('process.exit(1)').credential()).rejects.toThrow(
      `kubeconfig ${join(directory, 'config')}: users[u].user.exec: `,
    );
  });

  it('ends a plugin that does not finish, and one that reads its input finds the end', async () => {
    await expect(plugin('setInterval(() => {}, 1000)', {}, 300).credential()).rejects.toThrow(
      /did not finish in time/,
    );
    const reader = `process.stdin.resume(); process.stdin.on('end', () => { ${print({ token: 'eof' })} });`;
    expect((await plugin(reader).credential()).token).toBe('eof');
  });

  it('refuses at once what cannot work', () => {
    expect(() => plugin('', { apiVersion: 'client.authentication.k8s.io/v1alpha1' })).toThrow(
      /use client.authentication/,
    );
    expect(() => plugin('', { interactiveMode: 'Always' })).toThrow(/no terminal/);
  });
});
