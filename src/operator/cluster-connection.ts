/**
 * HTTP connections to the API server, with a kubeconfig or the ServiceAccount of the pod. The operator sends few
 * concurrent requests, but keeps many watches open.
 */
import { readFileSync } from 'node:fs';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent, request as httpsRequest, type RequestOptions } from 'node:https';
import type { Socket } from 'node:net';
import { createApiServer, SERVICE_ACCOUNT_DIRECTORY, type ApiServer } from '../kube/api-server.ts';
import { readKubeconfigContext, type KubeconfigContext } from '../kube/kubeconfig.ts';
import { readBounded } from '../async/read-bounded.ts';

const MAX_ANSWER_BYTES = 64 * 1024 ** 2;
const ANSWER_TIMEOUT_MS = 30_000;

export interface ClusterRequest {
  readonly method: string;
  readonly path: string;
  readonly accept: string;
  readonly contentType?: string;
  readonly body?: string;
  readonly signal: AbortSignal;
}

export interface ClusterConnection {
  /** Address of the API server for log messages, without secrets. */
  readonly server: string;
  /** Namespace of the kubeconfig context, or of the pod's ServiceAccount. */
  readonly namespace: string | undefined;
  request(request: ClusterRequest): Promise<{ readonly status: number; readonly text: string }>;
  /** Sends a GET request with a streamed response. Read the body to its end, or abort the signal. */
  stream(request: Pick<ClusterRequest, 'path' | 'accept' | 'signal'>): Promise<{
    readonly status: number;
    readonly body: AsyncIterable<Uint8Array>;
    text(): Promise<string>;
  }>;
  close(): void;
}

export interface ClusterOptions {
  /** Paths of kubeconfig files, which are merged. If undefined, the ServiceAccount of the pod is used. */
  readonly kubeconfig: readonly string[] | undefined;
  /** Name of the kubeconfig context. Default: `current-context`. */
  readonly context: string | undefined;
  /**
   * Environment variables of this process. In a pod, they contain the address of the API server. Credential plugins
   * inherit all variables.
   */
  readonly environment?: ReadonlyMap<string, string>;
}

/**
 * Finds the API server of a kubeconfig context, or of the pod. Credentials are read at the first request, and reloaded
 * after changes.
 *
 * @throws TailcastError `CONFIG_INVALID`
 */
export function connectCluster(options: ClusterOptions): ClusterConnection {
  const { kubeconfig, environment = new Map<string, string>() } = options;
  const context = kubeconfig === undefined ? undefined : readKubeconfigContext(kubeconfig, options.context);
  const host = environment.get('KUBERNETES_SERVICE_HOST') ?? '';
  const port = environment.get('KUBERNETES_SERVICE_PORT') ?? '';
  let opened: Promise<ApiServer> | undefined;
  const apiServer = (): Promise<ApiServer> =>
    (opened ??= createApiServer({
      kubeconfig,
      context: options.context,
      inCluster: { host, port },
      environment: Object.fromEntries(environment),
      allowPlainLoopback: true,
      now: () => performance.now(),
      wallClock: () => Date.now(),
    }).catch((error: unknown) => {
      // The next request tries again, because a mounted credential may appear later.
      opened = undefined;
      throw error;
    }));
  // The agent separates sockets by credentials, so rotated credentials get new connections.
  const forRequests = new Agent({ keepAlive: true, maxSockets: 16, timeout: 0 });
  // Each watch keeps a connection. With a shared agent, dozens of watches would block other requests.
  const forStreams = new Agent({ keepAlive: true, timeout: 0 });

  async function open(request: ClusterRequest, agent: Agent): Promise<IncomingMessage> {
    const server = await apiServer();
    const sending = await requestOptions(server, request, agent);
    return new Promise((resolve, reject) => {
      const sent = server.plain === true ? httpRequest(sending, resolve) : httpsRequest(sending, resolve);
      sent.setTimeout(ANSWER_TIMEOUT_MS, () =>
        sent.destroy(
          new Error(`${request.method} ${request.path}: no response within ${ANSWER_TIMEOUT_MS} ms`),
        ),
      );
      sent.on('error', reject);
      sent.on('response', ({ statusCode }) => {
        sent.setTimeout(0);
        if (statusCode === 401) server.refused();
      });
      sent.end(request.body);
    });
  }

  return {
    server: context === undefined ? `https://${host}:${port}` : originOf(context),
    namespace: context === undefined ? namespaceOfPod() : context.namespace,
    async request(request) {
      const answer = await open(request, forRequests);
      return { status: answer.statusCode ?? 0, text: await readText(answer) };
    },
    async stream({ path, accept, signal }) {
      const answer = await open({ method: 'GET', path, accept, signal }, forStreams);
      return { status: answer.statusCode ?? 0, body: answer, text: () => readText(answer) };
    },
    close() {
      forRequests.destroy();
      forStreams.destroy();
    },
  };
}

function originOf({ cluster: { value } }: KubeconfigContext): string {
  return URL.parse(value.server)?.origin ?? value.server;
}

function namespaceOfPod(): string | undefined {
  try {
    return readFileSync(`${SERVICE_ACCOUNT_DIRECTORY}/namespace`, 'utf8').trim();
  } catch {
    // Outside a pod, the caller uses the configured namespace.
    return undefined;
  }
}

async function requestOptions(
  server: ApiServer,
  request: ClusterRequest,
  agent: Agent,
): Promise<RequestOptions & { readonly socket?: Socket }> {
  const { method, path, accept, body, contentType = 'application/json', signal } = request;
  const authorization = await server.authorization();
  const tunnel = await server.open?.(signal);
  const shared = server.plain === true ? {} : { agent, ...server.tls, servername: server.serverName };
  return {
    ...shared,
    ...(tunnel === undefined ? {} : { agent: false, socket: tunnel }),
    hostname: server.host,
    port: server.port,
    path: `${server.basePath}${path}`,
    method,
    signal,
    headers: {
      host: server.hostHeader,
      accept,
      'user-agent': 'tailcast-operator',
      ...(authorization === undefined ? {} : { authorization }),
      ...(body === undefined
        ? {}
        : { 'content-type': contentType, 'content-length': Buffer.byteLength(body) }),
    },
  };
}

async function readText(answer: IncomingMessage): Promise<string> {
  const tooLong = (): Error =>
    new RangeError(`a response of the API server exceeds ${MAX_ANSWER_BYTES} bytes`);
  return (await readBounded(answer, MAX_ANSWER_BYTES, tooLong)).toString();
}
