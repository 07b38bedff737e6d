/** The archive behind a kubeconfig's context: the portal of the gateway that the context leads to. */
import { homedir } from 'node:os';
import { getCACertificates, setDefaultCACertificates } from 'node:tls';
import type { CommandContext } from '../config/command-context.ts';
import { TailcastError } from '../errors.ts';
import { pemSource } from '../kube/api-server-tls.ts';
import { kubeconfigPaths, readKubeconfigContext, type KubeconfigContext } from '../kube/kubeconfig.ts';
import type { Archive } from './archive.ts';
import { openRecorderArchive } from './recorder-archive.ts';

/** Path of the portal (`portal/page-headers`), below the server of a context. */
const PORTAL = '-/recordings/';

/** As kubectl's options of these names; neither: the current context of the files that kubectl reads. */
export interface ContextOptions {
  readonly kubeconfig: string | undefined;
  readonly context: string | undefined;
}

/**
 * Opens the recordings that the gateway of a context shows.
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
 * Where the gateway of a context shows recordings, which has been asked. No credentials are sent: a gateway knows callers by
 * the tailnet. From now on the process trusts the authority of the context.
 *
 * @returns an address as that of a recorder, which ends with a slash
 * @throws TailcastError `CONFIG_INVALID` when the kubeconfig is at fault, `RECORDER_UNREACHABLE` or `USAGE` when what
 *   answers there is no gateway that shows recordings
 */
export async function contextAddress(
  { kubeconfig, context: name }: ContextOptions,
  { environment, signal }: Pick<CommandContext, 'environment' | 'signal'>,
): Promise<string> {
  const paths =
    kubeconfig === undefined ? kubeconfigPaths(environment.get('KUBECONFIG'), homedir()) : [kubeconfig];
  const context = readKubeconfigContext(paths, name);
  const base = portalOf(context);
  await trustAuthority(context);
  const archive = openRecorderArchive(base, signal);
  try {
    for await (const _ of archive.list({ limit: '1' })) break;
  } catch (error) {
    if (!(error instanceof TailcastError) || error.code !== 'RECORDING_UNKNOWN') throw error;
    throw new TailcastError(
      'USAGE',
      `the server of context ${context.name} (${base}) shows no recordings: it is no gateway, or its portal is off; name a context of a gateway with --context, or a recorder with --recorder`,
      { cause: error },
    );
  }
  return base;
}

function portalOf({ name, cluster }: KubeconfigContext): string {
  const { server } = cluster.value;
  if (!URL.canParse(server)) {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${cluster.file}: the server of context ${name} is no URL: ${server}`,
    );
  }
  return new URL(PORTAL, server.endsWith('/') ? server : `${server}/`).href;
}

/** `fetch` has no authority of its own, so that of the context is trusted by the process, which calls nobody else. */
async function trustAuthority(context: KubeconfigContext): Promise<void> {
  const {
    name,
    clusterName,
    cluster: { value, file },
  } = context;
  if (value['insecure-skip-tls-verify'] === true) {
    throw new TailcastError(
      'CONFIG_INVALID',
      `${file}: context ${name} has insecure-skip-tls-verify; recordings are only read over a verified connection: set certificate-authority instead`,
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
