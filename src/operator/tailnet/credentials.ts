/** Credentials of an OAuth client, as Secrets and mounted directories store them. */
import { z } from 'zod';
import { TailcastError } from '../../errors.ts';
import type { KubeClient } from '../kube-client.ts';
import { KINDS, pathOf } from '../kube-object.ts';
import type { ApiCredentials } from '../tailscale-api.ts';

/**
 * Creates a token of the operator's own ServiceAccount.
 *
 * @throws KubeRefusal; TailcastError `CONTROL_FAILED` if the operator does not use a ServiceAccount
 */
export type CreateIdToken = (audience: string) => Promise<string>;

/** Lifetime of a token: the minimum that the API server permits, because the token is exchanged immediately. */
const TOKEN_SECONDS = 600;

const selfSchema = z.object({ status: z.object({ userInfo: z.object({ username: z.string() }) }) });
const tokenSchema = z.object({ status: z.object({ token: z.string() }) });

/** Creates tokens with the TokenRequest API. The ServiceAccount needs the right to create its own tokens. */
export function createIdTokens(client: Pick<KubeClient, 'review'>): CreateIdToken {
  return async (audience) => {
    const self = await client.review('/apis/authentication.k8s.io/v1/selfsubjectreviews', {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'SelfSubjectReview',
    });
    const { username } = selfSchema.parse(self).status.userInfo;
    const [, namespace, name] = /^system:serviceaccount:([^:]+):([^:]+)$/.exec(username) ?? [];
    if (namespace === undefined || name === undefined)
      throw new TailcastError(
        'CONTROL_FAILED',
        `credentials: an audience needs a ServiceAccount, and the operator is ${JSON.stringify(username)}`,
      );
    const account = pathOf(KINDS.serviceAccount, { namespace, name });
    const body = {
      apiVersion: 'authentication.k8s.io/v1',
      kind: 'TokenRequest',
      spec: { audiences: [audience], expirationSeconds: TOKEN_SECONDS },
    };
    return tokenSchema.parse(await client.review(`${account}/token`, body)).status.token;
  };
}

/** Returns the reason why stored credentials are invalid; undefined if they are valid. */
export function credentialsProblem(values: ReadonlyMap<string, string>): string | undefined {
  const has = (key: string): boolean => (values.get(key) ?? '').trim() !== '';
  if (!has('client_id')) return 'client_id is missing';
  if (has('client_secret') === has('audience'))
    return has('audience')
      ? 'client_secret and audience exclude each other: remove one'
      : 'client_secret or audience is missing';
  return undefined;
}

/**
 * Returns the credentials for the control server.
 *
 * @param values `client_id`, together with `client_secret` or, for workload identity federation, with `audience`
 * @throws TailcastError `CONTROL_FAILED` if a value is missing; also throws the errors of `createIdToken`
 */
export async function apiCredentials(
  values: ReadonlyMap<string, string>,
  source: string,
  createIdToken: CreateIdToken,
): Promise<ApiCredentials> {
  const problem = credentialsProblem(values);
  if (problem !== undefined) throw new TailcastError('CONTROL_FAILED', `${source}: ${problem}`);
  const value = (key: string): string => (values.get(key) ?? '').trim();
  const clientId = value('client_id');
  return value('audience') === ''
    ? { clientId, clientSecret: value('client_secret') }
    : { clientId, idToken: await createIdToken(value('audience')) };
}
