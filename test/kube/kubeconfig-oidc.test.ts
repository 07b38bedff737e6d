import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import type { CredentialSource } from '../../src/kube/credential-cache.ts';
import { createOidcCredentialSource } from '../../src/kube/kubeconfig-oidc.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';

interface Provider {
  readonly issuer: string;
  /** Bodies of the token requests that the provider received. */
  readonly requests: string[];
}

let directory: string;
let server: Server | undefined;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'tailcast-oidc-'));
});
afterEach(async () => {
  server?.closeAllConnections();
  await new Promise<void>((resolve) => (server === undefined ? resolve() : server.close(() => resolve())));
  server = undefined;
});

function idToken(claims: object): string {
  const part = (value: object): string => Buffer.from(JSON.stringify(value)).toString('base64url');
  return `${part({ alg: 'RS256' })}.${part({ sub: 'alice', aud: 'kubernetes', ...claims })}.c2lnbmF0dXJl`;
}

function inSeconds(seconds: number): number {
  return Math.floor(Date.now() / 1000) + seconds;
}

/** Starts an OIDC provider. Only the kubeconfig contains the provider's CA. */
async function startProvider(respond: (issuer: string) => object | undefined): Promise<Provider> {
  const authority = await createTestAuthority();
  const { keyPem: key, certificatePem: cert } = await authority.issue(['127.0.0.1']);
  writeFileSync(join(directory, 'provider-ca.pem'), authority.caPem);
  const requests: string[] = [];
  let issuer = '';
  server = createServer({ key, cert }, (request, response) => {
    response.setHeader('content-type', 'application/json');
    if (request.url === '/.well-known/openid-configuration') {
      response.end(JSON.stringify({ issuer, token_endpoint: `${issuer}/token`, jwks_uri: `${issuer}/keys` }));
      return;
    }
    void text(request).then((body) => {
      requests.push(body);
      const answer = respond(issuer);
      if (answer === undefined) return;
      response.statusCode = 'error' in answer ? 400 : 200;
      response.end(JSON.stringify(answer));
    });
  });
  await new Promise<void>((resolve) => server?.listen(0, '127.0.0.1', resolve));
  issuer = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { issuer, requests };
}

function open(
  config: Record<string, string>,
  { wallClock = Date.now, timeoutMs = 30_000 }: { wallClock?: () => number; timeoutMs?: number } = {},
): CredentialSource {
  const file = join(directory, 'config');
  const users = [
    { name: 'other', user: { token: 't' } },
    { name: 'alice', user: { 'auth-provider': { name: 'oidc', config } } },
  ];
  writeFileSync(file, `# mine\n${JSON.stringify({ apiVersion: 'v1', kind: 'Config', users })}`);
  return createOidcCredentialSource({ config, file, userName: 'alice', wallClock, timeoutMs });
}

function configOf({ issuer }: Pick<Provider, 'issuer'>, more: Record<string, string> = {}) {
  return {
    'idp-issuer-url': issuer,
    'client-id': 'kubernetes',
    'refresh-token': 'first',
    'id-token': idToken({ exp: inSeconds(-60) }),
    'idp-certificate-authority': 'provider-ca.pem',
    ...more,
  };
}

describe('OpenID Connect tokens of a kubeconfig', () => {
  it('uses a token until it expires, without asking the provider', async () => {
    const token = idToken({ exp: inSeconds(60) });
    const source = open({ 'id-token': token });
    expect(await source.credential()).toEqual({ token, certificate: undefined });
  });

  it('refreshes an expired token once for all callers, and writes the new tokens to the kubeconfig', async () => {
    const provider = await startProvider((iss) => ({
      access_token: 'a',
      token_type: 'Bearer',
      expires_in: 3600,
      refresh_token: 'second',
      id_token: idToken({ iss, iat: inSeconds(0), exp: inSeconds(3600) }),
    }));
    const source = open(configOf(provider));
    const [one, other] = await Promise.all([source.credential(), source.credential()]);
    expect(other).toEqual(one);
    expect(JSON.parse(Buffer.from(one.token?.split('.')[1] ?? '', 'base64url').toString())).toMatchObject({
      iss: provider.issuer,
    });
    expect(provider.requests).toEqual([expect.stringContaining('refresh_token=first')]);
    const written = readFileSync(join(directory, 'config'), 'utf8');
    expect(written).toContain('# mine');
    expect(parse(written)).toMatchObject({
      users: [
        { name: 'other', user: { token: 't' } },
        {
          name: 'alice',
          user: {
            'auth-provider': {
              name: 'oidc',
              config: { 'id-token': one.token, 'refresh-token': 'second', 'client-id': 'kubernetes' },
            },
          },
        },
      ],
    });
  });

  it('refreshes a token once it is expired, and after the API server refused it', async () => {
    const provider = await startProvider((iss) => ({
      access_token: 'a',
      token_type: 'Bearer',
      id_token: idToken({ iss, iat: inSeconds(0), exp: inSeconds(3600) }),
    }));
    let nowMs = Date.now();
    const stored = idToken({ exp: inSeconds(60) });
    const source = open(configOf(provider, { 'id-token': stored }), { wallClock: () => nowMs });
    expect(await source.credential()).toMatchObject({ token: stored });
    nowMs += 54_000;
    expect(await source.credential()).toMatchObject({ token: stored });
    nowMs += 7000;
    await source.credential();
    expect(provider.requests).toHaveLength(1);
    nowMs += 10_000;
    await source.credential();
    expect(provider.requests).toHaveLength(1);
    source.forget();
    await source.credential();
    expect(provider.requests).toHaveLength(2);
    // the provider sends no new refresh token, so the first stays valid
    expect(provider.requests.every((body) => body.includes('refresh_token=first'))).toBe(true);
  });

  it.each<[what: string, more: Record<string, string>, problem: string]>([
    [
      'no refresh token',
      { 'refresh-token': '' },
      'a refresh needs idp-issuer-url, client-id and refresh-token',
    ],
    ['an issuer that is no URL', { 'idp-issuer-url': 'x' }, 'a refresh needs idp-issuer-url'],
    ['a client secret', { 'client-secret': 'hunter2' }, 'a client with client-secret is not supported'],
    ['a CA file that is missing', { 'idp-certificate-authority': 'no.pem' }, 'idp-certificate-authority'],
    ['a refusal', {}, 'did not refresh it: '],
  ])('names the kubeconfig, the user and the problem: %s', async (_what, more, problem) => {
    const provider = await startProvider(() => ({ error: 'invalid_grant' }));
    const failed = open(configOf(provider, more)).credential();
    await expect(failed).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
    await expect(failed).rejects.toThrow('config: users[alice].user.auth-provider.config');
    await expect(failed).rejects.toThrow(problem);
    await expect(failed).rejects.not.toThrow(/hunter2|refresh_token=first/);
  });

  it('trusts the provider only with the CA that the kubeconfig names', async () => {
    const provider = await startProvider(() => ({ error: 'invalid_grant' }));
    await expect(open(configOf(provider, { 'idp-certificate-authority': '' })).credential()).rejects.toThrow(
      'did not refresh it',
    );
    expect(provider.requests).toEqual([]);
  });

  it('reports once that the kubeconfig cannot be written, and keeps the new tokens', async () => {
    const provider = await startProvider((iss) => ({
      access_token: 'a',
      token_type: 'Bearer',
      id_token: idToken({ iss, iat: inSeconds(0), exp: inSeconds(3600) }),
    }));
    let nowMs = Date.now();
    const source = open(configOf(provider), { wallClock: () => nowMs });
    writeFileSync(join(directory, 'config.lock'), '');
    await expect(source.credential()).rejects.toThrow('is locked by another program');
    nowMs += 10_000;
    expect((await source.credential()).token).toBeTypeOf('string');
    expect(provider.requests).toHaveLength(1);
  });

  it('stops waiting for a provider that does not respond', async () => {
    const provider = await startProvider(() => undefined);
    await expect(open(configOf(provider), { timeoutMs: 200 }).credential()).rejects.toThrow(
      'did not refresh it: no response in time',
    );
  });
});
