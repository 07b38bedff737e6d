/** Checks that the API server has the CRDs for the kinds of resources that the operator's settings enable. */
import { z } from 'zod';
import { GATEWAY_GROUP } from '../../operator/gateway/resource.ts';
import type { ApiClient } from '../api-client.ts';
import { failed, ok, warning, type Check, type CheckVerdict } from '../checks.ts';
import type { OperatorUses } from './rights.ts';

const GROUP = 'tailscale.com';
const VERSION = 'v1alpha1';
const APPLY =
  'apply deploy/crds (kubectl apply --server-side -k deploy/crds), or leave unneeded kinds out of --controllers';

const GROUPS = z.object({ versions: z.array(z.object({ version: z.string() })) });
const RESOURCES = z.object({ resources: z.array(z.object({ name: z.string(), kind: z.string() })) });

/** Returns the plural names of the kinds that the enabled controllers need. */
function wantedOf({
  proxyGroups,
  services,
  ingresses,
  gateways,
  connectors,
  dnsConfigs,
}: OperatorUses): readonly string[] {
  return [
    'recorders',
    'tailnets',
    ...(proxyGroups ? ['proxygroups', 'proxygrouppolicies'] : []),
    ...(services || ingresses || gateways || connectors ? ['proxyclasses'] : []),
    ...(connectors ? ['connectors'] : []),
    ...(dnsConfigs ? ['dnsconfigs'] : []),
  ];
}

export function resourcesCheck(uses: OperatorUses, client: () => Promise<ApiClient>): Check {
  return {
    id: 'resources',
    title: 'resource definitions',
    needs: ['credential'],
    remedy: APPLY,
    async run(signal) {
      const api = await client();
      const group = await api.get(`/apis/${GROUP}`, signal);
      if (group.status === 404) return failed(`the API server does not serve ${GROUP}`, APPLY);
      const versions = GROUPS.parse(group.body).versions.map(({ version }) => version);
      if (!versions.includes(VERSION))
        return failed(
          `the API server serves ${GROUP} as ${versions.join(', ')}, but not as ${VERSION}`,
          APPLY,
        );
      const answer = await api.get(`/apis/${GROUP}/${VERSION}`, signal);
      const verdict = verdictOf(wantedOf(uses), RESOURCES.parse(answer.body).resources, versions);
      return verdict.status === 'ok' && uses.gateways ? gatewayApiVerdict(api, verdict, signal) : verdict;
    },
  };
}

/**
 * Returns a warning if CRDs of the Gateway API are missing; otherwise the given verdict. These CRDs are not part of
 * tailcast. Until they are installed, the operator finds no Gateways and looks for the CRDs periodically. Its other
 * controllers work without them.
 */
async function gatewayApiVerdict(
  api: ApiClient,
  verdict: CheckVerdict,
  signal: AbortSignal,
): Promise<CheckVerdict> {
  const { status, body } = await api.get(`/apis/${GATEWAY_GROUP}/v1`, signal);
  const served = status === 404 ? [] : RESOURCES.parse(body).resources.map(({ name }) => name);
  const missing = ['gatewayclasses', 'gateways', 'httproutes'].filter((plural) => !served.includes(plural));
  return missing.length === 0
    ? verdict
    : warning(
        `${GATEWAY_GROUP}/v1 is not served: ${missing.join(', ')}`,
        'install the CRDs of the Gateway API, or leave gateways out of --controllers',
      );
}

function verdictOf(
  wanted: readonly string[],
  served: readonly { readonly name: string; readonly kind: string }[],
  versions: readonly string[],
): CheckVerdict {
  const names = new Set(served.map(({ name }) => name));
  const missing = wanted.filter((plural) => !names.has(plural));
  // The operator writes conditions to the status subresource. Without this subresource, the writes would fail.
  const mute = wanted.filter((plural) => names.has(plural) && !names.has(`${plural}/status`));
  if (missing.length > 0) return failed(`not served: ${missing.join(', ')}`, APPLY);
  if (mute.length > 0) return failed(`served without status: ${mute.join(', ')}`, APPLY);
  const others = versions.filter((version) => version !== VERSION);
  const also = others.length === 0 ? '' : ` (and ${others.join(', ')}, which are not used)`;
  return ok(`${GROUP}/${VERSION}${also}: ${wanted.join(', ')}`);
}
