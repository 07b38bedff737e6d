/**
 * The checks of `tailcast doctor operator`. The checks use the API server and the control server in the operator's
 * settings.
 */
import { reconciledBy, type OperatorConfig } from '../config/operator.ts';
import { apiServerChecks } from '../doctor/api-server-checks.ts';
import { once, type Check } from '../doctor/checks.ts';
import { createClusterView } from '../doctor/operator/cluster-view.ts';
import { controlChecks } from '../doctor/operator/control.ts';
import { leaderCheck } from '../doctor/operator/leading.ts';
import { leftoverChecks } from '../doctor/operator/leftovers.ts';
import { parentChecks } from '../doctor/operator/parents.ts';
import { resourcesCheck } from '../doctor/operator/resources.ts';
import { rightsCheck } from '../doctor/operator/rights.ts';
import { TailcastError } from '../errors.ts';
import { connectCluster } from '../operator/cluster-connection.ts';
import { createKubeClient } from '../operator/kube-client.ts';
import { openApiServer } from './gateway-upstream.ts';
import { createControl } from './operator-peers.ts';

/**
 * Returns the checks in the order of an installation.
 *
 * @param signal stops all checks when it aborts. The caller must abort this signal in the end, because the connections
 *   stay open until then
 * @throws TailcastError `CONFIG_INVALID`
 */
export function operatorChecks(
  config: OperatorConfig,
  environment: ReadonlyMap<string, string>,
  signal: AbortSignal,
): readonly Check[] {
  const unixMs = Date.now;
  const connection = connectCluster(config, environment);
  signal.addEventListener('abort', () => connection.close(), { once: true });
  const namespace = config.namespace ?? connection.namespace;
  if (namespace === undefined)
    throw new TailcastError('CONFIG_INVALID', 'namespace: name the operator’s own (--namespace)');
  const { defaultTags, lease } = config;
  const uses = { ...reconciledBy(config), leaderElection: lease !== undefined };
  const client = createKubeClient(connection, signal);
  const control = createControl(config, client, signal);
  const nodes = once(() => control.allDevices());
  const view = createClusterView({
    client,
    namespace,
    uses,
    servesUnclassed: config.defaultLoadBalancer,
  });
  const api = apiServerChecks({ open: () => openApiServer(config, environment), unixMs });
  return [
    ...api.checks,
    resourcesCheck(uses, api.client),
    rightsCheck({ uses, namespace, client: api.client }),
    ...controlChecks({ control, defaultTags, proxyGroups: uses.proxyGroups, nodes }),
    leaderCheck({ view, namespace, lease, unixMs }),
    ...parentChecks({ view, namespace, defaultClass: config.defaultProxyClass ?? '', unixMs }),
    ...leftoverChecks({ view, namespace, defaultTags, nodes }),
  ];
}
