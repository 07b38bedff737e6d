/** Settings of the operator that all reconcilers share. */
import { reconciledBy, type OperatorConfig } from '../config/operator.ts';
import { TailcastError } from '../errors.ts';
import type { IngressGroupChoices } from '../operator/ingress-group/candidates.ts';
import { networkOf, type Network } from '../operator/networks.ts';
import type { ServiceChoices } from '../operator/service/reconcile.ts';

/** Settings of all reconcilers and their watches. */
export type OperatorChoices = ServiceChoices &
  IngressGroupChoices & { readonly namespace: string; readonly tailnetServices: boolean };

/**
 * Derives the common settings of the reconcilers from the operator's settings. @throws TailcastError `CONFIG_INVALID`
 */
export function choicesOf(config: OperatorConfig, namespace: string): OperatorChoices {
  const { defaultProxyClass: defaultClass = '', clusterDomain } = config;
  const { proxyGroups, services, ingresses } = reconciledBy(config);
  return {
    namespace,
    defaultClass,
    clusterDomain,
    services,
    ingresses,
    servesUnclassed: config.defaultLoadBalancer,
    servesGroups: proxyGroups,
    networks: networksOf(config),
    tailnetServices: config.control === 'tailscale',
  };
}

/** @throws TailcastError `CONFIG_INVALID` */
function networksOf({ ingressAddresses }: OperatorConfig): readonly Network[] {
  const networks = ingressAddresses.map((text) => {
    const network = networkOf(text);
    if (network?.isAligned === true) return network;
    throw new TailcastError(
      'CONFIG_INVALID',
      `ingressAddresses: ${JSON.stringify(text)} is not a network such as 10.99.0.0/24, without bits behind its prefix`,
    );
  });
  if (new Set(networks.map(({ family }) => family)).size < networks.length) {
    throw new TailcastError(
      'CONFIG_INVALID',
      'ingressAddresses: name one network of IPv4 and one of IPv6 at most',
    );
  }
  return networks;
}
