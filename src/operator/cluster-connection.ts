/**
 * HTTP connections to the API server, with the credentials of a kubeconfig or of the pod's ServiceAccount. The operator
 * sends few concurrent requests, but keeps many watches open.
 */
import { readFileSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { Agent } from 'node:https';
import { sendRequest } from '../kube/api-request.ts';
import {
  apiServerOptions,
  createApiServer,
  SERVICE_ACCOUNT_DIRECTORY,
  type ApiServer,
} from '../kube/api-server.ts';
import { readKubeconfigContext, type KubeconfigContext } from '../kube/kubeconfig.ts';
import { readBounded } from '../async/read-bounded.ts';

const MAX_ANSWER_BYTES = 64 * 1024 ** 2;

export interface ClusterRequest {
  readonly method: string;
  readonly path: string;
  readonly accept: string;
  readonly contentType?: string;
  readonly body?: string;
  readonly signal: AbortSignal;
}

export type ClusterConnection = ReturnType<typeof connectCluster>;

export interface ClusterOptions {
  /** Kubeconfig file. Default: the ServiceAccount of the pod, or the kubeconfig that kubectl uses. */
  readonly kubeconfig: string | undefined;
  /** Name of the kubeconfig context. Default: `current-context`. */
  readonly context: string | undefined;
}

/**
 * Finds the API server of a kubeconfig context, or of the cluster in which the pod runs. Credentials are read at the
 * first request, and reloaded after changes.
 *
 * @throws TailcastError `CONFIG_INVALID`
 */
export function connectCluster(choice: ClusterOptions, environment: ReadonlyMap<string, string>) {
  const options = apiServerOptions(choice, environment);
  const { kubeconfig, inCluster } = options;
  const context = kubeconfig === undefined ? undefined : readKubeconfigContext(kubeconfig, choice.context);
  let opened: Promise<ApiServer> | undefined;
  const apiServer = (): Promise<ApiServer> =>
    (opened ??= createApiServer({
      ...options,
      allowPlainLoopback: true,
      now: () => performance.now(),
      wallClock: () => Date.now(),
    }).catch((error: unknown) => {
      // The next request loads the credentials again, because a mounted credential may appear later.
      opened = undefined;
      throw error;
    }));
  // The agent separates sockets by credentials, so rotated credentials get new connections.
  const forRequests = new Agent({ keepAlive: true, maxSockets: 16, timeout: 0 });
  // Each watch keeps a connection open, so watches use their own agent. With a shared agent, dozens of watches would
  // block other requests.
  const forStreams = new Agent({ keepAlive: true, timeout: 0 });

  async function open(request: ClusterRequest, agent: Agent): Promise<IncomingMessage> {
    const { method, path, accept, body, contentType = 'application/json', signal } = request;
    const server = await apiServer();
    const authorization = await server.authorization();
    const headers = [
      'Host',
      server.hostHeader,
      'Accept',
      accept,
      'User-Agent',
      'tailcast-operator',
      ...(authorization === undefined ? [] : ['Authorization', authorization]),
      ...(body === undefined
        ? []
        : ['Content-Type', contentType, 'Content-Length', String(Buffer.byteLength(body))]),
    ];
    const response = await sendRequest(server, { method, path, headers, body, agent, signal });
    if (response.statusCode === 401) server.refused();
    return response;
  }

  return {
    /** Address of the API server as log messages show it, without secrets. */
    server: context === undefined ? `https://${inCluster?.host}:${inCluster?.port}` : originOf(context),
    /** Namespace of the kubeconfig context, or of the pod's ServiceAccount. */
    namespace: context === undefined ? namespaceOfPod() : context.namespace,
    async request(request: ClusterRequest): Promise<{ readonly status: number; readonly text: string }> {
      const answer = await open(request, forRequests);
      return { status: answer.statusCode ?? 0, text: await readText(answer) };
    },
    /** Sends a GET request with a streamed response. The caller must read the body to its end, or abort the signal. */
    async stream({ path, accept, signal }: Pick<ClusterRequest, 'path' | 'accept' | 'signal'>): Promise<{
      readonly status: number;
      readonly body: AsyncIterable<Uint8Array>;
      text(): Promise<string>;
    }> {
      const answer = await open({ method: 'GET', path, accept, signal }, forStreams);
      return { status: answer.statusCode ?? 0, body: answer, text: () => readText(answer) };
    },
    close(): void {
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
    // This process does not run in a pod, so the caller requires a configured namespace.
    return undefined;
  }
}

async function readText(answer: IncomingMessage): Promise<string> {
  const tooLong = (): Error =>
    new RangeError(`a response of the API server exceeds ${MAX_ANSWER_BYTES} bytes`);
  return (await readBounded(answer, MAX_ANSWER_BYTES, tooLong)).toString();
}
