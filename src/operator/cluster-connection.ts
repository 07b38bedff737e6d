/**
 * The HTTP connection to the API server. What a kubeconfig says is read by `kube/kubeconfig`; the account of the pod,
 * credentials of every kind and proxies are @kubernetes/client-node's. Nothing outside `operator/` knows that package.
 */
import { request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { Agent, request as httpsRequest } from 'node:https';
import { sep } from 'node:path';
import { KubeConfig } from '@kubernetes/client-node';
import { TailcastError, errorText } from '../errors.ts';
import { pathInKubeconfig, readKubeconfigContext, type KubeconfigContext } from '../kube/kubeconfig.ts';

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

export interface ClusterOptions {
  /** Files of a kubeconfig list; undefined: the account of the pod. */
  readonly kubeconfig: readonly string[] | undefined;
  /** Default: the kubeconfig's `current-context`. */
  readonly context: string | undefined;
}

/**
 * Finds the API server: the one of a kubeconfig's context, or the one that the pod runs on.
 *
 * @throws TailcastError `CONFIG_INVALID`
 */
export function connectCluster(options: ClusterOptions): ClusterConnection {
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
  // One agent for all of a kind: it keys its sockets by credentials, so that rotated ones get new connections.
  const forRequests = secure ? new Agent({ keepAlive: true, maxSockets: 64, timeout: 0 }) : undefined;
  // A watch keeps its connection, and there are dozens: in the place of requests they would leave them none.
  const forStreams = secure ? new Agent({ keepAlive: true, timeout: 0 }) : undefined;

  async function open(request: ClusterRequest, agent: Agent | undefined): Promise<IncomingMessage> {
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
      const answer = await open(request, forRequests);
      return { status: answer.statusCode ?? 0, text: await readText(answer) };
    },
    async stream({ path, accept, signal }) {
      const answer = await open({ method: 'GET', path, accept, signal }, forStreams);
      return { status: answer.statusCode ?? 0, body: answer, text: () => readText(answer) };
    },
    close() {
      forRequests?.destroy();
      forStreams?.destroy();
    },
  };
}

function loadConfig({ kubeconfig, context: name }: ClusterOptions): KubeConfig {
  const config = new KubeConfig();
  if (kubeconfig === undefined) {
    try {
      config.loadFromCluster();
    } catch (error) {
      throw new TailcastError(
        'CONFIG_INVALID',
        `the service account of the pod cannot be used: ${errorText(error)}`,
        { cause: error },
      );
    }
    return config;
  }
  const context = readKubeconfigContext(kubeconfig, name);
  const { clusterName, userName, namespace } = context;
  config.loadFromOptions({
    clusters: [clusterOf(context)],
    users: [userOf(context)],
    contexts: [{ name: context.name, cluster: clusterName, user: userName, ...(namespace && { namespace }) }],
    currentContext: context.name,
  });
  return config;
}

function clusterOf({ clusterName, cluster: { value, file } }: KubeconfigContext) {
  return {
    name: clusterName,
    server: value.server,
    skipTLSVerify: value['insecure-skip-tls-verify'] === true,
    caData: value['certificate-authority-data'],
    caFile: fileIn(file, value['certificate-authority']),
    tlsServerName: value['tls-server-name'],
    proxyUrl: value['proxy-url'],
  };
}

function userOf({ userName, user: { value, file } }: KubeconfigContext) {
  const tokenFile = fileIn(file, value.tokenFile);
  const { exec } = value;
  return {
    name: userName,
    certData: value['client-certificate-data'],
    certFile: fileIn(file, value['client-certificate']),
    keyData: value['client-key-data'],
    keyFile: fileIn(file, value['client-key']),
    // a token file wins over a token, as in client-go
    token: tokenFile === undefined ? value.token : undefined,
    authProvider:
      tokenFile === undefined ? value['auth-provider'] : { name: 'tokenFile', config: { tokenFile } },
    exec: exec && {
      ...exec,
      command: exec.command.includes(sep) ? fileIn(file, exec.command) : exec.command,
    },
    username: value.username,
    password: value.password,
    impersonateUser: value.as,
  };
}

function fileIn(kubeconfigFile: string, path: string | undefined): string | undefined {
  return path === undefined || path === '' ? undefined : pathInKubeconfig(path, kubeconfigFile);
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
