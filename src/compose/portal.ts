/** The portal of a gateway, and which recorders it asks. */
import type { GatewayConfig } from '../config/gateway.ts';
import { TailcastError } from '../errors.ts';
import { loadPageFiles } from '../portal/pages.ts';
import type { PortalDeps } from '../portal/portal.ts';
import { createRecorderCalls } from '../portal/recorder-call.ts';
import type { Caller } from '../proxy/gate/gate.ts';
import type { OwnService } from '../proxy/front/server.ts';
import { parseAddressPort } from '../tailnet/addresses.ts';
import { PLAYER_DIRECTORY } from './player-directory.ts';
import type { Tailnet } from './tailnet.ts';

/**
 * @returns nothing when the settings want none
 * @throws TailcastError `CONFIG_INVALID` naming what is no recorder
 */
export async function openPortal(
  config: Pick<GatewayConfig, 'portal' | 'portalRecorders'>,
  tailnet: Pick<Tailnet, 'dialRecorder' | 'nodeOf' | 'resolveRecorderTags'>,
  deps: Omit<PortalDeps, 'calls' | 'recordersFor' | 'pages'>,
): Promise<OwnService | undefined> {
  const named = splitRecorders(config.portalRecorders);
  if (!config.portal) return undefined;
  // its packages are memory that a gateway without a portal need not have
  const { createPortal } = await import('../portal/portal.ts');
  const { dialRecorder: dial, nodeOf } = tailnet;
  return createPortal({
    ...deps,
    calls: createRecorderCalls({ dial, nodeOf, nowMs: deps.monotonicMs }),
    pages: await loadPageFiles(PLAYER_DIRECTORY),
    async recordersFor(caller) {
      const { addresses, tags } = named ?? recordersOf(caller);
      const resolved = tags.length === 0 ? [] : await tailnet.resolveRecorderTags(tags);
      return [...new Set([...addresses, ...resolved])];
    },
  });
}

interface Recorders {
  readonly addresses: readonly string[];
  readonly tags: readonly string[];
}

function splitRecorders(names: readonly string[]): Recorders | undefined {
  const tags = names.filter((name) => name.startsWith('tag:'));
  const addresses = names.filter((name) => !name.startsWith('tag:'));
  const odd = addresses.find((address) => parseAddressPort(address) === undefined);
  if (odd !== undefined) {
    throw new TailcastError('CONFIG_INVALID', `portalRecorders: ${odd} is neither a tag nor ip:port`);
  }
  return names.length === 0 ? undefined : { addresses, tags };
}

/** What is recorded of somebody is where they find it. */
function recordersOf({ recording }: Pick<Caller, 'recording'>): Recorders {
  if (recording.mode === 'off') return { addresses: [], tags: [] };
  return { addresses: recording.recorders, tags: recording.recorderTags };
}
