/** A simulated API server for the doctor: HTTPS with its own CA, a version, self-reviews, and an adjustable clock. */
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { createServer } from 'node:https';
import type { ApiServer } from '../../src/kube/api-server.ts';
import { createTestAuthority } from './issued-certificates.ts';
import { listenOn } from './listen.ts';

export interface Access {
  readonly verb: string;
  readonly group: string;
  readonly resource: string;
  readonly subresource?: string;
  readonly namespace?: string;
  readonly name?: string;
}

export interface ApiServerDouble {
  readonly port: number;
  readonly caPem: string;
  /** Connection to this API server, as `kube/api-server` describes it. */
  readonly apiServer: ApiServer;
  version: Record<string, unknown> | undefined;
  username: string;
  /** Prefix of all paths that exist, such as `/clusters/root` for a kcp server. */
  prefix: string;
  /** Status that replaces the status of all responses. */
  failure: number | undefined;
  /** Offset of `Date` from the real time. */
  skewMs: number;
  allowed: (access: Access) => boolean;
  rules: readonly Record<string, unknown>[];
  incomplete: boolean;
  /** Resources of tailscale.com/v1alpha1 with their subresources; undefined: the group is unknown. */
  resources: readonly string[] | undefined;
  /** Resources of gateway.networking.k8s.io/v1 with their subresources; undefined: the group is unknown. */
  gatewayResources: readonly string[] | undefined;
  readonly requests: string[];
  /** True to respond to reviews with 201, as a real API server does. */
  created: boolean;
  /** Impersonated user and groups of the last request. */
  impersonated: readonly string[];
  close(): Promise<void>;
}

/** Default: a current version, and an account with exactly the rights of a gateway. */
export async function startApiServerDouble(): Promise<ApiServerDouble> {
  const authority = await createTestAuthority();
  const issued = await authority.issue(['127.0.0.1']);
  const server = createServer({ key: issued.keyPem, cert: issued.certificatePem });
  const port = await listenOn(server);
  const double: ApiServerDouble = {
    port,
    caPem: authority.caPem,
    apiServer: {
      host: '127.0.0.1',
      port,
      serverName: '',
      basePath: '',
      hostHeader: `127.0.0.1:${port}`,
      tls: { ca: authority.caPem, cert: undefined, key: undefined, rejectUnauthorized: true },
      authorization: () => Promise.resolve('Bearer gateway-token'),
      followAuthorities: async () => {},
      refused: () => {},
      describe: () => `https://127.0.0.1:${port} (double)`,
    },
    version: { major: '1', minor: '36', gitVersion: 'v1.36.3' },
    username: 'system:serviceaccount:tailcast:gateway',
    prefix: '',
    failure: undefined,
    skewMs: 0,
    allowed: ({ verb, resource }) => verb === 'impersonate' && ['users', 'groups'].includes(resource),
    rules: [
      { verbs: ['create'], apiGroups: ['authorization.k8s.io'], resources: ['selfsubjectaccessreviews'] },
      { verbs: ['impersonate'], apiGroups: [''], resources: ['users', 'groups'] },
    ],
    incomplete: false,
    resources: undefined,
    gatewayResources: undefined,
    requests: [],
    created: false,
    impersonated: [],
    async close() {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  server.on('request', (request, response) => {
    void readBody(request).then((body) => {
      double.requests.push(`${request.method} ${request.url}`);
      const url = request.url ?? '';
      const isInside = url.startsWith(double.prefix);
      const answer = isInside ? answerTo(double, url.slice(double.prefix.length), body) : undefined;
      const { 'impersonate-user': user, 'impersonate-group': groups } = request.headersDistinct;
      double.impersonated = [...(user ?? []), ...(groups ?? [])];
      response.writeHead(double.failure ?? (answer === undefined ? 404 : double.created ? 201 : 200), {
        'content-type': 'application/json',
        date: new Date(Date.now() + double.skewMs).toUTCString(),
      });
      response.end(JSON.stringify(answer ?? {}));
    });
  });
  return double;
}

function answerTo(double: ApiServerDouble, path: string, body: unknown): object | undefined {
  const { spec } = (body ?? {}) as { spec?: { resourceAttributes?: Access } };
  switch (path) {
    case '/version':
      return double.version;
    case '/apis/authentication.k8s.io/v1/selfsubjectreviews':
      return { status: { userInfo: { username: double.username } } };
    case '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews':
      return { status: { allowed: double.allowed(spec!.resourceAttributes!) } };
    case '/apis/authorization.k8s.io/v1/selfsubjectrulesreviews':
      return { status: { resourceRules: double.rules, nonResourceRules: [], incomplete: double.incomplete } };
    case '/apis/tailscale.com':
      return double.resources && { versions: [{ version: 'v1alpha1' }] };
    case '/apis/gateway.networking.k8s.io/v1':
      return (
        double.gatewayResources && {
          resources: double.gatewayResources.map((name) => ({ name, kind: 'Any' })),
        }
      );
    case '/apis/tailscale.com/v1alpha1':
      return double.resources && { resources: double.resources.map((name) => ({ name, kind: 'Any' })) };
    default:
      return undefined;
  }
}

async function readBody(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString();
  return text === '' ? undefined : JSON.parse(text);
}
