/** The archive behind a kubeconfig context: the portal of the gateway in the context. */
import { homedir } from 'node:os';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import type { CommandContext } from '../config/command-context.ts';
import { TailcastError } from '../errors.ts';
import { pemSource } from '../kube/api-server-tls.ts';
import {
  kubeconfigPaths,
  readKubeconfigContext,
  readKubeconfigContexts,
  type KubeconfigContext,
} from '../kube/kubeconfig.ts';
import type { Archive } from './archive.ts';
import { openRecorderArchive } from './recorder-archive.ts';

/** Path of the portal, relative to the server address of a context; see `portal/page-headers`. */
const PORTAL = '-/recordings/';

/**
 * Options with the names and meanings of kubectl's options. Default: the current context of kubectl's configuration.
 */
export interface ContextOptions {
  readonly kubeconfig: string | undefined;
  readonly context: string | undefined;
}

/** Returns the contexts in kubectl's configuration, for completion; empty if the files cannot be read. */
export function readContextNames(environment: CommandContext['environment']): readonly string[] {
  try {
    const paths = kubeconfigPaths(environment.get('KUBECONFIG'), homedir());
    return readKubeconfigContexts(paths).map(({ name }) => name);
  } catch (error) {
    if (error instanceof TailcastError) return [];
    throw error;
  }
}

/**
 * Opens the recordings in the portal of a context's gateway.
 *
 * @throws as {@link contextAddress}
 */
export async function openContextArchive(
  options: ContextOptions,
  context: Pick<CommandContext, 'environment' | 'signal'>,
): Promise<Archive> {
  return openRecorderArchive(await contextAddress(options, context), context.signal);
}

/**
 * Returns the address of the portal in a context's gateway, after a test request. This request has no credentials,
 * because a gateway identifies callers by their tailnet address. Afterwards the process trusts the CA of the context.
 *
 * @returns an address that ends with a slash, like the address of a recorder
 * @throws TailcastError `CONFIG_INVALID` if the kubeconfig is invalid, `RECORDER_UNREACHABLE` or `USAGE` if the server
 *   is not a gateway with a portal
 */
export async function contextAddress(
  options: ContextOptions,
  about: Pick<CommandContext, 'environment' | 'signal'>,
): Promise<string> {
  const { address: base, name } = await contextPortal(options, about);
  const archive = openRecorderArchive(base, about.signal);
  try {
    for await (const _ of archive.list({ limit: '1' })) break;
  } catch (error) {
    if (!(error instanceof TailcastError) || error.code !== 'RECORDING_UNKNOWN') throw error;
    throw new TailcastError(
      'USAGE',
      `the server of context ${name} (${base}) shows no recordings: it is not a gateway, or its portal is off; name ` +
        'a context of a gateway with --context, or a recorder with --recorder',
      { cause: error },
    );
  }
  return base;
}

/**
 * Returns the address of the portal in a context's gateway, and the token of the context. Afterwards the process trusts
 * the CA of the context.
 *
 * @throws TailcastError `CONFIG_INVALID` if the kubeconfig is invalid
 */
export async function contextPortal(
  { kubeconfig, context: name }: ContextOptions,
  { environment }: Pick<CommandContext, 'environment'>,
): Promise<{ readonly address: string; readonly name: string; readonly token: string | undefined }> {
  const paths =
    kubeconfig === undefined ? kubeconfigPaths(environment.get('KUBECONFIG'), homedir()) : [kubeconfig];
  const context = readKubeconfigContext(paths, name);
  const base = portalOf(context);
  await trustAuthority(context);
  const { token } = context.user.value;
  return { address: base, name: context.name, token: token === '' ? undefined : token };
}

function portalOf({ name, cluster }: KubeconfigContext): string {
  const { server, 'proxy-url': proxy = '' } = cluster.value;
  if (proxy !== '') {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${cluster.file}: context ${name} has proxy-url, and this command cannot use a proxy; name a context without ` +
        'proxy-url, or a recorder with --recorder',
    );
  }
  if (!URL.canParse(server)) {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${cluster.file}: the server of context ${name} is not a URL: ${server}`,
    );
  }
  return new URL(PORTAL, server.endsWith('/') ? server : `${server}/`).href;
}

/**
 * Makes the process trust the CA of the context, because `fetch` has no CA option. This is safe, because the process
 * connects to no other server.
 */
async function trustAuthority(context: KubeconfigContext): Promise<void> {
  const {
    name,
    clusterName,
    cluster: { value, file },
  } = context;
  if (value['insecure-skip-tls-verify'] === true) {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${file}: context ${name} has insecure-skip-tls-verify; recordings are only read over a verified ` +
        'connection: set certificate-authority instead',
    );
  }
  const pem = await pemSource({
    data: value['certificate-authority-data'],
    path: value['certificate-authority'],
    file,
    what: `kubeconfig ${file}: clusters[${clusterName}].cluster.certificate-authority`,
    now: () => performance.now(),
  })?.();
  if (pem !== undefined) setDefaultCACertificates([...getCACertificates('default'), pem]);
}
