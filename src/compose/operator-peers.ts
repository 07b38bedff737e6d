/** Creates the operator's clients for the API server and the control server from its settings. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { OperatorConfig } from '../config/operator.ts';
import { errorReason, isSystemError, TailcastError } from '../errors.ts';
import type { TailnetControl } from '../operator/auth-keys.ts';
import type { KubeClient } from '../operator/kube-client.ts';
import { apiCredentials, createIdTokens } from '../operator/tailnet/credentials.ts';
import { createHeadscaleControl } from '../operator/headscale-api.ts';
import { createTailscaleControl } from '../operator/tailscale-api.ts';

const TAILSCALE_API = 'https://api.tailscale.com';
/** Directories at which deployments of the reference (Tailscale's operator) and of tailcast mount the credentials. */
const DEFAULT_CREDENTIALS = { tailscale: '/oauth', headscale: '/headscale' } as const;
/** Login server of Tailscale's control plane. */
export const TAILSCALE_LOGIN = 'https://controlplane.tailscale.com';

/**
 * Creates the adapter of the control server.
 *
 * @param client creates the token of workload identity federation
 * @param signal aborts all requests
 * @throws TailcastError `CONFIG_INVALID`
 */
export function createControl(
  config: OperatorConfig,
  client: Pick<KubeClient, 'review'>,
  signal: AbortSignal,
): TailnetControl {
  if (config.control === 'headscale') {
    if (config.controlUrl === undefined) {
      throw new TailcastError('CONFIG_INVALID', 'controlUrl: name where headscale is (--control-url)');
    }
    const baseUrl = address(config.controlUrl);
    const loginServer = config.loginServer === undefined ? baseUrl : address(config.loginServer);
    return createHeadscaleControl({
      baseUrl,
      loginServer,
      apiKey: () => readSecret(config, 'api_key'),
      nowMs: Date.now,
      signal,
    });
  }
  const createIdToken = createIdTokens(client);
  return createTailscaleControl({
    baseUrl: config.controlUrl === undefined ? TAILSCALE_API : address(config.controlUrl),
    loginServer: config.loginServer === undefined ? TAILSCALE_LOGIN : address(config.loginServer),
    credentials: async () => {
      const stored = await Promise.all(
        ['client_id', 'client_secret', 'audience'].map(
          async (name) => [name, await readSecret(config, name, '')] as const,
        ),
      );
      return apiCredentials(new Map(stored), directoryOf(config), createIdToken);
    },
    nowMs: Date.now,
    signal,
  });
}

/** Returns the directory with the credentials of the control server. */
function directoryOf({ control, credentials }: OperatorConfig): string {
  return credentials ?? DEFAULT_CREDENTIALS[control];
}

/**
 * Reads a credential. The file is read for each use, because a mounted Secret may change while the pod runs.
 *
 * @param fallback result if the file is missing; if undefined, a missing file is an error
 */
async function readSecret(config: OperatorConfig, name: string, fallback?: string): Promise<string> {
  const path = join(directoryOf(config), name);
  try {
    return (await readFile(path, 'utf8')).trim();
  } catch (error) {
    if (fallback !== undefined && isSystemError(error, 'ENOENT')) return fallback;
    throw new TailcastError('CONTROL_FAILED', `credentials: cannot read ${path}: ${errorReason(error)}`, {
      cause: error,
    });
  }
}

/** Returns the text of a URL without the trailing slash. */
function address(url: URL): string {
  return url.href.replace(/\/+$/, '');
}
