/** Creates the portal of a gateway, and chooses the recorders that it reads. */
import type { GatewayConfig } from '../config/gateway.ts';
import { TailcastError } from '../errors.ts';
import { createPortal, type PortalDeps } from '../portal/portal.ts';
import { createRecorderCalls } from '../portal/recorder-call.ts';
import type { Caller } from '../proxy/gate/gate.ts';
import type { OwnService } from '../proxy/front/server.ts';
import { findRecorders, type RecorderDirectory } from '../recording/find-recorders.ts';
import { parseAddressPort } from '../tailnet/addresses.ts';
import { PLAYER_DIRECTORY } from './player-directory.ts';
import type { Tailnet } from './tailnet.ts';

/**
 * @returns undefined if the settings disable the portal
 * @throws TailcastError `CONFIG_INVALID` with the invalid recorder
 */
export async function openPortal(
  config: Pick<GatewayConfig, 'portal' | 'portalRecorders' | 'portalPort'>,
  tailnet: Pick<Tailnet, 'dialRecorder' | 'nodeOf' | 'resolveRecorderTags' | 'carriesTag'>,
  deps: Omit<PortalDeps, 'calls' | 'recordersFor' | 'playerDirectory'>,
): Promise<OwnService | undefined> {
  const choice = createRecorderChoice(config, tailnet);
  if (!config.portal) return undefined;
  const { dialRecorder: dial, nodeOf } = tailnet;
  return createPortal({
    ...deps,
    calls: createRecorderCalls({ dial, nodeOf, nowMs: deps.monotonicMs }),
    playerDirectory: PLAYER_DIRECTORY,
    recordersFor: choice,
  });
}

/**
 * Returns a function that finds the recorders that the portal uses for a caller: `ip:port`, in order of preference.
 *
 * @throws TailcastError `CONFIG_INVALID` with the invalid recorder
 */
export function createRecorderChoice(
  config: Pick<GatewayConfig, 'portalRecorders' | 'portalPort'>,
  directory: RecorderDirectory,
): PortalDeps['recordersFor'] {
  const named = splitRecorders(config.portalRecorders);
  return async (caller) => {
    // An address in the settings is that of a listener for viewers, so it is used unchanged. Grants and tags give the
    // addresses of listeners for uploads, so their port is replaced.
    const exact = named?.addresses ?? [];
    const asked = named === undefined ? recordersOf(caller) : { recorders: [], recorderTags: named.tags };
    const uploads = await findRecorders(asked, directory, new AbortController().signal);
    return [...new Set([...exact, ...uploads.map((address) => withPort(address, config.portalPort))])];
  };
}

interface Recorders {
  readonly addresses: readonly string[];
  readonly tags: readonly string[];
}

/** @throws TailcastError `CONFIG_INVALID` for a name that is neither a tag nor ip:port */
export function splitRecorders(names: readonly string[]): Recorders | undefined {
  const tags = names.filter((name) => name.startsWith('tag:'));
  const addresses = names.filter((name) => !name.startsWith('tag:'));
  const odd = addresses.find((address) => parseAddressPort(address) === undefined);
  if (odd !== undefined) {
    throw new TailcastError('CONFIG_INVALID', `portalRecorders: ${odd} is neither a tag nor ip:port`);
  }
  return names.length === 0 ? undefined : { addresses, tags };
}

function withPort(address: string, port: number | undefined): string {
  return port === undefined ? address : address.replace(/:\d+$/, `:${port}`);
}

/** Returns the recorders in the caller's grants. These recorders store the caller's own sessions. */
function recordersOf({ recording }: Pick<Caller, 'recording'>): Parameters<typeof findRecorders>[0] {
  return recording.mode === 'off' ? { recorders: [], recorderTags: [] } : recording;
}
