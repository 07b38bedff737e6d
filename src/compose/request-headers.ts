/**
 * Opens clusters with `identity: requestHeader`. The API server accepts the user in `X-Remote-*` headers if the client
 * certificate of the connection is from the CA in `--requestheader-client-ca-file`. With such a certificate, a client
 * can claim to be any user, and RBAC cannot restrict this. Unsafe settings are therefore refused, and no request is
 * sent before a probe has passed.
 */
import { stat } from 'node:fs/promises';
import { z } from 'zod';
import { createApiClient, type ApiAnswer } from '../doctor/api-client.ts';
import { asTailcastError, TailcastError } from '../errors.ts';
import type { ApiServer } from '../kube/api-server.ts';
import { AUDIT_EXTRA } from '../kube/audit-extras.ts';
import { pathInKubeconfig } from '../kube/kubeconfig.ts';
import { ownPrefix, type ClusterSpec } from './cluster-sources.ts';

const PROBE = {
  user: 'tailcast:probe',
  groups: ['tailcast:probe'],
  extra: [[AUDIT_EXTRA.node, 'tailcast:probe']],
} as const;
const PROBE_MS = 5_000;
/** Minimum time between a failed probe and the next probe, in milliseconds. */
const RETRY_MS = 2_000;
const PATH = '/apis/authentication.k8s.io/v1/selfsubjectreviews';
const REVIEW = { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' };
const ANSWER = z.object({
  status: z.object({
    userInfo: z.object({
      username: z.string(),
      groups: z.array(z.string()).default([]),
      extra: z.record(z.string(), z.array(z.string())).default({}),
    }),
  }),
});
const ANONYMOUS = 'system:anonymous';

/**
 * Returns an API server that receives the caller's identity in request headers. `authorization()` rejects until the
 * probe has passed.
 *
 * @throws TailcastError `CONFIG_INVALID` for unsafe settings
 */
export async function openRequestHeaders(
  server: ApiServer,
  spec: ClusterSpec,
  options: { readonly mode: 'auth' | 'noauth'; readonly onFailure: (error: TailcastError) => void },
): Promise<ApiServer> {
  await refuseUnsafe(server, spec, options.mode);
  const raw: ApiServer = {
    ...server,
    get tls() {
      return server.tls;
    },
    requestHeader: true,
  };
  let proof: Promise<void> | undefined;
  let retryAtMs = Infinity;
  const prove = (): Promise<void> => {
    if (proof !== undefined && performance.now() < retryAtMs) return proof;
    retryAtMs = Infinity;
    proof = probe(raw, spec).catch((cause: unknown) => {
      retryAtMs = performance.now() + RETRY_MS;
      const error = asTailcastError(cause);
      options.onFailure(error);
      throw error;
    });
    return proof;
  };
  prove().catch(() => {});
  return {
    ...raw,
    get tls() {
      return server.tls;
    },
    async authorization() {
      await server.authorization();
      await prove();
      return undefined;
    },
  };
}

async function refuseUnsafe(
  server: ApiServer,
  { name, context }: ClusterSpec,
  mode: 'auth' | 'noauth',
): Promise<void> {
  const refuse = (problem: string): never => {
    throw new TailcastError('CONFIG_INVALID', `cluster ${name}: identity: requestHeader ${problem}`);
  };
  if (mode === 'noauth') refuse('needs mode=auth');
  if (context === undefined) return refuse('needs a kubeconfig with a client certificate');
  if (!server.tls.rejectUnauthorized) refuse('excludes insecure-skip-tls-verify');
  if (server.tls.cert === undefined) refuse('needs a client certificate');
  if ((await server.authorization()) !== undefined) refuse('excludes tokens and passwords in the kubeconfig');
  const { value, file } = context.user;
  const key = value['client-key'];
  const path = key === undefined || key === '' ? file : pathInKubeconfig(key, file);
  const { mode: permissions } = await stat(path);
  if ((permissions & 0o007) !== 0) refuse(`needs a key that others cannot read: run chmod o= ${path}`);
}

/**
 * Verifies that the API server accepts the headers only on connections with the gateway's certificate. A kcp server
 * refuses the SelfSubjectReview of an unknown user. The user's name in the refusal shows that the server has read the
 * headers. Groups and extras cannot be checked on a kcp server.
 */
async function probe(server: ApiServer, spec: ClusterSpec): Promise<void> {
  const fail = (problem: string): never => {
    throw new TailcastError('CONFIG_INVALID', `request headers: ${problem}`);
  };
  const signal = AbortSignal.timeout(PROBE_MS);
  const prefix = ownPrefix(spec);
  const ours = createApiClient(server, Date.now, prefix);
  const without = createApiClient(
    { ...server, tls: { ...server.tls, cert: undefined, key: undefined } },
    Date.now,
    prefix,
  );
  const [believed, nobody, stranger] = await Promise.all([
    ours.post(PATH, REVIEW, signal, PROBE),
    ours.post(PATH, REVIEW, signal),
    without.post(PATH, REVIEW, signal, PROBE),
  ]);
  const found = ANSWER.safeParse(believed.body).data?.status.userInfo;
  if (found?.username !== PROBE.user && !(spec.kcp && isForbidden(believed, PROBE.user))) {
    const flags = '--requestheader-client-ca-file and --requestheader-allowed-names';
    return fail(`the API server does not trust them (${believed.status}); check ${flags}`);
  }
  if (found !== undefined) requireHeaders(found, fail);
  if (!isRefused(nobody)) {
    fail('the certificate is also a login; use a separate CA for --requestheader-client-ca-file');
  }
  if (!isRefused(stranger)) fail('the API server trusts these headers without a certificate');
}

/** Fails unless the API server has read the group and extra headers of the gateway. */
function requireHeaders(
  { groups, extra }: z.output<typeof ANSWER>['status']['userInfo'],
  fail: (problem: string) => never,
): void {
  if (!groups.includes(PROBE.groups[0])) fail('set --requestheader-group-headers=X-Remote-Group');
  if (extra[AUDIT_EXTRA.node]?.[0] !== PROBE.user)
    fail('set --requestheader-extra-headers-prefix=X-Remote-Extra-');
}

/** Returns true if the response has status 401 or names the anonymous user. */
function isRefused(answer: ApiAnswer): boolean {
  if (answer.status === 401) return true;
  const found = ANSWER.safeParse(answer.body);
  if (found.success) return found.data.status.userInfo.username === ANONYMOUS;
  return isForbidden(answer, ANONYMOUS);
}

/** True if the response is a 403 that names this user. */
function isForbidden({ status, body }: ApiAnswer, user: string): boolean {
  return status === 403 && JSON.stringify(body ?? '').includes(`User \\"${user}\\"`);
}
