/**
 * Additional clusters of a ProxyGroup. Each is described by a Secret in the operator's namespace that has a label of
 * Cluster API or Argo CD. The gateways may read only these Secrets: their Role lists the names. Pure.
 */
import { z } from 'zod';
import { TailcastError } from '../../errors.ts';
import { describeCluster, FORMAT_LABELS, MAX_NAMED_OBJECTS } from '../../kube/cluster-objects.ts';
import { olderFirst } from '../../kube/object-age.ts';
import { isLabelSelector } from '../../kube/selectors.ts';
import { CLUSTER_NAME } from '../../wire/asciicast/header.ts';
import type { DesiredObject, KubeObject } from '../kube-object.ts';
import { metadataOf } from '../workload/object-specs.ts';
import { nullableList } from '../workload/schema.ts';
import type { Verdict } from '../workload/status.ts';
import { isOfAnyGroup, type NodeGroup } from '../workload/workload.ts';
import { ANNOTATIONS, settingsOf, type ProxyGroup } from './resource.ts';

/** Formats of the Secrets that describe clusters. */
export const SECRET_FORMATS = ['capi', 'argocd'] as const;
type SecretFormat = (typeof SECRET_FORMATS)[number];

/** Key in the data of the ConfigMap. The value is the file for the gateway's setting `clusters`. */
export const CLUSTERS_FILE = 'clusters.yaml';

/** Maximum number of rejected Secrets that a message lists. */
const MAX_SHOWN = 10;

/** Returns the name of the ConfigMap with the clusters of a group. */
export function clustersName(group: string): string {
  return `${group}-clusters`;
}

/** Returns the selector of the group's clusters; empty if the group serves only its own cluster. */
export function clusterSelectorOf({ metadata }: ProxyGroup): string {
  return metadata.annotations[ANNOTATIONS.clusters] ?? '';
}

/** Returns the reason why the selector of the group's clusters cannot be used, or undefined. */
export function problemOfClusters(proxyGroup: ProxyGroup): string | undefined {
  const selector = clusterSelectorOf(proxyGroup);
  if (selector === '') return undefined;
  if (!isLabelSelector(selector))
    return `${ANNOTATIONS.clusters}: ${JSON.stringify(selector)} is not a label selector, such as env=prod`;
  if (!CLUSTER_NAME.test(proxyGroup.metadata.name))
    return `${ANNOTATIONS.clusters}: the name of the group is not a DNS label, so its own cluster has no name`;
  if (settingsOf(proxyGroup).settings.has('TAILCAST_CLUSTERS'))
    return `${ANNOTATIONS.clusters} and TAILCAST_CLUSTERS in ${ANNOTATIONS.env} exclude each other: remove one`;
  return undefined;
}

/**
 * Returns the label selector for Secrets of one format. The label of the format comes first, so that it applies even if
 * the API server ignores the end of the user's selector.
 */
export function secretSelector(format: SecretFormat, selector: string): string {
  return `${FORMAT_LABELS[format]},${selector}`;
}

/** Clusters that the gateways of a group serve. */
export interface ServedClusters {
  /** Names of the Secrets of each format that the gateways may read. */
  readonly secrets: Readonly<Record<SecretFormat, readonly string[]>>;
  readonly verdict: Verdict;
}

const roleSchema = z.object({
  rules: nullableList(z.object({ resourceNames: nullableList(z.string()), verbs: nullableList(z.string()) })),
});

/**
 * Returns the names of the Secrets that pods in the operator's namespace can change, such as the state Secrets of their
 * nodes. A compromised pod could label such a Secret as a cluster, so these Secrets are not accepted.
 *
 * @param roles Roles of the operator's namespace
 */
export function secretsOfPods(roles: readonly KubeObject[]): ReadonlySet<string> {
  const rules = roles.filter(isOfAnyGroup).flatMap((role) => roleSchema.parse(role).rules);
  const changing = rules.filter(({ verbs }) => verbs.some((verb) => verb !== 'get'));
  return new Set(changing.flatMap(({ resourceNames }) => resourceNames));
}

/**
 * Decides which Secrets describe clusters of the group. If several Secrets describe clusters with the same name, the
 * oldest Secret is used. If the kubeconfig in a Secret becomes invalid, the gateways' Role still lists the Secret,
 * because the gateways still use its last valid kubeconfig.
 *
 * @param ofPods names of the Secrets that pods can change
 */
export function chooseClusters(
  { metadata: { name: own } }: ProxyGroup,
  found: Readonly<Record<SecretFormat, readonly KubeObject[]>>,
  ofPods: ReadonlySet<string>,
): ServedClusters {
  const secrets: Record<SecretFormat, string[]> = { capi: [], argocd: [] };
  const owners = new Map([[own, "the group's own cluster"]]);
  const refused: string[] = [];
  const seen = new Set<string>();
  const labelled = SECRET_FORMATS.flatMap((format) => found[format].map((secret) => ({ format, secret })));
  const byAge = labelled.toSorted((a, b) => olderFirst(a.secret, b.secret));
  let served = 0;
  for (const { format, secret } of byAge) {
    const { name } = secret.metadata;
    if (seen.has(name)) continue;
    seen.add(name);
    const refuse = (reason: string): void => void refused.push(`Secret ${name}: ${reason}`);
    if (ofPods.has(name)) {
      refuse('a pod of the operator can change it');
      continue;
    }
    const { cluster, problem } = clusterOf(format, secret);
    const owner = cluster === undefined ? undefined : owners.get(cluster);
    if (cluster === undefined && problem === undefined) continue;
    if (owner !== undefined) refuse(`the name ${cluster} belongs to ${owner}`);
    else if (served === MAX_NAMED_OBJECTS) refuse(`a group serves at most ${served} clusters of Secrets`);
    else {
      if (cluster !== undefined) owners.set(cluster, `Secret ${name}`);
      if (problem !== undefined) refuse(problem);
      secrets[format].push(name);
      served += 1;
    }
  }
  return { secrets, verdict: verdictOf(own, [...owners.keys()].slice(1).toSorted(), refused) };
}

/**
 * Returns the name of the cluster that a Secret describes, or the problem with the Secret. The name and the problem are
 * undefined if the Secret describes no cluster.
 */
function clusterOf(
  format: SecretFormat,
  secret: KubeObject,
): { readonly cluster?: string; readonly problem?: string } {
  try {
    const cluster = describeCluster(format, secret)?.name;
    if (cluster === undefined) return {};
    if (CLUSTER_NAME.test(cluster)) return { cluster };
    return { problem: 'the name of its cluster is not a DNS label' };
  } catch (error) {
    // Errors with a cause are not shown, because the cause may quote the content of the Secret. Users who can read the
    // ProxyGroup must not see this content.
    const isOurs = error instanceof TailcastError && error.cause === undefined;
    return { problem: isOurs ? (error.detail ?? '') : 'its content is not a valid kubeconfig' };
  }
}

function verdictOf(own: string, names: readonly string[], refused: readonly string[]): Verdict {
  const others = names.length === 0 ? 'no cluster of a Secret' : names.join(', ');
  const shown = refused.slice(0, MAX_SHOWN).join('; ');
  const more = refused.length > MAX_SHOWN ? `; and ${refused.length - MAX_SHOWN} more` : '';
  const ready = refused.length === 0 && names.length > 0;
  const reason = ready ? 'Served' : refused.length > 0 ? 'Refused' : 'Missing';
  return {
    ready,
    reason: `KubeAPIServerProxyClusters${reason}`,
    message: `serves ${own} and ${others}${refused.length === 0 ? '' : `; refused: ${shown}${more}`}`,
  };
}

/**
 * Returns the ConfigMap with the gateway's setting `clusters`: the group's own cluster, and the clusters of the
 * selected Secrets.
 */
export function clustersConfigMap(
  proxyGroup: ProxyGroup,
  group: NodeGroup,
  { secrets }: Pick<ServedClusters, 'secrets'>,
  options: { readonly namespace: string },
): DesiredObject & { readonly data: Readonly<Record<string, string>> } {
  const kubeconfig = settingsOf(proxyGroup).settings.get('TAILCAST_KUBECONFIG');
  const file = {
    clusters: [
      {
        name: group.name,
        ...(kubeconfig === undefined ? { inCluster: true } : { kubeconfig: { file: kubeconfig } }),
      },
    ],
    discover: SECRET_FORMATS.filter((format) => secrets[format].length > 0).map((objects) => ({
      objects,
      namespace: options.namespace,
      names: secrets[objects].toSorted(),
    })),
  };
  return {
    apiVersion: 'v1',
    kind: 'ConfigMap',
    metadata: metadataOf(group, options, clustersName(group.name)),
    data: { [CLUSTERS_FILE]: JSON.stringify(file, null, 2) },
  };
}
