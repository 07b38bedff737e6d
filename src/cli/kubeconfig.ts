import { readFile } from 'node:fs/promises';
import { isIP } from 'node:net';
import { request } from 'node:https';
import { homedir } from 'node:os';
import { z } from 'zod';
import type { CommandContext } from '../config/command-context.ts';
import { TailcastError, errorReason, errorText } from '../errors.ts';
import { kubeconfigPaths } from '../kube/kubeconfig.ts';
import {
  chooseKubeconfigPath,
  mergeKubeconfigs,
  writeKubeconfig,
  type KubeconfigEntry,
} from '../kube/kubeconfig-write.ts';
import { readExtraRecords } from '../tailnet/extra-records.ts';
import { findHost, type FoundHost } from '../tailnet/find-host.ts';
import { createLocalApi } from '../tailnet/local-api.ts';
import { jsonOrUndefined } from '../wire/json-value.ts';
import { print } from './output.ts';
import type { Options } from './tool.ts';
import { textOf } from './arguments.ts';

const DEFAULT_SOCKET = '/var/run/tailscale/tailscaled.sock';
const LOOKUP_MS = 5000;
/**
 * Name of the user in the kubeconfig, equal to the name that Tailscale's CLI (*the reference*) uses. All entries for
 * gateways in a tailnet share this user. Gateways ignore the token of this user.
 */
const USER_NAME = 'tailscale-auth';
const USER_TOKEN = 'unused';

/**
 * `tailcast kubeconfig <host…>`: adds a cluster, a user and a context for each gateway, and selects the first context.
 *
 * @param hosts URLs, names or addresses; addresses, and names without dots, are looked up in the tailnet
 * @throws TailcastError `USAGE` or `CONFIG_INVALID`
 */
export async function writeGatewayKubeconfig(
  hosts: readonly string[],
  options: Options,
  context: CommandContext,
): Promise<void> {
  const isAll = options['all'] === true;
  const entries = await (isAll ? clusterEntries(hosts, options) : entriesOf(hosts, options));
  if (options['print'] === true) {
    await print(context.stdout, mergeKubeconfigs(undefined, entries, 'kubeconfig') ?? '');
    return;
  }
  const file = textOf(options['file']) ?? textOf(options['kubeconfig']);
  const paths =
    file === undefined ? kubeconfigPaths(context.environment.get('KUBECONFIG'), homedir()) : [file];
  const path = await chooseKubeconfigPath(paths);
  const { changed } = await writeKubeconfig(path, entries, {
    force: options['force'] === true,
    keepCurrent: isAll,
  });
  if (isAll) {
    const lines = entries.map(({ name, server }) => `${name}  ${server}\n`);
    await print(context.stdout, `${path} ${changed ? 'now has' : 'already has'}\n${lines.join('')}`);
    return;
  }
  const [current, ...others] = entries.map(({ name }) => name);
  const named =
    others.length === 0 ? `context ${current} is` : `contexts ${[current, ...others].join(', ')} are`;
  await print(
    context.stdout,
    changed
      ? `${named} now in ${path}${others.length === 0 ? '' : `, ${current} is the current one`}\n`
      : `${path} already has ${[current, ...others].join(', ')}\n`,
  );
}

/**
 * Returns an entry for each of the gateway's clusters that the caller may use.
 *
 * @throws TailcastError `USAGE` if the gateway does not respond or the caller may use no cluster
 */
async function clusterEntries(
  hosts: readonly string[],
  options: Options,
): Promise<readonly KubeconfigEntry[]> {
  const [host = '', ...others] = hosts;
  if (others.length > 0) throw new TailcastError('USAGE', '--all is for one host');
  const gateway = await serverUrl(host, options);
  const ca = textOf(options['certificateAuthority']);
  const caPem = ca === undefined ? undefined : await readAuthority(ca);
  const template = textOf(options['name']) ?? '{name}@{host}';
  const entries = (await listClusters(gateway, caPem)).map(({ name, hosts: [own], path }) => ({
    name: template.replaceAll('{name}', name).replaceAll('{host}', nameOf(gateway)),
    server: own === undefined ? `${gateway.origin}${path}` : withHost(gateway, own),
    caPem,
    userName: USER_NAME,
    token: USER_TOKEN,
  }));
  if (entries.length === 0) {
    throw new TailcastError('USAGE', `no grant of yours names a cluster of ${gateway.host}`);
  }
  if (new Set(entries.map(({ name }) => name)).size < entries.length) {
    throw new TailcastError('USAGE', '--name needs {name}, because the gateway has several clusters');
  }
  return entries;
}

const CLUSTERS = z.object({
  clusters: z
    .array(
      z.object({
        name: z.string().regex(/^[a-z0-9-]{1,63}$/),
        hosts: z.array(z.string().regex(/^[a-z0-9.-]{1,253}$/)),
        path: z.string().regex(/^\/clusters\/[a-z0-9-]{1,63}$/),
      }),
    )
    .max(10_000),
});
const MAX_LIST_BYTES = 4 * 1024 * 1024;

function listClusters(
  gateway: URL,
  caPem: string | undefined,
): Promise<z.infer<typeof CLUSTERS>['clusters']> {
  const fail = (problem: string, cause?: unknown): TailcastError =>
    new TailcastError('USAGE', `${gateway.host} did not return its clusters: ${problem}`, { cause });
  return new Promise((resolve, reject) => {
    const url = new URL('/-/clusters', gateway);
    const asked = request(url, { ca: caPem, timeout: LOOKUP_MS * 2 }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        text += chunk;
        if (text.length > MAX_LIST_BYTES) asked.destroy(new Error('the response is too large'));
      });
      response.on('end', () => {
        const found = CLUSTERS.safeParse(jsonOrUndefined(text));
        if (response.statusCode === 200 && found.success) resolve(found.data.clusters);
        else if (response.statusCode === 404) reject(fail('it serves one cluster; leave out --all'));
        else reject(fail(`it returned ${response.statusCode ?? 0}`));
      });
    });
    asked.on('timeout', () => asked.destroy(new Error('no response in time')));
    asked.on('error', (error) => reject(fail(errorText(error), error)));
    asked.end();
  });
}

function withHost(gateway: URL, host: string): string {
  const url = new URL(gateway);
  url.hostname = host;
  return url.origin;
}

async function entriesOf(hosts: readonly string[], options: Options): Promise<readonly KubeconfigEntry[]> {
  const name = textOf(options['name']);
  if (name !== undefined && hosts.length > 1) {
    throw new TailcastError(
      'USAGE',
      '--name is for one host; without it each context is named after its host',
    );
  }
  const ca = textOf(options['certificateAuthority']);
  const caPem = ca === undefined ? undefined : await readAuthority(ca);
  const entries: KubeconfigEntry[] = [];
  for (const host of hosts) {
    const server = await serverUrl(host, options);
    entries.push({
      name: name ?? nameOf(server),
      server: server.href.replace(/\/$/, ''),
      caPem,
      userName: USER_NAME,
      token: USER_TOKEN,
    });
  }
  for (const { name: one, server } of entries) {
    const other = entries.find((entry) => entry.name === one && entry.server !== server);
    if (other !== undefined)
      throw new TailcastError(
        'USAGE',
        `${server} and ${other.server} would both get the name ${one}; add each on its own, with --name`,
      );
  }
  return entries;
}

/** Returns the host, and the port unless it is the default port. */
function nameOf({ hostname, host, port }: URL): string {
  return port === '' ? hostname.replaceAll(/^\[|\]$/g, '') : host;
}

async function serverUrl(host: string, options: Options): Promise<URL> {
  const text = /^[a-z][a-z0-9+.-]*:\/\//i.test(host) ? host : `https://${await fullName(host, options)}`;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url?.protocol === 'http:')
    throw new TailcastError('USAGE', `${host} is not encrypted; gateways are reached by https://`);
  if (url?.protocol !== 'https:')
    throw new TailcastError('USAGE', `${host} is not a host name, an address or an https:// URL`);
  if (url.username !== '' || url.password !== '')
    throw new TailcastError(
      'USAGE',
      'a URL with a user name or password cannot be used; give it without them',
    );
  return url;
}

/**
 * Returns the full name of a host, because certificates contain only full names. The local tailscaled resolves a single
 * label or an address. An address stays unchanged if it belongs to no tailnet node or Tailscale Service, or if
 * tailscaled is unreachable.
 */
async function fullName(host: string, options: Options): Promise<string> {
  const address = isIP(host);
  if (address === 0 && /[.:[\]/]/.test(host)) return host;
  const asItIs = address === 6 ? `[${host}]` : host;
  const found = await lookUp(host, textOf(options['socket']) ?? DEFAULT_SOCKET).catch((error: unknown) => {
    if (address !== 0) return { kind: 'unknown' } as const;
    throw new TailcastError(
      'USAGE',
      `${host} could not be looked up in the tailnet (${errorText(error)}); give the full name or a URL instead`,
      { cause: error },
    );
  });
  switch (found.kind) {
    case 'node':
    case 'service':
      return found.name;
    case 'unreachable':
      throw new TailcastError(
        'USAGE',
        `${found.name} is in MagicDNS, but is not currently reachable on any known peer`,
      );
    case 'unknown':
      if (address !== 0) return asItIs;
      throw new TailcastError('USAGE', `no node or Service of the tailnet is called ${host}`);
  }
}

async function lookUp(host: string, socketPath: string): Promise<FoundHost> {
  const localApi = createLocalApi({ socketPath });
  const signal = AbortSignal.timeout(LOOKUP_MS);
  try {
    const status = await localApi.status(signal);
    const node = findHost(host, status, []);
    return node.kind === 'node' ? node : findHost(host, status, await readExtraRecords(localApi, signal));
  } finally {
    localApi.close();
  }
}

async function readAuthority(path: string): Promise<string> {
  const pem = await readFile(path, 'utf8').catch((error: unknown) => {
    throw new TailcastError('USAGE', `--certificate-authority ${path} cannot be read: ${errorReason(error)}`);
  });
  if (!pem.includes('-----BEGIN CERTIFICATE-----')) {
    throw new TailcastError('USAGE', `--certificate-authority ${path} holds no PEM certificate`);
  }
  return pem;
}
