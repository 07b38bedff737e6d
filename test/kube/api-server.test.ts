import { mkdirSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { request as httpsRequest, createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TLSSocket } from 'node:tls';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { createApiServer, type ApiServer } from '../../src/kube/api-server.ts';
import { issueAuthority, issueServer, type IssuedPair } from '../../src/tailnet/issue-certificate.ts';

const DAY_MS = 86_400_000;
const BROKEN_PEM = '-----BEGIN CERTIFICATE-----\nbm9uZQ==\n-----END CERTIFICATE-----';
const EXEC = 'client.authentication.k8s.io/v1';

let directory: string;
let authority: IssuedPair;
let stranger: IssuedPair;
let named: IssuedPair;
let server: Server;
let port: number;
let nowMs = 0;
let unusable: string[] = [];

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'tailcast-api-server-'));
  const validity = { nowMs: Date.now(), validMs: DAY_MS };
  authority = await issueAuthority(validity);
  stranger = await issueAuthority(validity);
  named = await issueServer(authority, { names: ['kubernetes', '127.0.0.1'], ...validity });
  server = createServer(
    {
      key: named.keyPem,
      cert: named.certificatePem,
      ca: authority.certificatePem,
      requestCert: true,
      rejectUnauthorized: false,
    },
    (request, response) => {
      const socket = request.socket as TLSSocket;
      response.end(
        JSON.stringify({
          path: request.url,
          host: request.headers.host,
          authorization: request.headers.authorization,
          serverName: socket.servername,
          clientCertificate: socket.authorized,
        }),
      );
    },
  );
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  ({ port } = server.address() as AddressInfo);
});
afterAll(async () => {
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});
beforeEach(() => {
  nowMs = 0;
  unusable = [];
});

function file(name: string, text: string): string {
  writeFileSync(join(directory, name), text);
  return join(directory, name);
}

function base64(text: string): string {
  return Buffer.from(text).toString('base64');
}

interface Parts {
  readonly cluster?: object;
  readonly user?: object;
}

function open({ cluster = {}, user = {} }: Parts = {}): Promise<ApiServer> {
  const kubeconfig = {
    'current-context': 'c',
    clusters: [
      {
        name: 'k',
        cluster: {
          server: `https://127.0.0.1:${port}`,
          'certificate-authority-data': base64(authority.certificatePem),
          ...cluster,
        },
      },
    ],
    contexts: [{ name: 'c', context: { cluster: 'k', user: 'u' } }],
    users: [{ name: 'u', user }],
  };
  return createApiServer({
    kubeconfig: [file('config', JSON.stringify(kubeconfig))],
    environment: { PATH: process.env['PATH'] },
    now: () => nowMs,
    wallClock: () => nowMs,
    onUnusable: ({ message }) => void unusable.push(message),
  });
}

/** Sends a request as the gateway's upstream client does. */
async function call(api: ApiServer): Promise<Record<string, unknown>> {
  const authorization = await api.authorization();
  return new Promise((resolve, reject) => {
    httpsRequest(
      {
        host: api.host,
        port: api.port,
        servername: api.serverName,
        path: `${api.basePath}/version`,
        headers: {
          Host: api.hostHeader,
          ...(authorization === undefined ? {} : { Authorization: authorization }),
        },
        agent: false,
        ...api.tls,
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () =>
          resolve(JSON.parse(Buffer.concat(chunks).toString()) as Record<string, unknown>),
        );
      },
    )
      .on('error', reject)
      .end();
  });
}

describe('an API server from a kubeconfig', () => {
  it('is reached by address without SNI, and its certificate is checked', async () => {
    const api = await open({ user: { token: 't' } });
    expect(api).toMatchObject({ host: '127.0.0.1', port, serverName: '', basePath: '' });
    expect(await call(api)).toEqual({
      path: '/version',
      host: `127.0.0.1:${port}`,
      authorization: 'Bearer t',
      serverName: false,
      clientCertificate: false,
    });
  });

  it('is refused when another authority signed its certificate', async () => {
    const api = await open({ cluster: { 'certificate-authority-data': base64(stranger.certificatePem) } });
    await expect(call(api)).rejects.toThrow(/certificate/);
  });

  it('is refused when its certificate is for another name', async () => {
    await expect(call(await open({ cluster: { 'tls-server-name': 'other' } }))).rejects.toMatchObject({
      code: 'ERR_TLS_CERT_ALTNAME_INVALID',
    });
    expect(await call(await open({ cluster: { 'tls-server-name': 'kubernetes' } }))).toMatchObject({
      serverName: 'kubernetes',
    });
  });

  it('is not checked when the kubeconfig says so', async () => {
    const api = await open({
      cluster: { 'certificate-authority-data': '', 'insecure-skip-tls-verify': true },
    });
    expect(await call(api)).toMatchObject({ path: '/version' });
    expect(api.describe()).toContain('certificate not verified');
  });

  it('keeps the base path of the server URL', async () => {
    const api = await open({ cluster: { server: `https://127.0.0.1:${port}/k8s/clusters/c-1/` } });
    expect(await call(api)).toMatchObject({ path: '/k8s/clusters/c-1/version' });
  });

  it('reads CA, certificate and key from files beside the kubeconfig', async () => {
    file('ca.pem', authority.certificatePem);
    file('client.pem', named.certificatePem);
    file('client.key', named.keyPem);
    const api = await open({
      cluster: { 'certificate-authority-data': '', 'certificate-authority': 'ca.pem' },
      user: { 'client-certificate': 'client.pem', 'client-key': 'client.key' },
    });
    expect(await api.authorization()).toBeUndefined();
    const { tls } = api;
    expect(api.tls).toBe(tls);
    expect(tls).toMatchObject({ cert: named.certificatePem.trim(), key: named.keyPem.trim() });
    const renewed = await issueServer(authority, { names: ['client'], nowMs: Date.now(), validMs: DAY_MS });
    file('client.pem', renewed.certificatePem);
    file('client.key', renewed.keyPem);
    nowMs += 60_000;
    await api.authorization();
    expect(api.tls).not.toBe(tls);
    expect(api.tls.cert).toBe(renewed.certificatePem.trim());
    await call(api);
  });

  it('uses a renewed certificate of the same key', async () => {
    file('client.pem', named.certificatePem);
    file('client.key', named.keyPem);
    const api = await open({ user: { 'client-certificate': 'client.pem', 'client-key': 'client.key' } });
    await call(api);
    // renews the certificate: the file now contains the complete chain
    const chain = `${named.certificatePem.trim()}\n${authority.certificatePem.trim()}`;
    file('client.pem', chain);
    nowMs += 60_000;
    await api.authorization();
    expect(api.tls.cert).toBe(chain);
    await call(api);
  });

  it('keeps a certificate until the key of the next one is there, and says that once', async () => {
    const renewed = await issueServer(authority, { names: ['client'], nowMs: Date.now(), validMs: DAY_MS });
    file('client.pem', named.certificatePem);
    file('client.key', named.keyPem);
    const api = await open({ user: { 'client-certificate': 'client.pem', 'client-key': 'client.key' } });
    const { tls } = api;
    file('client.pem', renewed.certificatePem);
    for (let round = 0; round < 2; round += 1) {
      nowMs += 60_000;
      await api.authorization();
    }
    expect(api.tls).toBe(tls);
    expect(unusable).toEqual([expect.stringContaining("is the key the certificate's?")]);
    file('client.key', renewed.keyPem);
    nowMs += 60_000;
    await api.authorization();
    expect(api.tls.cert).toBe(renewed.certificatePem.trim());
    await call(api);
  });

  it('follows the file of its authorities, and keeps the last that could be used', async () => {
    file('ca.pem', stranger.certificatePem);
    const api = await open({
      cluster: { 'certificate-authority-data': '', 'certificate-authority': 'ca.pem' },
    });
    const { tls } = api;
    await expect(call(api)).rejects.toThrow(/certificate/);
    file('ca.pem', authority.certificatePem);
    expect(api.tls).toBe(tls);
    nowMs += 60_000;
    await api.followAuthorities();
    const followed = api.tls;
    expect(followed).not.toBe(tls);
    expect(await call(api)).toMatchObject({ path: '/version' });
    file('ca.pem', BROKEN_PEM);
    nowMs += 60_000;
    expect(await call(api)).toMatchObject({ path: '/version' });
    expect(api.tls).toBe(followed);
    expect(unusable).toEqual([expect.stringContaining('the CAs of the API server cannot be used')]);
    file('ca.pem', stranger.certificatePem);
    nowMs += 60_000;
    await expect(call(api)).rejects.toThrow(/certificate/);
  });

  it('tells a plugin of the authorities that there are now', async () => {
    const count = join(directory, 'told');
    const script = `const cluster = JSON.parse(process.env.KUBERNETES_EXEC_INFO).spec.cluster;
      require('fs').appendFileSync(${JSON.stringify(count)}, cluster['certificate-authority-data'] + '\\n');
      console.log(JSON.stringify({ apiVersion: '${EXEC}', kind: 'ExecCredential', status: { token: 't' } }))`;
    file('ca.pem', stranger.certificatePem);
    const exec = {
      apiVersion: EXEC,
      command: process.execPath,
      args: ['-e', script],
      provideClusterInfo: true,
    };
    const cluster = { 'certificate-authority-data': '', 'certificate-authority': 'ca.pem' };
    const api = await open({ cluster, user: { exec } });
    file('ca.pem', authority.certificatePem);
    nowMs += 60_000;
    api.refused();
    await api.authorization();
    const texts = [stranger, authority].map(({ certificatePem }) => base64(certificatePem.trim()));
    expect(readFileSync(count, 'utf8').trim().split('\n')).toEqual(texts);
  });

  it('follows a token file, which wins over a token', async () => {
    file('token', 'one\n');
    const api = await open({ user: { token: 'inline', tokenFile: 'token' } });
    expect(await api.authorization()).toBe('Bearer one');
    file('token', 'two\n');
    nowMs += 60_000;
    expect(await call(api)).toMatchObject({ authorization: 'Bearer two' });
  });

  it('sends user name and password', async () => {
    expect(await (await open({ user: { username: 'ü', password: 'p:w' } })).authorization()).toBe(
      `Basic ${base64('ü:p:w')}`,
    );
  });

  it('runs a credential plugin, and again after a refusal', async () => {
    const script = `const fs = require('fs'); fs.appendFileSync('${join(directory, 'count')}', '.');
      const token = 'run' + fs.statSync('${join(directory, 'count')}').size;
      console.log(JSON.stringify({ apiVersion: '${EXEC}', kind: 'ExecCredential', status: { token } }))`;
    const api = await open({
      user: { exec: { apiVersion: EXEC, command: process.execPath, args: ['-e', script] } },
    });
    expect(await call(api)).toMatchObject({ authorization: 'Bearer run1' });
    nowMs += 5_000;
    api.refused();
    expect(await call(api)).toMatchObject({ authorization: 'Bearer run2' });
  });

  it('uses the client certificate of a plugin', async () => {
    const status = { clientCertificateData: named.certificatePem, clientKeyData: named.keyPem };
    const output = JSON.stringify({ apiVersion: EXEC, kind: 'ExecCredential', status });
    const args = ['-e', `console.log(${JSON.stringify(output)})`];
    const api = await open({ user: { exec: { apiVersion: EXEC, command: process.execPath, args } } });
    expect(api.tls).toMatchObject({ cert: named.certificatePem, key: named.keyPem });
    expect(await call(api)).toMatchObject({ path: '/version' });
  });

  it('describes itself without secrets', async () => {
    const api = await open({ user: { token: 'hunter2' } });
    expect(api.describe()).toBe(
      `https://127.0.0.1:${port} (context c of ${join(directory, 'config')}, token)`,
    );
    expect((await open()).describe()).toContain('anonymous');
  });

  it.each<[server: string, host: string, port: number, name: string, header: string]>([
    ['https://prod', 'prod', 443, 'prod', 'prod'],
    ['prod:6443', 'prod', 6443, 'prod', 'prod:6443'],
    ['10.0.0.1:6443', '10.0.0.1', 6443, '', '10.0.0.1:6443'],
    ['https://[fd7a::1]:6443/', 'fd7a::1', 6443, '', '[fd7a::1]:6443'],
    ['HTTPS://Prod.Example:443', 'prod.example', 443, 'prod.example', 'prod.example'],
  ])('reads the address %s', async (url, host, number, name, hostHeader) => {
    expect(await open({ cluster: { server: url } })).toMatchObject({
      host,
      port: number,
      serverName: name,
      hostHeader,
    });
  });

  it.each<[what: string, parts: () => Parts, message: RegExp]>([
    [
      'plain HTTP',
      () => ({ cluster: { server: 'http://prod' } }),
      /clusters\[k\]\.cluster\.server: "http:\/\/prod" is not https/,
    ],
    ['no URL', () => ({ cluster: { server: 'https://' } }), /is not a URL; write https:\/\/host:port/],
    [
      'a URL with a query',
      () => ({ cluster: { server: 'https://prod/?a=b' } }),
      /may only hold a host, a port and a path/,
    ],
    [
      'a URL with a password',
      () => ({ cluster: { server: 'https://u:hunter2@prod' } }),
      /may only hold a host/,
    ],
    ['a proxy of another kind', () => ({ cluster: { 'proxy-url': 'ftp://x' } }), /proxy-url is no proxy/],
    [
      'a CA and no check',
      () => ({ cluster: { 'insecure-skip-tls-verify': true } }),
      /contradicts certificate-authority/,
    ],
    [
      'CA data that is not base64',
      () => ({ cluster: { 'certificate-authority-data': '!!' } }),
      /certificate-authority-data is not base64/,
    ],
    [
      'CA data that is not PEM',
      () => ({ cluster: { 'certificate-authority-data': base64('x') } }),
      /holds no PEM block/,
    ],
    [
      'a CA file that is missing',
      () => ({ cluster: { 'certificate-authority-data': '', 'certificate-authority': 'no.pem' } }),
      /cannot read \S.*certificate-authority \S+no\.pem: there is no such file/,
    ],
    [
      'CA data whose certificate is none',
      () => ({ cluster: { 'certificate-authority-data': base64(BROKEN_PEM) } }),
      /the CAs of the API server cannot be used/,
    ],
    [
      'a certificate without a key',
      () => ({ user: { 'client-certificate-data': base64(named.certificatePem) } }),
      /only one of client-certificate and client-key/,
    ],
    [
      'a key of another certificate',
      () => ({
        user: {
          'client-certificate-data': base64(named.certificatePem),
          'client-key-data': base64(stranger.keyPem),
        },
      }),
      /users\[u\]\.user: the certificates cannot be used/,
    ],
    [
      'a token file that is missing',
      () => ({ user: { tokenFile: 'no-token' } }),
      /cannot read \S.*tokenFile \S+no-token: there is no such file/,
    ],
    ['a token with a space', () => ({ user: { token: 'a b' } }), /users\[u\]\.user\.token holds spaces/],
    ['impersonation of its own', () => ({ user: { as: 'admin' } }), /\.as is not supported/],
    [
      'an auth provider',
      () => ({ user: { 'auth-provider': { name: 'gcp' } } }),
      /auth-provider "gcp" is not supported/,
    ],
    [
      'a plugin that fails',
      () => ({ user: { exec: { apiVersion: EXEC, command: 'tailcast-no-such-plugin' } } }),
      /was not found/,
    ],
  ])('is refused at start with one sentence: %s', async (_what, parts, message) => {
    await expect(open(parts())).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
      message: expect.stringMatching(message) as string,
    });
  });
});

describe('an API server from inside a pod', () => {
  it('uses the mounted service account and follows its token', async () => {
    file('ca.crt', authority.certificatePem);
    file('token', 'sa-one');
    const api = await createApiServer({
      inCluster: { host: '127.0.0.1', port: String(port), directory },
      now: () => nowMs,
      wallClock: () => nowMs,
    });
    expect(await call(api)).toMatchObject({ authorization: 'Bearer sa-one', path: '/version' });
    file('token', 'sa-two');
    nowMs += 60_000;
    expect(await call(api)).toMatchObject({ authorization: 'Bearer sa-two' });
    file('ca.crt', stranger.certificatePem);
    nowMs += 60_000;
    await expect(call(api)).rejects.toThrow(/certificate/);
    file('ca.crt', authority.certificatePem);
    nowMs += 60_000;
    expect(await call(api)).toMatchObject({ path: '/version' });
    expect(api.describe()).toBe(`https://127.0.0.1:${port} (service account of this pod)`);
  });

  it('brackets an IPv6 service address', async () => {
    file('ca.crt', authority.certificatePem);
    file('token', 't');
    const inCluster = { host: 'fd00::1', port: '443', directory };
    expect(await createApiServer({ inCluster, now: () => 0, wallClock: () => 0 })).toMatchObject({
      host: 'fd00::1',
      port: 443,
      hostHeader: '[fd00::1]',
      serverName: '',
    });
  });

  it('says what is missing', async () => {
    const clocks = { now: () => 0, wallClock: () => 0 };
    await expect(createApiServer(clocks)).rejects.toThrow(/name a kubeconfig, or run in a pod/);
    for (const [host, port] of [
      ['', '443'],
      ['h', ''],
      ['h', 'https'],
    ] as const)
      await expect(createApiServer({ inCluster: { host, port }, ...clocks })).rejects.toThrow(
        /KUBERNETES_SERVICE_PORT do not name an API server/,
      );
    await expect(
      createApiServer({ inCluster: { host: 'h', port: '1', directory: join(directory, 'no') }, ...clocks }),
    ).rejects.toThrow(/cannot read \S.* \S+ca\.crt: there is no such file/);
    const half = join(directory, 'half');
    mkdirSync(half);
    writeFileSync(join(half, 'ca.crt'), authority.certificatePem);
    // the error occurs at the start, not at the first request of a user
    await expect(
      createApiServer({ inCluster: { host: 'h', port: '1', directory: half }, ...clocks }),
    ).rejects.toThrow(/cannot read the service-account token/);
  });
});
