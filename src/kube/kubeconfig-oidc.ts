/**
 * OpenID Connect tokens of a kubeconfig (`auth-provider` named `oidc`). A valid token is used unchanged. A worker
 * thread refreshes an expired token. Like kubectl, this module then writes the new token to the kubeconfig. Source:
 * `k8s.io/client-go/plugin/pkg/client/auth/oidc`.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { z } from 'zod';
import { TailcastError, errorText } from '../errors.ts';
import { jsonOrUndefined } from '../wire/json-value.ts';
import { pemSource } from './api-server-tls.ts';
import { cacheCredential, type CredentialSource, type UserCredentialOptions } from './credential-cache.ts';
import { writeOidcTokens } from './kubeconfig-write.ts';

export interface OidcCredentialOptions extends UserCredentialOptions {
  /** `auth-provider.config` of the user. */
  readonly config: Readonly<Record<string, string>>;
}

const THREAD = new URL(
  import.meta.url.endsWith('.ts') ? './oidc-thread.ts' : './oidc-thread.js',
  import.meta.url,
);
const TIMEOUT_MS = 30_000;
/** Minimum time between two refreshes, in milliseconds. A refresh takes about 0.5 s of CPU time. */
const MIN_INTERVAL_MS = 10_000;
/**
 * Memory limits of the thread. With these limits, an endless response from a provider terminates the thread instead of
 * the process.
 */
const RESOURCE_LIMITS = { maxOldGenerationSizeMb: 192, maxYoungGenerationSizeMb: 32 };

const tokensSchema = z.object({ 'id-token': z.string(), 'refresh-token': z.string().optional() });
const claimsSchema = z.object({ exp: z.number() });

/** Returns the source of ID tokens. Its `credential()` may throw TailcastError `CONFIG_INVALID`. */
export function createOidcCredentialSource(options: OidcCredentialOptions): CredentialSource {
  let { 'id-token': token = '', 'refresh-token': refreshToken = '' } = options.config;
  // A second request for a credential indicates that the first token is expired or was refused.
  let isIssued = false;
  return cacheCredential(
    async () => {
      if (isIssued || expiresAtMs(token) <= options.wallClock()) {
        const tokens = await refresh(refreshToken, options);
        token = tokens['id-token'];
        refreshToken = tokens['refresh-token'] ?? refreshToken;
        // If writing fails, the caller gets the error once, and later calls return the new token.
        await writeOidcTokens(options.file, options.userName, {
          'id-token': token,
          'refresh-token': refreshToken,
        });
      }
      isIssued = true;
      return { token, certificate: undefined, expiresAtMs: expiresAtMs(token) };
    },
    options.wallClock,
    MIN_INTERVAL_MS,
  );
}

/** Returns the expiry time of a JSON Web Token, in milliseconds since 1970; 0 if the token has none. */
function expiresAtMs(token: string): number {
  const claims = jsonOrUndefined(Buffer.from(token.split('.')[1] ?? '', 'base64url').toString());
  const { data } = claimsSchema.safeParse(claims);
  return (data?.exp ?? 0) * 1000;
}

async function refresh(
  refreshToken: string,
  options: OidcCredentialOptions,
): Promise<z.infer<typeof tokensSchema>> {
  const { config, file, userName, timeoutMs = TIMEOUT_MS } = options;
  const { 'idp-issuer-url': issuer = '', 'client-id': clientId = '' } = config;
  const where = `kubeconfig ${file}: users[${userName}].user.auth-provider.config`;
  const fail = (text: string, cause?: unknown): never => {
    const problem = `${where}: the ID token is expired or refused, and ${text}`;
    throw new TailcastError('CONFIG_INVALID', problem, { cause });
  };
  if (!URL.canParse(issuer) || clientId === '' || refreshToken === '') {
    fail('a refresh needs idp-issuer-url, client-id and refresh-token; log in again');
  }
  // `KubeConfig` of @kubernetes/client-node does not send the client secret, so the provider would refuse the refresh.
  if ((config['client-secret'] ?? '') !== '') {
    fail('a client with client-secret is not supported; run kubectl to refresh it, or use an exec plugin');
  }
  const ca = await pemSource({
    data: config['idp-certificate-authority-data'],
    path: config['idp-certificate-authority'],
    file,
    what: `${where}.idp-certificate-authority`,
    now: options.wallClock,
  })?.();
  const workerData = { issuer, clientId, refreshToken, ca };
  const thread = new Worker(THREAD, { workerData, resourceLimits: RESOURCE_LIMITS });
  const signal = AbortSignal.timeout(timeoutMs);
  try {
    return z.tuple([tokensSchema]).parse(await once(thread, 'message', { signal }))[0];
  } catch (cause) {
    return fail(
      `${issuer} did not refresh it: ${signal.aborted ? 'no response in time' : errorText(cause)}`,
      cause,
    );
  } finally {
    await thread.terminate();
  }
}
