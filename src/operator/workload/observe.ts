/** Reads the objects of one group from the API server, because the cache could be stale. */
import type { KubeClient } from '../kube-client.ts';
import { KINDS, type KubeObject, type ResourceKind } from '../kube-object.ts';
import {
  authSecretName,
  labelSelector,
  ordinals,
  secretRole,
  stateSecretName,
  type NodeGroup,
} from './workload.ts';

export interface Observed {
  /**
   * Secrets of the group. Map keys: name of the Secret. Each Secret has the labels of the group, or a name that the
   * group needs.
   */
  readonly secrets: ReadonlyMap<string, KubeObject>;
  /** ServiceAccounts with the group's labels, whatever their name is. */
  readonly serviceAccounts: readonly KubeObject[];
  readonly serviceAccount: KubeObject | undefined;
  readonly role: KubeObject | undefined;
  readonly roleBinding: KubeObject | undefined;
  readonly statefulSet: KubeObject | undefined;
  readonly disruptionBudget: KubeObject | undefined;
  /**
   * Services that have the labels or the name of the group; empty if the objects have owner references to the resource.
   */
  readonly services: readonly KubeObject[];
  /** Uids of existing pods in any state. Map keys: name of the pod. */
  readonly pods: ReadonlyMap<string, string>;
}

type Reader = Pick<KubeClient, 'get' | 'list'>;

/** Lists the objects with these labels in the operator's namespace. */
export async function listOwn(
  {
    client,
    options,
  }: { readonly client: Pick<KubeClient, 'list'>; readonly options: { readonly namespace: string } },
  kind: ResourceKind,
  labelSelector: string,
  metadataOnly = false,
): Promise<readonly KubeObject[]> {
  return (await client.list(kind, { namespace: options.namespace, labelSelector, metadataOnly })).items;
}

/** Reads the objects of a group. Finds them through their labels or through the names that the group needs. */
export async function observe(client: Reader, group: NodeGroup, namespace: string): Promise<Observed> {
  const { name } = group;
  const listed = (kind: ResourceKind, metadataOnly: boolean): Promise<readonly KubeObject[]> =>
    listOwn({ client, options: { namespace } }, kind, labelSelector(group.labels), metadataOnly);
  const named = (kind: ResourceKind, wanted: string): Promise<KubeObject | undefined> =>
    client.get(kind, { namespace, name: wanted });
  /**
   * Returns the Services with the group's labels. Also returns the Service with the group's name, even if this Service
   * lacks the labels.
   */
  async function servicesOf(): Promise<readonly KubeObject[]> {
    const labelled = await listed(KINDS.service, false);
    if (labelled.some(({ metadata }) => metadata.name === name)) return labelled;
    const other = await named(KINDS.service, name);
    return other === undefined ? labelled : [...labelled, other];
  }
  const [
    secretList,
    serviceAccounts,
    pods,
    serviceAccount,
    role,
    roleBinding,
    statefulSet,
    disruptionBudget,
    services,
  ] = await Promise.all([
    listed(KINDS.secret, false),
    listed(KINDS.serviceAccount, true),
    listed(KINDS.pod, true),
    named(KINDS.serviceAccount, group.account.name),
    named(KINDS.role, name),
    named(KINDS.roleBinding, name),
    named(KINDS.statefulSet, name),
    group.owned ? named(KINDS.disruptionBudget, name) : undefined,
    group.owned ? [] : servicesOf(),
  ]);
  const secrets = new Map(secretList.map((secret) => [secret.metadata.name, secret]));
  const needed = ordinals(group).flatMap((ordinal) => [
    stateSecretName(name, ordinal),
    authSecretName(name, ordinal),
  ]);
  for (const missing of needed.filter((wanted) => !secrets.has(wanted))) {
    const found = await named(KINDS.secret, missing);
    if (found !== undefined) secrets.set(missing, found);
  }
  return {
    secrets,
    serviceAccounts,
    serviceAccount,
    role,
    roleBinding,
    statefulSet,
    disruptionBudget,
    services,
    pods: new Map(pods.map(({ metadata }) => [metadata.name, metadata.uid ?? ''])),
  };
}

/** One replica's Secrets. */
export interface ReplicaSecrets {
  readonly ordinal: number;
  readonly state: KubeObject | undefined;
  readonly auth: KubeObject | undefined;
}

/**
 * Returns the Secrets of each replica, in the order of the replicas. Secrets with other names are ignored, even if they
 * have the group's labels.
 */
export function replicaSecrets(
  group: NodeGroup,
  { secrets }: Pick<Observed, 'secrets'>,
): readonly ReplicaSecrets[] {
  const { name } = group;
  const found = [...secrets.keys()].flatMap((secret) => secretRole(name, secret)?.ordinal ?? []);
  return [...new Set(found)]
    .toSorted((a, b) => a - b)
    .map((ordinal) => ({
      ordinal,
      state: secrets.get(stateSecretName(name, ordinal)),
      auth: secrets.get(authSecretName(name, ordinal)),
    }));
}
