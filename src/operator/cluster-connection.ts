/**
 * The HTTP connection to the API server. Where it is and with which credentials comes from @kubernetes/client-node;
 * nothing outside `operator/` knows that package.
 */
import { request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import { KubeConfig } from '@kubernetes/client-node';
import { TailcastError, errorText } from '../errors.ts';

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
  /** For people, without secrets. */
  readonly server: string;
  /** The namespace of the context or of the pod's account. */
  readonly namespace: string | undefined;
  request(request: ClusterRequest): Promise<{ readonly status: number; readonly text: string }>;
  /** A GET whose body is read as it comes. The body must be read to its end or the signal aborted. */
  stream(request: Pick<ClusterRequest, 'path' | 'accept' | 'signal'>): Promise<{
    readonly status: number;
    readonly body: AsyncIterable<Uint8Array>;
    text(): Promise<string>;
  }>;
  close(): void;
}

/**
 * Finds the API server as client-node does: the named kubeconfig, or the pod's own account.
 *
 * @throws TailcastError `CONFIG_INVALID`
 */
export function connectCluster(options: {
  readonly kubeconfig: string | undefined;
  readonly context: string | undefined;
}): ClusterConnection {
  const config = loadConfig(options);
  const cluster = config.getCurrentCluster();
  if (cluster === null) {
    throw new TailcastError('CONFIG_INVALID', 'the kubeconfig has no current context with a cluster');
  }
  const base = new URL(cluster.server);
  const secure = base.protocol === 'https:';
  if (!secure && !['127.0.0.1', '[::1]', 'localhost'].includes(base.hostname)) {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${cluster.server} is not https; credentials are only sent over TLS`,
    );
  }
  // One agent for all: it keys its sockets by credentials, so that rotated ones get new connections.
  const agent = secure ? new Agent({ keepAlive: true, maxSockets: 64, timeout: 0 }) : undefined;

  async function open(request: ClusterRequest): Promise<IncomingMessage> {
    const options = await requestOptions(config, base, request);
    if (agent !== undefined && (cluster?.proxyUrl ?? '') === '') options.agent = agent;
    return new Promise((resolve, reject) => {
      const sent = secure
        ? httpsRequest(options, resolve)
        : httpRequest({ ...options, agent: undefined }, resolve);
      sent.setTimeout(ANSWER_TIMEOUT_MS, () =>
        sent.destroy(new Error(`${request.method} ${request.path}: no answer in ${ANSWER_TIMEOUT_MS} ms`)),
      );
      sent.on('error', reject);
      sent.on('response', () => sent.setTimeout(0));
      sent.end(request.body);
    });
  }

  return {
    server: base.origin,
    namespace: config.getContextObject(config.getCurrentContext())?.namespace,
    async request(request) {
      const answer = await open(request);
      return { status: answer.statusCode ?? 0, text: await readText(answer) };
    },
    async stream({ path, accept, signal }) {
      const answer = await open({ method: 'GET', path, accept, signal });
      return { status: answer.statusCode ?? 0, body: answer, text: () => readText(answer) };
    },
    close: () => agent?.destroy(),
  };
}

function loadConfig({
  kubeconfig,
  context,
}: {
  readonly kubeconfig: string | undefined;
  readonly context: string | undefined;
}): KubeConfig {
  const config = new KubeConfig();
  try {
    if (kubeconfig === undefined) config.loadFromCluster();
    else config.loadFromFile(kubeconfig);
  } catch (error) {
    const what = kubeconfig ?? 'the service account of the pod';
    throw new TailcastError('CONFIG_INVALID', `${what} cannot be used: ${errorText(error)}`, {
      cause: error,
    });
  }
  if (context !== undefined) {
    if (config.getContextObject(context) === null) {
      throw new TailcastError('CONFIG_INVALID', `context: the kubeconfig has no context ${context}`);
    }
    config.setCurrentContext(context);
  }
  return config;
}

async function requestOptions(
  config: KubeConfig,
  base: URL,
  request: ClusterRequest,
): Promise<RequestOptions> {
  const options: RequestOptions & { headers: Record<string, string | number> } = { headers: {} };
  // Adds TLS material, credentials and, where the kubeconfig names a proxy, an agent for it.
  await config.applyToHTTPSOptions(options);
  options.headers['accept'] = request.accept;
  options.headers['user-agent'] = 'tailcast-operator';
  if (request.body !== undefined) {
    options.headers['content-type'] = request.contentType ?? 'application/json';
    options.headers['content-length'] = Buffer.byteLength(request.body);
  }
  return Object.assign(options, {
    protocol: base.protocol,
    hostname: base.hostname.replace(/^\[(.*)\]$/, '$1'),
    port: base.port === '' ? undefined : Number(base.port),
    path: `${base.pathname.replace(/\/+$/, '')}${request.path}`,
    method: request.method,
    signal: request.signal,
  });
}

async function readText(answer: IncomingMessage): Promise<string> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  const stream: AsyncIterable<Uint8Array> = answer;
  for await (const bytes of stream) {
    length += bytes.length;
    if (length > MAX_ANSWER_BYTES) {
      answer.destroy();
      throw new RangeError(`an answer of the API server exceeds ${MAX_ANSWER_BYTES} bytes`);
    }
    chunks.push(bytes);
  }
  return Buffer.concat(chunks).toString('utf8');
}
