/** Checks that the API server responds, that it accepts the credentials, and that the clocks agree. */
import { z } from 'zod';
import { errorText } from '../errors.ts';
import type { ImpersonationTarget } from '../impersonation/target.ts';
import type { ApiServer } from '../kube/api-server.ts';
import { createApiClient, type ApiAnswer, type ApiClient } from './api-client.ts';
import { failed, ok, once, warning, type Check, type CheckVerdict } from './checks.ts';
import { clockVerdict } from './clock-check.ts';

export interface ApiServerFacts {
  /** Reads the address and the credentials of the API server from the kubeconfig or from the pod's ServiceAccount. */
  readonly open: () => Promise<ApiServer>;
  readonly unixMs: () => number;
  /** Prefix of every path. Default: none. */
  readonly prefix?: string;
}

/** Checks of an API server, and the client that these checks share. */
export interface ApiServerSource {
  readonly client: () => Promise<ApiClient>;
  readonly checks: readonly Check[];
}

const VERSION = z.object({ gitVersion: z.string(), major: z.string(), minor: z.string() });
const SELF = z.object({ status: z.object({ userInfo: z.object({ username: z.string() }) }) });
/** First minor version of Kubernetes whose kubectl can use WebSocket. Older versions are untested. */
const OLDEST_MINOR = 29;

const UNREACHABLE =
  'check NetworkPolicy and firewall, and the address in the kubeconfig or KUBERNETES_SERVICE_HOST';

/** Returns the checks of the API server. */
export function apiServerChecks({ open, unixMs, prefix }: ApiServerFacts): ApiServerSource {
  const server = once(open);
  const client = once(async () => createApiClient(await server(), unixMs, prefix));
  let version: ApiAnswer | undefined;
  const checks: readonly Check[] = [
    {
      id: 'api-server',
      title: 'API server',
      remedy: UNREACHABLE,
      async run(signal) {
        const description = (await server()).describe();
        version = await (await client()).get('/version', signal).catch((error: unknown) => {
          throw explain(error);
        });
        return versionVerdict(version, description);
      },
    },
    {
      id: 'credential',
      title: 'credential',
      needs: ['api-server'],
      remedy: UNREACHABLE,
      async run(signal) {
        const as = (await server()).requestHeader === true ? PROBE : undefined;
        return selfVerdict(await askSelf(await client(), signal, as));
      },
    },
    {
      id: 'clock',
      title: 'clock',
      needs: ['api-server'],
      remedy: 'synchronise the clock with NTP',
      run: async () => dateVerdict(version),
    },
  ];
  return { client, checks };
}

/**
 * User for the self-review if the gateway has no account of its own, because it sends the caller's identity in
 * `X-Remote-*` headers. The self-review then has this user as its caller.
 */
const PROBE: ImpersonationTarget = { user: 'tailcast:probe', groups: [], extra: [] };

function askSelf(client: ApiClient, signal: AbortSignal, as?: ImpersonationTarget): Promise<ApiAnswer> {
  const body = { apiVersion: 'authentication.k8s.io/v1', kind: 'SelfSubjectReview' };
  return client.post('/apis/authentication.k8s.io/v1/selfsubjectreviews', body, signal, as);
}

function versionVerdict(answer: ApiAnswer, description: string): CheckVerdict {
  if (answer.status === 401 || answer.status === 403) {
    // By default, the API server reports its version without authentication. After a 401 or 403, the next check reports
    // whether access is restricted or the credential is wrong.
    return ok(`${description}; the account may not read its version`);
  }
  const parsed = VERSION.safeParse(answer.body);
  if (answer.status !== 200 || !parsed.success) {
    return failed(
      `${description} answered GET /version with ${answer.status} instead of a Kubernetes version`,
      'set the address of the Kubernetes API server in the kubeconfig or KUBERNETES_SERVICE_HOST',
    );
  }
  const { gitVersion, major, minor } = parsed.data;
  const summary = `${description}, ${gitVersion}`;
  if (Number(major) === 1 && Number.parseInt(minor, 10) < OLDEST_MINOR) {
    return warning(summary, `use Kubernetes 1.${OLDEST_MINOR} or newer: older versions are not tested`);
  }
  return ok(summary);
}

/** Returns the account's user name at the API server, or undefined if the server does not report it. */
export async function usernameOf(client: ApiClient, signal: AbortSignal): Promise<string | undefined> {
  return SELF.safeParse((await askSelf(client, signal)).body).data?.status.userInfo.username;
}

function selfVerdict(answer: ApiAnswer): CheckVerdict {
  if (answer.status === 401) {
    return failed(
      'the API server does not accept the credential',
      'renew it: mount the service-account token again, or log in for the kubeconfig’s user',
    );
  }
  const parsed = SELF.safeParse(answer.body);
  if (!parsed.success)
    return ok(`accepted; the API server does not report the user (status ${answer.status})`);
  const { username } = parsed.data.status.userInfo;
  if (username === 'system:anonymous') {
    return failed(
      'no credential: the API server identifies the account as system:anonymous',
      'give the pod a service account (automountServiceAccountToken: true), or the kubeconfig’s user a credential',
    );
  }
  return ok(`accepted as ${username}`);
}

function dateVerdict(answer: ApiAnswer | undefined): CheckVerdict {
  const { dateMs, askedAtMs = 0, answeredAtMs = 0 } = answer ?? {};
  return clockVerdict(
    dateMs === undefined ? undefined : { dateMs, askedAtMs, answeredAtMs },
    'the API server',
  );
}

/** Converts common errors to messages with advice, because the messages of Node.js contain no advice. */
function explain(error: unknown): Error {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  const text = errorText(error);
  if (/CERT|SIGNATURE|ISSUER|ALTNAME/.test(code)) {
    return new Error(`its certificate is not trusted (${text}): add its CA to the kubeconfig`, {
      cause: error,
    });
  }
  return new Error(`it cannot be reached: ${text}`, { cause: error });
}
