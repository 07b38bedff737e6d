/** What is in the cluster for one Recorder. Read from the API server itself, never from a copy that may be old. */
import type { KubeClient } from '../kube-client.ts';
import { KINDS, type KubeObject, type ResourceKind } from '../kube-object.ts';
import type { Recorder } from './resource.ts';
import {
  authSecretName,
  labelSelector,
  ordinals,
  secretRole,
  serviceAccountName,
  stateSecretName,
} from './specs.ts';

export interface Observed {
  /** By name: those that carry the Recorder's labels, and whatever has a name that we need. */
  readonly secrets: ReadonlyMap<string, KubeObject>;
  /** With the Recorder's labels, under whatever name. */
  readonly serviceAccounts: readonly KubeObject[];
  readonly serviceAccount: KubeObject | undefined;
  readonly role: KubeObject | undefined;
  readonly roleBinding: KubeObject | undefined;
  readonly statefulSet: KubeObject | undefined;
  /** Names of the pods that exist, whatever their state. */
  readonly pods: ReadonlySet<string>;
}

type Reader = Pick<KubeClient, 'get' | 'list'>;

/** Reads everything that has the labels of a Recorder or a name that it needs. */
export async function observe(
  client: Reader,
  recorder: Recorder,
  namespace: string,
  signal: AbortSignal,
): Promise<Observed> {
  const { name } = recorder.metadata;
  const listed = async (kind: ResourceKind, metadataOnly: boolean): Promise<readonly KubeObject[]> =>
    (await client.list(kind, { namespace, labelSelector: labelSelector(name), metadataOnly }, signal)).items;
  const named = (kind: ResourceKind, wanted: string): Promise<KubeObject | undefined> =>
    client.get(kind, { namespace, name: wanted }, signal);
  const [secretList, serviceAccounts, pods, serviceAccount, role, roleBinding, statefulSet] =
    await Promise.all([
      listed(KINDS.secret, false),
      listed(KINDS.serviceAccount, true),
      listed(KINDS.pod, true),
      named(KINDS.serviceAccount, serviceAccountName(recorder)),
      named(KINDS.role, name),
      named(KINDS.roleBinding, name),
      named(KINDS.statefulSet, name),
    ]);
  const secrets = new Map(secretList.map((secret) => [secret.metadata.name, secret]));
  const needed = ordinals(recorder).flatMap((ordinal) => [
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
    pods: new Set(pods.map(({ metadata }) => metadata.name)),
  };
}

/** One replica's Secrets. */
export interface ReplicaSecrets {
  readonly ordinal: number;
  readonly state: KubeObject | undefined;
  readonly auth: KubeObject | undefined;
}

/** The Secrets by replica, in order. Secrets with other names are not ours, whatever their labels say. */
export function replicaSecrets(
  recorder: Recorder,
  { secrets }: Pick<Observed, 'secrets'>,
): readonly ReplicaSecrets[] {
  const { name } = recorder.metadata;
  const found = [...secrets.keys()].flatMap((secret) => secretRole(name, secret)?.ordinal ?? []);
  return [...new Set(found)]
    .toSorted((a, b) => a - b)
    .map((ordinal) => ({
      ordinal,
      state: secrets.get(stateSecretName(name, ordinal)),
      auth: secrets.get(authSecretName(name, ordinal)),
    }));
}
