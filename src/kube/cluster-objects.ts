/**
 * Clusters that Kubernetes objects describe: Secrets of Cluster API and Argo CD, and ClusterProfiles. Pure.
 *
 * The author of such an object chooses the server and the credentials of a cluster. The gateway therefore refuses
 * objects that would make it run a command, read a file, use a proxy, or connect to an address of its own machine.
 */
import { isIP } from 'node:net';
import { z } from 'zod';
import { TailcastError } from '../errors.ts';
import { parseKubeconfigContext, type KubeconfigContext } from './kubeconfig.ts';
import { blockListOf, isLocalAddress } from './local-address.ts';

export const CLUSTER_FORMATS = ['capi', 'argocd', 'clusterProfile'] as const;
export type ClusterFormat = (typeof CLUSTER_FORMATS)[number];

/** Maximum number of objects that a configuration may list by name. */
export const MAX_NAMED_OBJECTS = 200;

/** Label selector for the objects of each format. */
export const FORMAT_LABELS: Readonly<Record<ClusterFormat, string>> = {
  capi: 'cluster.x-k8s.io/cluster-name',
  argocd: 'argocd.argoproj.io/secret-type=cluster',
  clusterProfile: '',
};

/** A cluster that an object describes. */
export interface DescribedCluster {
  readonly name: string;
  readonly context: KubeconfigContext;
}

const METADATA = z.looseObject({
  name: z.string(),
  namespace: z.string().default(''),
  labels: z.record(z.string(), z.string()).nullish(),
});
const SECRET = z.looseObject({ metadata: METADATA, data: z.record(z.string(), z.string()).nullish() });
const TEXT = z.string().optional();
const ARGOCD_CONFIG = z.looseObject({
  bearerToken: TEXT,
  username: TEXT,
  password: TEXT,
  tlsClientConfig: z
    .looseObject({
      insecure: z.boolean().optional(),
      serverName: TEXT,
      caData: TEXT,
      certData: TEXT,
      keyData: TEXT,
    })
    .optional(),
});
const PROFILE = z.looseObject({
  metadata: METADATA,
  status: z
    .looseObject({
      accessProviders: z
        .array(z.looseObject({ name: z.string(), cluster: z.looseObject({ server: z.string() }) }))
        .nullish(),
    })
    .nullish(),
});

/** Fields with which an object could make the gateway run a command, read a file, use a proxy or impersonate a user. */
const FOREIGN_CLUSTER = ['certificate-authority', 'proxy-url'] as const;
const FOREIGN_USER = [
  'tokenFile',
  'client-certificate',
  'client-key',
  'exec',
  'auth-provider',
  'as',
] as const;
const FOREIGN_ARGOCD = ['execProviderConfig', 'awsAuthConfig', 'proxyUrl'] as const;

/** Maximum size of a kubeconfig in an object, in characters. */
const MAX_LENGTH = 256 * 1024;
/**
 * Maximum number of tokens in a kubeconfig. A token is a run of whitespace, a bracket, a brace, a comma or a quotation
 * mark. The YAML parser compares each key of a mapping with all others, so 20,000 keys would block the process for 20
 * s.
 */
const MAX_TOKENS = 1000;
const TOKEN = /\s+|[,[\]{}"']/g;

/**
 * Returns the cluster of an object; undefined if the object describes none.
 *
 * @param users kubeconfig user for each access provider; only ClusterProfiles need it
 * @throws TailcastError `CONFIG_INVALID`, whose message names the object
 */
export function describeCluster(
  format: ClusterFormat,
  object: unknown,
  users: ReadonlyMap<string, KubeconfigContext['user']> = new Map(),
): DescribedCluster | undefined {
  const found = format === 'clusterProfile' ? fromProfile(object, users) : fromSecret(format, object);
  if (found === undefined) return undefined;
  refuseForeign(found);
  return found;
}

function fromSecret(format: 'capi' | 'argocd', object: unknown): DescribedCluster | undefined {
  const { metadata, data } = read(SECRET, object, 'Secret');
  const source = `Secret ${metadata.namespace}/${metadata.name}`;
  const field = (key: string): string | undefined => {
    const value = data?.[key];
    return value === undefined ? undefined : Buffer.from(value, 'base64').toString('utf8');
  };
  if (format === 'capi') {
    const text = field('value') ?? field('admin.conf');
    if (text === undefined) return undefined;
    const name =
      metadata.labels?.['cluster.x-k8s.io/cluster-name'] ?? metadata.name.replace(/-kubeconfig$/, '');
    return { name, context: readContext(text, source) };
  }
  const [name, server, text] = [field('name'), field('server'), field('config')];
  if (name === undefined || server === undefined) return undefined;
  return { name, context: fromArgo(source, { name, server, text: text ?? '{}' }) };
}

function readContext(text: string, source: string): KubeconfigContext {
  if (text.length > MAX_LENGTH) fail(source, 'the kubeconfig is larger than 256 KiB');
  if ((text.match(TOKEN)?.length ?? 0) > MAX_TOKENS)
    fail(source, 'the kubeconfig has too many entries; reduce it to one context');
  return parseKubeconfigContext(text, source);
}

function fromArgo(
  source: string,
  { name, server, text }: { readonly name: string; readonly server: string; readonly text: string },
): KubeconfigContext {
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch (cause) {
    throw new TailcastError('CONFIG_INVALID', `${source}: config is not JSON`, { cause });
  }
  const config = read(ARGOCD_CONFIG, json, `${source}: config`);
  const foreign = FOREIGN_ARGOCD.find((key) => hasValue(config[key]));
  if (foreign !== undefined) fail(source, `${foreign} is not allowed in an API object`);
  const tls = config.tlsClientConfig ?? {};
  return {
    name,
    clusterName: name,
    cluster: {
      file: source,
      value: {
        server,
        ...(tls.caData === undefined ? {} : { 'certificate-authority-data': tls.caData }),
        ...(tls.insecure === true ? { 'insecure-skip-tls-verify': true } : {}),
        ...(tls.serverName === undefined ? {} : { 'tls-server-name': tls.serverName }),
      },
    },
    userName: name,
    user: {
      file: source,
      value: {
        token: config.bearerToken,
        username: config.username,
        password: config.password,
        'client-certificate-data': tls.certData,
        'client-key-data': tls.keyData,
      },
    },
    namespace: undefined,
  };
}

/**
 * A ClusterProfile contains no credentials. The configuration of the gateway contains the credentials for each access
 * provider.
 */
function fromProfile(
  object: unknown,
  users: ReadonlyMap<string, KubeconfigContext['user']>,
): DescribedCluster | undefined {
  const { metadata, status } = read(PROFILE, object, 'ClusterProfile');
  const source = `ClusterProfile ${metadata.namespace}/${metadata.name}`;
  const provider = status?.accessProviders?.find(({ name }) => users.has(name));
  if (provider === undefined) return undefined;
  const user = users.get(provider.name);
  if (user === undefined) return undefined;
  const { extensions: _, ...cluster } = provider.cluster;
  const text = JSON.stringify({
    clusters: [{ name: metadata.name, cluster }],
    contexts: [{ name: metadata.name, context: { cluster: metadata.name } }],
  });
  const context = readContext(text, source);
  return { name: metadata.name, context: { ...context, userName: provider.name, user } };
}

function refuseForeign({ context }: DescribedCluster): void {
  const { cluster, user } = context;
  const source = cluster.file;
  const fields: Readonly<Record<string, unknown>> = cluster.value;
  const credentials: Readonly<Record<string, unknown>> = user.file === source ? user.value : {};
  const foreign =
    FOREIGN_CLUSTER.find((key) => hasValue(fields[key])) ??
    FOREIGN_USER.find((key) => hasValue(credentials[key]));
  if (foreign !== undefined) fail(source, `${foreign} is not allowed in an API object`);
  if (cluster.value['insecure-skip-tls-verify'] === true) {
    fail(source, 'insecure-skip-tls-verify is not allowed in an API object; add the CA of the server');
  }
  const { server } = cluster.value;
  const url = URL.parse(server.includes('://') ? server : `https://${server}`);
  const host = url?.hostname.replace(/^\[(.*)\]$/, '$1') ?? '';
  if (isForeignHost(host))
    fail(source, `the server ${host} is an address of the gateway's own machine or link`);
}

const FOREIGN = blockListOf(
  // Addresses of tailscaled's DNS resolver and web server.
  '100.100.100.100/32',
  'fd7a:115c:a1e0::53/128',
  // Addresses of metadata services of cloud providers.
  'fd00:ec2::/32',
  // IPv6 addresses in these networks contain an IPv4 address, which could be a local address.
  '64:ff9b::/96',
  '2002::/16',
);

/**
 * Returns true for addresses and names of this machine, for link-local addresses, and for addresses that may lead to
 * one of these.
 */
export function isForeignHost(host: string): boolean {
  const family = isIP(host);
  if (family !== 0) return isLocalAddress(host) || FOREIGN.check(host, family === 4 ? 'ipv4' : 'ipv6');
  return /^(?:.*\.)?(?:localhost|localdomain)\.?$/i.test(host) || host === '';
}

function hasValue(value: unknown): boolean {
  return value !== undefined && value !== null && value !== '';
}

function read<T extends z.ZodType>(schema: T, value: unknown, source: string): z.infer<T> {
  const result = schema.safeParse(value);
  if (result.success) return result.data;
  const { path = [], message = '' } = result.error.issues[0] ?? {};
  return fail(source, `${path.join('.')}: ${message}`);
}

function fail(source: string, problem: string): never {
  throw new TailcastError('CONFIG_INVALID', `${source}: ${problem}`);
}
