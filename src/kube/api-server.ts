/** Where the API server is and how to speak to it: from a kubeconfig, or from inside a pod. */
import { readFileSync } from 'node:fs';
import { isIP } from 'node:net';
import { createSecureContext } from 'node:tls';
import { TailcastError, errorText } from '../errors.ts';
import { createExecCredentialSource, type ExecCredentialSource } from './kubeconfig-exec.ts';
import { pathInKubeconfig, readKubeconfigContext, type KubeconfigContext } from './kubeconfig.ts';
import { openProxyTunnel, type OpenTunnel } from './proxy-tunnel.ts';
import { createReloadedFile } from './token.ts';

/** What `tls.connect` needs besides host, port and server name. */
export interface ApiServerTls {
  /** PEM; undefined: the roots that Node ships with. */
  readonly ca: string | undefined;
  /** PEM of a client certificate and its key; both or none. */
  readonly cert: string | undefined;
  readonly key: string | undefined;
  readonly rejectUnauthorized: boolean;
}

export interface ApiServer {
  /** Name or address, IPv6 without brackets. */
  readonly host: string;
  readonly port: number;
  /** For SNI and the certificate check. Empty when the host is an address: then there is no SNI and the address is checked. */
  readonly serverName: string;
  /** What stands before every path, e.g. `/k8s/clusters/c-1`; empty for the root. Never ends with a slash. */
  readonly basePath: string;
  /** The value for `Host`. */
  readonly hostHeader: string;
  /** A connection to host and port through the proxy that the kubeconfig names; undefined: connect to them. */
  readonly open?: OpenTunnel | undefined;
  /** HTTP without TLS, on this machine: only where that was allowed. */
  readonly plain?: boolean;
  /** Stays the same object until the client certificate changes, so that a `SecureContext` can be kept per object. */
  readonly tls: ApiServerTls;
  /**
   * The `Authorization` value, or undefined when there is none (client certificate, anonymous). Call it before each request:
   * it follows rotated token files and runs credential plugins.
   *
   * @throws TailcastError `CONFIG_INVALID`
   */
  authorization(): Promise<string | undefined>;
  /** To be called when the API server answered 401 to our own credential; the next `authorization()` gets a new one. */
  refused(): void;
  /** One line for people, without secrets. */
  describe(): string;
}

export interface InCluster {
  /** `KUBERNETES_SERVICE_HOST` */
  readonly host: string;
  /** `KUBERNETES_SERVICE_PORT` */
  readonly port: string;
  /** Where the service account is mounted; default: where Kubernetes mounts it. */
  readonly directory?: string | undefined;
}

export interface ApiServerOptions {
  /** Files of a kubeconfig list; wins over `inCluster`. */
  readonly kubeconfig?: readonly string[] | undefined;
  /** Default: the kubeconfig's `current-context`. */
  readonly context?: string | undefined;
  readonly inCluster?: InCluster | undefined;
  /** Whether an `http:` address of this machine will do, as that of `kubectl proxy`. */
  readonly allowPlainLoopback?: boolean;
  /** What credential plugins inherit. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** A clock that never goes back, in milliseconds. */
  readonly now: () => number;
  /** Milliseconds since 1970. */
  readonly wallClock: () => number;
}

const LOOPBACK: ReadonlySet<string> = new Set(['127.0.0.1', '[::1]', 'localhost']);
/** Where Kubernetes mounts the account of a pod. */
export const SERVICE_ACCOUNT_DIRECTORY = '/var/run/secrets/kubernetes.io/serviceaccount';

/**
 * Reads everything once, so that what is wrong is said at start; credentials are fetched for the first time too.
 *
 * @throws TailcastError `CONFIG_INVALID` naming the file, the key and the fix
 */
export async function createApiServer(options: ApiServerOptions): Promise<ApiServer> {
  const { kubeconfig, inCluster } = options;
  if (kubeconfig !== undefined && kubeconfig.length > 0) {
    return fromKubeconfig(readKubeconfigContext(kubeconfig, options.context), options);
  }
  if (inCluster !== undefined) return fromServiceAccount(inCluster, options);
  throw new TailcastError(
    'CONFIG_INVALID',
    'there is no API server to talk to: name a kubeconfig, or run in a pod with a service account',
  );
}

async function fromServiceAccount(inCluster: InCluster, { now }: ApiServerOptions): Promise<ApiServer> {
  const { host, port, directory = SERVICE_ACCOUNT_DIRECTORY } = inCluster;
  if (host === '' || !/^\d{1,5}$/.test(port)) {
    throw new TailcastError(
      'CONFIG_INVALID',
      'KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT do not name an API server; set them or name a kubeconfig',
    );
  }
  const ca = readPem(`${directory}/ca.crt`, 'the service account of the pod');
  const token = createReloadedFile({ path: `${directory}/token`, what: 'the service-account token', now });
  await token();
  const endpoint = parseServer(
    `https://${isIP(host) === 6 ? `[${host}]` : host}:${port}`,
    'KUBERNETES_SERVICE_HOST',
  );
  const tls = checked({ ca, cert: undefined, key: undefined, rejectUnauthorized: true }, directory);
  return {
    ...endpoint,
    serverName: isIP(host) === 0 ? host : '',
    tls,
    authorization: async () => `Bearer ${bearer(await token(), `${directory}/token`)}`,
    refused: () => {},
    describe: () => `https://${endpoint.hostHeader} (service account of this pod)`,
  };
}

async function fromKubeconfig(context: KubeconfigContext, options: ApiServerOptions): Promise<ApiServer> {
  const { cluster, clusterName } = context;
  const key = (name: string): string =>
    `kubeconfig ${cluster.file}: clusters[${clusterName}].cluster.${name}`;
  const endpoint = parseServer(cluster.value.server, key('server'), options.allowPlainLoopback);
  const proxy = cluster.value['proxy-url'] ?? '';
  const open = proxy === '' ? undefined : openProxyTunnel(proxy, key('proxy-url'), endpoint);
  const insecure = cluster.value['insecure-skip-tls-verify'] === true;
  const ca = pemOf(cluster.value, 'certificate-authority', cluster.file, `clusters[${clusterName}].cluster`);
  if (insecure && ca !== undefined) {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${key('insecure-skip-tls-verify')} contradicts certificate-authority; remove one of them`,
    );
  }
  const named = cluster.value['tls-server-name'] ?? '';
  const verification = { ca, rejectUnauthorized: !insecure };
  const credentials = await createCredentials(context, options, ca);
  const where = `kubeconfig ${context.user.file}: users[${context.userName}].user`;
  let certificate = await credentials.certificate();
  let tls = checked({ ...verification, ...certificate }, where);
  await credentials.authorization();
  return {
    ...endpoint,
    serverName: named !== '' ? named : isIP(endpoint.host) === 0 ? endpoint.host : '',
    open,
    get tls() {
      return tls;
    },
    async authorization() {
      const current = await credentials.certificate();
      if (current.cert !== certificate.cert || current.key !== certificate.key) {
        tls = checked({ ...verification, ...current }, where);
        certificate = current;
      }
      return credentials.authorization();
    },
    refused: () => credentials.refused(),
    describe: () =>
      `${endpoint.plain === true ? 'http' : 'https'}://${endpoint.hostHeader}${endpoint.basePath} (context ${context.name} of ${cluster.file}, ${credentials.kind}${insecure ? ', certificate not verified' : ''})`,
  };
}

interface ClientCertificate {
  readonly cert: string | undefined;
  readonly key: string | undefined;
}

interface Credentials {
  readonly kind: string;
  authorization(): Promise<string | undefined>;
  certificate(): Promise<ClientCertificate>;
  refused(): void;
}

/** Precedence as in client-go: token file, token, basic, plugin; a client certificate may come with any of them. */
async function createCredentials(
  context: KubeconfigContext,
  options: ApiServerOptions,
  ca: string | undefined,
): Promise<Credentials> {
  const { value: user, file } = context.user;
  const where = `kubeconfig ${file}: users[${context.userName}].user`;
  refuseUnsupported(context, where);
  const certificate = createCertificate(context, options.now);
  const common = { certificate, refused: () => {} };
  if (user.tokenFile !== undefined && user.tokenFile !== '') {
    const path = pathInKubeconfig(user.tokenFile, file);
    const token = createReloadedFile({ path, what: `${where}.tokenFile`, now: options.now });
    return {
      ...common,
      kind: 'token file',
      authorization: async () => `Bearer ${bearer(await token(), path)}`,
    };
  }
  if (user.token !== undefined && user.token !== '') {
    const value = `Bearer ${bearer(user.token, `${where}.token`)}`;
    return { ...common, kind: 'token', authorization: async () => value };
  }
  if (user.username !== undefined && user.username !== '') {
    const value = `Basic ${Buffer.from(`${user.username}:${user.password ?? ''}`).toString('base64')}`;
    return { ...common, kind: 'user name and password', authorization: async () => value };
  }
  if (user.exec !== undefined && user.exec !== null) {
    const source = createExecCredentialSource({
      spec: user.exec,
      file,
      userName: context.userName,
      cluster: clusterInfo(context, ca),
      environment: options.environment ?? {},
      wallClock: options.wallClock,
    });
    return pluginCredentials(source, certificate, `${where}.exec`);
  }
  const { cert } = await certificate();
  return {
    ...common,
    kind: cert === undefined ? 'anonymous' : 'client certificate',
    authorization: async () => undefined,
  };
}

function refuseUnsupported({ user: { value: user } }: KubeconfigContext, where: string): void {
  if (user['auth-provider'] !== undefined && user['auth-provider'] !== null) {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${where}.auth-provider is not supported; use an exec plugin or a token`,
    );
  }
  if (user.as !== undefined && user.as !== '') {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${where}.as is not supported; name the user who has these rights himself`,
    );
  }
}

function pluginCredentials(
  source: ExecCredentialSource,
  certificate: () => Promise<ClientCertificate>,
  where: string,
): Credentials {
  return {
    kind: 'credential plugin',
    async authorization() {
      const { token } = await source.credential();
      return token === undefined ? undefined : `Bearer ${bearer(token, where)}`;
    },
    async certificate() {
      const fromPlugin = (await source.credential()).certificate;
      return fromPlugin ?? certificate();
    },
    refused: () => source.forget(),
  };
}

function clusterInfo({ cluster: { value: cluster } }: KubeconfigContext, ca: string | undefined) {
  return {
    server: cluster.server,
    ...(cluster['tls-server-name'] === undefined ? {} : { 'tls-server-name': cluster['tls-server-name'] }),
    ...(cluster['insecure-skip-tls-verify'] === true ? { 'insecure-skip-tls-verify': true } : {}),
    ...(ca === undefined ? {} : { 'certificate-authority-data': Buffer.from(ca).toString('base64') }),
  };
}

/** A client certificate from inline data, or from files that are followed when they are rotated. */
function createCertificate(context: KubeconfigContext, now: () => number): () => Promise<ClientCertificate> {
  const { value: user, file } = context.user;
  const where = `kubeconfig ${file}: users[${context.userName}].user`;
  const cert = pemSource(
    user['client-certificate-data'],
    user['client-certificate'],
    file,
    `${where}.client-certificate`,
    now,
  );
  const key = pemSource(user['client-key-data'], user['client-key'], file, `${where}.client-key`, now);
  if ((cert === undefined) !== (key === undefined)) {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${where} has only one of client-certificate and client-key; give both or none`,
    );
  }
  if (cert === undefined || key === undefined) return async () => ({ cert: undefined, key: undefined });
  return async () => ({ cert: await cert(), key: await key() });
}

function pemSource(
  data: string | undefined,
  path: string | undefined,
  file: string,
  where: string,
  now: () => number,
): (() => Promise<string>) | undefined {
  if (data !== undefined && data !== '') {
    const pem = decodePem(data, `${where}-data`);
    return async () => pem;
  }
  if (path === undefined || path === '') return undefined;
  return createReloadedFile({ path: pathInKubeconfig(path, file), what: where, now });
}

function pemOf(
  cluster: {
    readonly 'certificate-authority'?: string | undefined;
    readonly 'certificate-authority-data'?: string | undefined;
  },
  name: 'certificate-authority',
  file: string,
  entry: string,
): string | undefined {
  const where = `kubeconfig ${file}: ${entry}.${name}`;
  const data = cluster[`${name}-data`];
  if (data !== undefined && data !== '') return decodePem(data, `${where}-data`);
  const path = cluster[name];
  return path === undefined || path === '' ? undefined : readPem(pathInKubeconfig(path, file), where);
}

function readPem(path: string, where: string): string {
  let text: string;
  try {
    text = readFileSync(path, 'utf8');
  } catch (cause) {
    throw new TailcastError('CONFIG_INVALID', `${where}: cannot read ${path}: ${errorText(cause)}`, {
      cause,
    });
  }
  return requirePem(text, `${where}: ${path}`);
}

function decodePem(data: string, where: string): string {
  if (!/^[A-Za-z0-9+/\s]+={0,2}\s*$/.test(data)) {
    throw new TailcastError('CONFIG_INVALID', `${where} is not base64; encode the PEM text`);
  }
  return requirePem(Buffer.from(data, 'base64').toString('utf8'), where);
}

function requirePem(text: string, where: string): string {
  if (text.includes('-----BEGIN ')) return text;
  throw new TailcastError('CONFIG_INVALID', `${where} holds no PEM block (-----BEGIN …-----)`);
}

/** OpenSSL's opinion at start instead of at the first connection. */
function checked(tls: ApiServerTls, where: string): ApiServerTls {
  try {
    createSecureContext({ ca: tls.ca, cert: tls.cert, key: tls.key });
  } catch (cause) {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${where}: the certificates cannot be used (is the key the certificate's?): ${errorText(cause)}`,
      { cause },
    );
  }
  return tls;
}

/** RFC 6750 section 2.1: what may stand after `Bearer`. */
function bearer(token: string, where: string): string {
  if (/^[!-~]+$/.test(token)) return token;
  throw new TailcastError('CONFIG_INVALID', `${where} holds spaces or characters that no token may hold`);
}

function parseServer(
  server: string,
  where: string,
  allowPlainLoopback = false,
): Pick<ApiServer, 'host' | 'port' | 'basePath' | 'hostHeader' | 'plain'> {
  const url = URL.parse(server.includes('://') ? server : `https://${server}`);
  if (url === null || url.hostname === '') {
    throw new TailcastError('CONFIG_INVALID', `${where}: "${server}" is not a URL; write https://host:port`);
  }
  const plain = allowPlainLoopback && isPlainLoopback(url);
  if (url.protocol !== 'https:' && !plain) {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${where}: "${server}" is not https; credentials are only sent over TLS`,
    );
  }
  if (url.username !== '' || url.password !== '' || url.search !== '' || url.hash !== '') {
    throw new TailcastError('CONFIG_INVALID', `${where} may only hold a host, a port and a path`);
  }
  return {
    host: url.hostname.replace(/^\[(.*)\]$/, '$1'),
    port: url.port === '' ? (DEFAULT_PORTS[url.protocol] ?? 443) : Number(url.port),
    basePath: url.pathname.replace(/\/+$/, ''),
    hostHeader: url.host,
    ...(plain ? { plain } : {}),
  };
}

const DEFAULT_PORTS: Readonly<Record<string, number>> = { 'http:': 80, 'https:': 443 };

function isPlainLoopback({ protocol, hostname }: URL): boolean {
  return protocol === 'http:' && LOOPBACK.has(hostname);
}
