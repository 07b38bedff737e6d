/** The settings of the operator in the form that reconcilers and watches use. */
import { reconciledBy, type OperatorConfig } from '../config/operator.ts';
import { TailcastError } from '../errors.ts';
import { networkOf, type Network } from '../operator/networks.ts';
import type { SpecOptions } from '../operator/workload/workload.ts';
import { TAILSCALE_LOGIN } from './operator-peers.ts';

/**
 * @param image tailcast image for the pods that the operator deploys, unless the settings name another image
 * @throws TailcastError `CONFIG_INVALID`
 */
export function operatorOptions(config: OperatorConfig, namespace: string, image: string): SpecOptions {
  return {
    ...config,
    namespace,
    // A placeholder. When the operator deploys a resource, it uses the login server of that resource's tailnet instead.
    loginServer: TAILSCALE_LOGIN,
    recorderImage: config.recorderImage ?? image,
    defaultClass: config.defaultProxyClass ?? '',
    servesUnclassed: config.defaultLoadBalancer,
    reconciled: reconciledBy(config),
    networks: networksOf(config),
    hasTailnetServices: config.control === 'tailscale',
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
