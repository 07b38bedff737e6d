/** Address and credentials of the API server, from a kubeconfig or from the ServiceAccount of a pod. */
import { homedir } from 'node:os';
import { isIP, type LookupFunction } from 'node:net';
import { TailcastError } from '../errors.ts';
import {
  followTls,
  NO_CERTIFICATE,
  pemSource,
  type ApiServerTls,
  type ClientCertificate,
} from './api-server-tls.ts';
import type { CredentialSource } from './credential-cache.ts';
import { createExecCredentialSource } from './kubeconfig-exec.ts';
import { createOidcCredentialSource } from './kubeconfig-oidc.ts';
import {
  kubeconfigPaths,
  pathInKubeconfig,
  readKubeconfigContext,
  type KubeconfigContext,
} from './kubeconfig.ts';
import { openProxyTunnel, type OpenTunnel } from './proxy-tunnel.ts';
import { createReloadedFile } from './token.ts';

export interface ApiServer {
  /** Hostname or address; IPv6 without brackets. */
  readonly host: string;
  readonly port: number;
  /**
   * Name for SNI and the certificate check. Empty if the host is an address: the certificate must then contain the
   * address, and no SNI is sent.
   */
  readonly serverName: string;
  /** Prefix of every path, such as `/k8s/clusters/c-1`; empty for the root. The path never ends with a slash. */
  readonly basePath: string;
  /** Value of the `Host` header for requests to the API server. */
  readonly hostHeader: string;
  /** Opens a connection to host and port through the proxy of the kubeconfig; undefined without a proxy. */
  readonly open?: OpenTunnel | undefined;
  /** Resolver of `host`. Default: the resolver of the OS. */
  readonly lookup?: LookupFunction | undefined;
  /**
   * True if the API server accepts the identity in `X-Remote-*` headers because of the gateway's client certificate.
   */
  readonly requestHeader?: boolean;
  /** True if connections to an API server on this machine use unencrypted HTTP. */
  readonly plain?: boolean;
  /** The object stays the same until a certificate changes, so that a `SecureContext` can be cached per object. */
  readonly tls: ApiServerTls;
  /**
   * Returns the value of `Authorization`, or undefined for a client certificate or an anonymous client. Call this
   * method before each request, because it reloads rotated token files and certificates and runs credential plugins.
   *
   * @throws TailcastError `CONFIG_INVALID`
   */
  authorization(): Promise<string | undefined>;
  /** Reloads a changed CA file, for callers that do not use `authorization()`. */
  followAuthorities(): Promise<void>;
  /**
   * Called after the API server responded with 401 to the gateway's own credential. The next `authorization()` gets a
   * new credential.
   */
  refused(): void;
  /** Describes the API server to users, in one line and without secrets. */
  describe(): string;
}

export interface InCluster {
  /** Value of `KUBERNETES_SERVICE_HOST`. */
  readonly host: string;
  /** Value of `KUBERNETES_SERVICE_PORT`. */
  readonly port: string;
  /** Directory in which the ServiceAccount is mounted. Default: the standard directory of Kubernetes. */
  readonly directory?: string | undefined;
}

export interface ApiServerOptions {
  /** A context that was already read. It takes precedence over `kubeconfig`. */
  readonly resolved?: KubeconfigContext | undefined;
  /** Paths of kubeconfig files. They take precedence over `inCluster`. */
  readonly kubeconfig?: readonly string[] | undefined;
  /** Resolves host names, and may reject addresses. Default: the resolver of the OS. */
  readonly lookup?: LookupFunction | undefined;
  /** Name of the context. Default: `current-context` of the kubeconfig. */
  readonly context?: string | undefined;
  readonly inCluster?: InCluster | undefined;
  /** True to allow an `http:` address of this machine, such as that of `kubectl proxy`. */
  readonly allowPlainLoopback?: boolean;
  /** True to connect without credentials: no client certificate, and no `Authorization`. */
  readonly anonymous?: boolean;
  /** Called once for each new certificate that is invalid. The last valid certificate stays in use. */
  readonly onUnusable?: (error: TailcastError) => void;
  /** Environment variables for credential plugins. */
  readonly environment?: Readonly<Record<string, string | undefined>>;
  /** Monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** Wall clock, in milliseconds since 1970. */
  readonly wallClock: () => number;
}

/**
 * Returns the options for the API server in the settings: the API server of a named kubeconfig, of the pod, or of the
 * kubeconfig that kubectl uses.
 */
export function apiServerOptions(
  { kubeconfig, context }: { readonly kubeconfig: string | undefined; readonly context: string | undefined },
  environment: ReadonlyMap<string, string>,
): Pick<ApiServerOptions, 'kubeconfig' | 'context' | 'inCluster' | 'environment'> {
  const host = environment.get('KUBERNETES_SERVICE_HOST');
  const port = environment.get('KUBERNETES_SERVICE_PORT');
  const common = { context, environment: Object.fromEntries(environment) };
  if (kubeconfig !== undefined) return { ...common, kubeconfig: [kubeconfig] };
  if (host !== undefined && port !== undefined) return { ...common, inCluster: { host, port } };
  return { ...common, kubeconfig: kubeconfigPaths(environment.get('KUBECONFIG'), homedir()) };
}

const LOOPBACK: ReadonlySet<string> = new Set(['127.0.0.1', '[::1]', 'localhost']);
/** Directory in which Kubernetes mounts the service account of a pod. */
export const SERVICE_ACCOUNT_DIRECTORY = '/var/run/secrets/kubernetes.io/serviceaccount';

/**
 * Reads all files and obtains the first credentials, so that errors appear at startup.
 *
 * @throws TailcastError `CONFIG_INVALID` with the file, the key and the fix
 */
export async function createApiServer(options: ApiServerOptions): Promise<ApiServer> {
  const { resolved, kubeconfig, inCluster } = options;
  if (resolved !== undefined) return fromKubeconfig(resolved, options);
  if (kubeconfig !== undefined && kubeconfig.length > 0) {
    return fromKubeconfig(readKubeconfigContext(kubeconfig, options.context), options);
  }
  if (inCluster !== undefined) return fromServiceAccount(inCluster, options);
  throw new TailcastError(
    'CONFIG_INVALID',
    'there is no API server to talk to: name a kubeconfig, or run in a pod with a service account',
  );
}

async function fromServiceAccount(inCluster: InCluster, options: ApiServerOptions): Promise<ApiServer> {
  const { host, port, directory = SERVICE_ACCOUNT_DIRECTORY } = inCluster;
  const { now } = options;
  if (host === '' || !/^\d{1,5}$/.test(port)) {
    throw new TailcastError(
      'CONFIG_INVALID',
      'KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT do not name an API server; set them or name a kubeconfig',
    );
  }
  const endpoint = parseServer(
    `https://${isIP(host) === 6 ? `[${host}]` : host}:${port}`,
    'KUBERNETES_SERVICE_HOST',
  );
  const what = 'the CAs of the service account';
  const tls = await followTls(
    {
      authorities: pemSource({ data: undefined, path: `${directory}/ca.crt`, what, now }),
      certificate: async () => NO_CERTIFICATE,
      rejectUnauthorized: true,
    },
    { where: directory, onUnusable: options.onUnusable },
  );
  const token = createReloadedFile({ path: `${directory}/token`, what: 'the service-account token', now });
  const authorization = async (): Promise<string | undefined> =>
    options.anonymous === true ? undefined : `Bearer ${bearer(await token(), `${directory}/token`)}`;
  await authorization();
  return {
    ...endpoint,
    serverName: isIP(host) === 0 ? host : '',
    get tls() {
      return tls.current;
    },
    async authorization() {
      await tls.reload();
      return authorization();
    },
    followAuthorities: () => tls.reloadAuthorities(),
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
  const authorities = pemSource({
    data: cluster.value['certificate-authority-data'],
    path: cluster.value['certificate-authority'],
    file: cluster.file,
    what: key('certificate-authority'),
    now: options.now,
  });
  if (insecure && authorities !== undefined) {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${key('insecure-skip-tls-verify')} contradicts certificate-authority; remove one of them`,
    );
  }
  const named = cluster.value['tls-server-name'] ?? '';
  const credentials =
    options.anonymous === true ? ANONYMOUS : await createCredentials(context, options, authorities);
  const tls = await followTls(
    { authorities, certificate: () => credentials.certificate(), rejectUnauthorized: !insecure },
    {
      where: `kubeconfig ${context.user.file}: users[${context.userName}].user`,
      onUnusable: options.onUnusable,
    },
  );
  await credentials.authorization();
  return {
    ...endpoint,
    serverName: named !== '' ? named : isIP(endpoint.host) === 0 ? endpoint.host : '',
    open,
    lookup: options.lookup,
    get tls() {
      return tls.current;
    },
    async authorization() {
      await tls.reload();
      return credentials.authorization();
    },
    followAuthorities: () => tls.reloadAuthorities(),
    refused: () => credentials.refused(),
    describe: () =>
      `${endpoint.plain === true ? 'http' : 'https'}://${endpoint.hostHeader}${endpoint.basePath} (context ` +
      `${context.name} of ${cluster.file}, ${credentials.kind}${insecure ? ', certificate not verified' : ''})`,
  };
}

interface Credentials {
  readonly kind: string;
  authorization(): Promise<string | undefined>;
  certificate(): Promise<ClientCertificate>;
  refused(): void;
}

const ANONYMOUS: Credentials = {
  kind: 'anonymous',
  authorization: async () => undefined,
  certificate: async () => NO_CERTIFICATE,
  refused: () => {},
};

/**
 * Returns the credentials. The order of precedence is that of client-go: token file, token, basic authentication,
 * credential plugin, OpenID Connect. A client certificate may be used in addition to any of them.
 */
async function createCredentials(
  context: KubeconfigContext,
  options: ApiServerOptions,
  authorities: (() => Promise<string>) | undefined,
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
      cluster: async () => clusterInfo(context, await authorities?.()),
      environment: options.environment ?? {},
      wallClock: options.wallClock,
    });
    return issuedCredentials('credential plugin', source, certificate, `${where}.exec`);
  }
  const provider = user['auth-provider'];
  if (provider !== undefined && provider !== null) {
    const source = createOidcCredentialSource({
      config: provider.config ?? {},
      file,
      userName: context.userName,
      wallClock: options.wallClock,
    });
    return issuedCredentials('OpenID Connect token', source, certificate, `${where}.auth-provider`);
  }
  const { cert } = await certificate();
  return {
    ...common,
    kind: cert === undefined ? 'anonymous' : 'client certificate',
    authorization: async () => undefined,
  };
}

function refuseUnsupported({ user: { value: user } }: KubeconfigContext, where: string): void {
  const provider = user['auth-provider']?.name ?? 'oidc';
  if (provider !== 'oidc') {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${where}.auth-provider "${provider}" is not supported; use oidc, an exec plugin or a token`,
    );
  }
  if (user.as !== undefined && user.as !== '') {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${where}.as is not supported; name the user who has these rights himself`,
    );
  }
}

function issuedCredentials(
  kind: string,
  source: CredentialSource,
  certificate: () => Promise<ClientCertificate>,
  where: string,
): Credentials {
  return {
    kind,
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

/** Returns a client certificate from inline data, or from reloaded files. */
function createCertificate(context: KubeconfigContext, now: () => number): () => Promise<ClientCertificate> {
  const { value: user, file } = context.user;
  const where = `kubeconfig ${file}: users[${context.userName}].user`;
  const sourceOf = (name: 'client-certificate' | 'client-key'): (() => Promise<string>) | undefined =>
    pemSource({ data: user[`${name}-data`], path: user[name], file, what: `${where}.${name}`, now });
  const cert = sourceOf('client-certificate');
  const key = sourceOf('client-key');
  if ((cert === undefined) !== (key === undefined)) {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${where} has only one of client-certificate and client-key; give both or none`,
    );
  }
  if (cert === undefined || key === undefined) return async () => NO_CERTIFICATE;
  return async () => ({ cert: await cert(), key: await key() });
}

/** Returns the token. Throws if it contains a character that is not allowed in a bearer token (RFC 6750 §2.1). */
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
    port: Number(url.port || (plain ? 80 : 443)),
    basePath: url.pathname.replace(/\/+$/, ''),
    hostHeader: url.host,
    ...(plain ? { plain } : {}),
  };
}

function isPlainLoopback({ protocol, hostname }: URL): boolean {
  return protocol === 'http:' && LOOPBACK.has(hostname);
}
