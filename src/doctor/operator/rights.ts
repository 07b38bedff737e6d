/**
 * Checks that the operator's account has the rights for all enabled controllers. `deploy/rbac/operator.yaml` grants
 * these rights.
 */
import { errorText } from '../../errors.ts';
import { GATEWAY_GROUP } from '../../operator/gateway/resource.ts';
import type { ReconciledKind } from '../../operator/workload/workload.ts';
import { usernameOf } from '../api-server-checks.ts';
import type { ApiClient } from '../api-client.ts';
import { failed, ok, warning, type Check } from '../checks.ts';
import { may, readRules, type Access, type Rule } from '../reviews.ts';

/** Enabled controllers, from the operator's settings. */
export interface OperatorUses extends Readonly<Record<ReconciledKind, boolean>> {
  readonly leaderElection: boolean;
}

export interface RightsFacts {
  readonly uses: OperatorUses;
  /** Namespace of the operator. */
  readonly namespace: string;
  readonly client: () => Promise<ApiClient>;
}

/** Required verbs for one kind of object. */
export interface Right {
  /** Namespace of the objects; undefined stands for all namespaces. */
  readonly namespace: string | undefined;
  readonly group: string;
  /** Plural name, with the subresource if there is one: `services/status`. */
  readonly resource: string;
  readonly verbs: readonly string[];
}

const READ = ['get', 'list', 'watch'] as const;
const MAKE = [...READ, 'create', 'patch', 'delete'] as const;
const ADMISSION = 'admissionregistration.k8s.io';
const CUSTOM = 'tailscale.com';
/** Namespace for events about cluster-scoped resources. */
const EVENTS_OF_CLUSTER = 'default';
const AT_ONCE = 8;

const BIND =
  'apply deploy/rbac/operator.yaml again (and operator-gateways.yaml for gateways), or upgrade the chart; or ' +
  'leave unneeded kinds out of --controllers';

/** Returns all rights that the operator needs for the enabled controllers. */
export function rightsFor(uses: OperatorUses, namespace: string): readonly Right[] {
  const { proxyGroups, services, ingresses, gateways, connectors, dnsConfigs, leaderElection } = uses;
  const egressGroups = proxyGroups && services;
  const groups = proxyGroups && (services || ingresses);
  const everywhere = (group: string, resource: string, verbs: readonly string[]): Right => ({
    namespace: undefined,
    group,
    resource,
    verbs,
  });
  const own = (group: string, resource: string, verbs: readonly string[] = MAKE): Right => ({
    ...everywhere(group, resource, verbs),
    namespace,
  });
  const custom = (plural: string, isOwner = false): readonly Right[] => [
    everywhere(CUSTOM, plural, [...READ, 'patch']),
    everywhere(CUSTOM, `${plural}/status`, ['patch']),
    ...(isOwner ? [everywhere(CUSTOM, `${plural}/finalizers`, ['update'])] : []),
  ];
  const when = (wanted: boolean, ...rights: readonly Right[]): readonly Right[] => (wanted ? rights : []);
  return [
    ...custom('recorders', true),
    ...custom('tailnets'),
    // Proxies must not have the tags of gateways, so the operator always reads ProxyGroups to know these tags.
    everywhere(CUSTOM, 'proxygroups', ['list']),
    ...when(
      proxyGroups,
      ...custom('proxygroups', true),
      everywhere(CUSTOM, 'proxygrouppolicies', READ),
      everywhere(ADMISSION, 'validatingadmissionpolicies', MAKE),
      everywhere(ADMISSION, 'validatingadmissionpolicybindings', MAKE),
    ),
    ...when(connectors, ...custom('connectors')),
    ...when(services || ingresses || gateways || connectors, ...custom('proxyclasses')),
    ...when(dnsConfigs, ...custom('dnsconfigs', true)),
    ...when(
      services,
      everywhere('', 'services', [...READ, 'patch']),
      everywhere('', 'services/status', ['patch']),
    ),
    ...when(
      ingresses,
      everywhere('networking.k8s.io', 'ingresses', [...READ, 'patch']),
      everywhere('networking.k8s.io', 'ingresses/status', ['patch']),
      everywhere('networking.k8s.io', 'ingressclasses', ['get']),
      everywhere('', 'services', READ),
    ),
    ...when(
      gateways,
      everywhere(GATEWAY_GROUP, 'gateways', [...READ, 'patch']),
      everywhere(GATEWAY_GROUP, 'gatewayclasses', READ),
      everywhere(GATEWAY_GROUP, 'httproutes', READ),
      ...['gatewayclasses', 'gateways', 'httproutes'].map((plural) =>
        everywhere(GATEWAY_GROUP, `${plural}/status`, ['patch']),
      ),
      everywhere('', 'services', READ),
    ),
    // Kubernetes stores events about a Service, an Ingress or a Gateway in the namespace of this object.
    ...when(services || ingresses || gateways, everywhere('', 'events', ['create', 'patch'])),
    { ...own('', 'events', ['create', 'patch']), namespace: EVENTS_OF_CLUSTER },
    own('', 'events', ['get', 'create', 'patch']),
    // Pods need `update` on their own Secrets. The operator must have this right as well, because an account can grant
    // only its own rights.
    own('', 'secrets', [...MAKE, 'update']),
    own('', 'serviceaccounts'),
    own('', 'pods', READ),
    own('apps', 'statefulsets'),
    own('rbac.authorization.k8s.io', 'roles'),
    own('rbac.authorization.k8s.io', 'rolebindings'),
    own('policy', 'poddisruptionbudgets'),
    ...when(services || ingresses || gateways || connectors || dnsConfigs, own('', 'services')),
    own('', 'configmaps'),
    // The operator reads whether Services of ingress groups have ready endpoints.
    ...when(egressGroups, everywhere('discovery.k8s.io', 'endpointslices', READ)),
    ...when(egressGroups, own('discovery.k8s.io', 'endpointslices', [...READ, 'create', 'patch'])),
    ...when(dnsConfigs && !egressGroups, own('discovery.k8s.io', 'endpointslices', READ)),
    ...when(groups, own('', 'pods/status', ['patch'])),
    ...when(dnsConfigs, own('apps', 'deployments')),
    ...when(leaderElection, own('coordination.k8s.io', 'leases', ['get', 'create', 'patch'])),
  ];
}

export function rightsCheck({ uses, namespace, client }: RightsFacts): Check {
  return {
    id: 'rights',
    title: 'rights',
    needs: ['credential'],
    remedy: BIND,
    async run(signal) {
      const api = await client();
      const self = await usernameOf(api, signal);
      const missing = await missingOf(api, rightsFor(uses, namespace), signal);
      if (missing.length > 0) return failed(`the account may not ${missing.join('; ')}`, BIND);
      if (self !== undefined && !self.startsWith('system:serviceaccount:')) {
        return warning(
          `${self} has all rights, but is not a service account`,
          'check the operator’s own account: run doctor in its pod, or with a kubeconfig of that account',
        );
      }
      return ok('all required rights');
    },
  };
}

/** Returns one message for each object kind for which the account lacks verbs. */
async function missingOf(
  client: ApiClient,
  rights: readonly Right[],
  signal: AbortSignal,
): Promise<readonly string[]> {
  const known = new Map<string, readonly Rule[]>();
  for (const namespace of new Set(rights.flatMap((right) => right.namespace ?? []))) {
    // Reading all rules of the account at once saves one review per verb. If this fails, each verb is reviewed
    // separately.
    const listed = await readRules(client, namespace, signal).catch((error: unknown) => errorText(error));
    known.set(namespace, typeof listed === 'string' ? [] : listed.rules);
  }
  const missing = new Map<Right, string[]>();
  const open = rights.flatMap((right) => {
    const rules = right.namespace === undefined ? [] : (known.get(right.namespace) ?? []);
    return right.verbs
      .filter((verb) => !rules.some((rule) => grants(rule, right, verb)))
      .map((verb) => ({ right, verb }));
  });
  const ask = async (): Promise<void> => {
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      const { right, verb } = next;
      if (await may(client, accessOf(right, verb), signal)) continue;
      missing.set(right, [verb, ...(missing.get(right) ?? [])]);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, ask));
  return rights.flatMap((right) => {
    const verbs = missing.get(right);
    return verbs === undefined ? [] : [describeRight({ ...right, verbs })];
  });
}

function accessOf({ namespace, group, resource }: Right, verb: string): Access {
  const [name = '', subresource] = resource.split('/');
  return {
    verb,
    group,
    resource: name,
    ...(subresource === undefined ? {} : { subresource }),
    ...(namespace === undefined ? {} : { namespace }),
  };
}

/**
 * True if a rule grants a verb. Ignores rules that are limited to named objects; the API server then reviews the verb
 * separately.
 */
function grants({ verbs, apiGroups, resources, resourceNames }: Rule, right: Right, verb: string): boolean {
  const has = (list: readonly string[], wanted: string): boolean =>
    list.includes(wanted) || list.includes('*');
  return (
    resourceNames.length === 0 &&
    has(verbs, verb) &&
    has(apiGroups, right.group) &&
    has(resources, right.resource)
  );
}

function describeRight({ namespace, group, resource, verbs }: Right): string {
  const name = group === '' ? resource : `${resource}.${group}`;
  return `${verbs.toSorted().join('/')} ${name} in ${namespace ?? 'every namespace'}`;
}
