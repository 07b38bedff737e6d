import { readFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import type { CommandContext } from '../config/command-context.ts';
import { TailcastError, errorText } from '../errors.ts';
import { kubeconfigPaths } from '../kube/kubeconfig.ts';
import {
  chooseKubeconfigPath,
  mergeKubeconfig,
  writeKubeconfig,
  type KubeconfigEntry,
} from '../kube/kubeconfig-write.ts';
import { createLocalApi } from '../tailnet/local-api.ts';
import { print } from './output.ts';

const DEFAULT_SOCKET = '/var/run/tailscale/tailscaled.sock';
const LOOKUP_MS = 5000;
/** What the reference writes too: one user for all tailnet clusters, whose token nobody reads. */
const USER_NAME = 'tailscale-auth';
const USER_TOKEN = 'unused';

/**
 * `tailcast kubeconfig <host>`: adds cluster, user and context for a gateway and makes the context current.
 *
 * @param host URL, name or address; a name without dots is looked up in the tailnet.
 * @throws TailcastError `USAGE` or `CONFIG_INVALID`.
 */
export async function writeGatewayKubeconfig(
  host: string,
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<void> {
  const server = await serverUrl(host, options);
  const ca = textOf(options['certificateAuthority']);
  const entry: KubeconfigEntry = {
    name: textOf(options['name']) ?? server.hostname.replaceAll(/^\[|\]$/g, ''),
    server: server.href.replace(/\/$/, ''),
    caPem: ca === undefined ? undefined : await readAuthority(ca),
    userName: USER_NAME,
    token: USER_TOKEN,
  };
  if (options['print'] === true) {
    await print(context.stdout, mergeKubeconfig(undefined, entry, 'kubeconfig'));
    return;
  }
  const file = textOf(options['file']);
  const paths =
    file === undefined ? kubeconfigPaths(context.environment.get('KUBECONFIG'), homedir()) : [file];
  const path = await chooseKubeconfigPath(paths);
  const { changed } = await writeKubeconfig(path, entry);
  await print(
    context.stdout,
    changed ? `context ${entry.name} is now in ${path}\n` : `${path} already has context ${entry.name}\n`,
  );
}

async function serverUrl(host: string, options: Readonly<Record<string, unknown>>): Promise<URL> {
  const text = /^https?:\/\//.test(host) ? host : `https://${await fullName(host, options)}`;
  if (!URL.canParse(text)) throw new TailcastError('USAGE', `${host} is not a host name, address or URL`);
  return new URL(text);
}

/** A single label is a MagicDNS name: its full form is what the certificate is for. */
async function fullName(host: string, options: Readonly<Record<string, unknown>>): Promise<string> {
  if (/[.:[\]/]/.test(host))
    return /^[0-9a-f:]+$/i.test(host) && host.split(':').length > 2 ? `[${host}]` : host;
  const localApi = createLocalApi({ socketPath: textOf(options['socket']) ?? DEFAULT_SOCKET });
  try {
    const { peers, self } = await localApi.status(AbortSignal.timeout(LOOKUP_MS));
    const nodes = self === undefined ? peers : [self, ...peers];
    const found = nodes.find(({ name }) => name === host || name.startsWith(`${host}.`));
    if (found === undefined) throw new TailcastError('USAGE', `no node of the tailnet is called ${host}`);
    return found.name;
  } catch (error) {
    if (error instanceof TailcastError && error.code === 'USAGE') throw error;
    throw new TailcastError(
      'USAGE',
      `${host} could not be looked up in the tailnet (${errorText(error)}); give the full name or a URL instead`,
      { cause: error },
    );
  } finally {
    localApi.close();
  }
}

async function readAuthority(path: string): Promise<string> {
  const pem = await readFile(path, 'utf8').catch((error: unknown) => {
    throw new TailcastError('USAGE', `--certificate-authority ${path} cannot be read: ${errorText(error)}`);
  });
  if (!pem.includes('-----BEGIN CERTIFICATE-----')) {
    throw new TailcastError('USAGE', `--certificate-authority ${path} holds no PEM certificate`);
  }
  return pem;
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}
