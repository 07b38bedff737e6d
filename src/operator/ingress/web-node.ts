/** Common parts of the reconcilers of Ingresses and Gateways, each of which has a single node. Effects only. */
import { KubeRefusal } from '../kube-client.ts';
import { KINDS, type KubeObject } from '../kube-object.ts';
import type { Managed, ReconcilerDeps } from '../workload/reconciler.ts';
import { stateSecretName, type NodeGroup } from '../workload/workload.ts';
import { readNodeState, secretData } from '../workload/node-state.ts';
import type { ServingNode } from './serve-config.ts';
import type { TlsSecret } from './table.ts';
import { SERVICES, SERVICES_BY_NAME } from '../indexes.ts';

/**
 * Interval at which the operator reads certificate Secrets, in milliseconds. The operator polls because it has the
 * right to `get` these Secrets, but not to `watch` them.
 */
const SECRET_POLL_MS = 60_000;

/** Returns the time until the next reconciliation of a deployed resource. */
export function nextPassMs(retryAfterMs: number | undefined, secrets: number): number | undefined {
  return secrets > 0 ? Math.min(retryAfterMs ?? Infinity, SECRET_POLL_MS) : retryAfterMs;
}

/** @param secret Secret with the node's state */
export function nodeOf(secret: KubeObject | undefined, issuesCertificates: boolean): ServingNode {
  const { dnsName, addresses, https } = readNodeState(secret);
  return { dnsName, addresses, hasCertificate: issuesCertificates && https };
}

/** True if containerboot has applied the serve configuration. */
export function hasServeEndpoint(secret: KubeObject | undefined): boolean {
  return (secretData(secret).get('https_endpoint') ?? '') !== '';
}

/** Returns the node's name in the tailnet after it has joined. */
export async function dnsNameOf(
  { client, options }: Pick<ReconcilerDeps, 'client' | 'options'>,
  group: NodeGroup,
): Promise<string | undefined> {
  const reference = { namespace: options.namespace, name: stateSecretName(group.name, 0) };
  return readNodeState(await client.get(KINDS.secret, reference)).dnsName;
}

/** Returns the existing Services that are not being deleted, with their names as map keys. */
export async function servicesNamed(
  { cache }: Pick<ReconcilerDeps, 'cache'>,
  namespace: string | undefined,
  names: Iterable<string>,
): Promise<ReadonlyMap<string, KubeObject>> {
  const cached = await cache.read([SERVICES]);
  const found = new Map<string, KubeObject>();
  for (const name of names) {
    const [object] = cached.by(SERVICES_BY_NAME, `${namespace ?? ''}/${name}`);
    if (object !== undefined && object.metadata.deletionTimestamp === undefined) found.set(name, object);
  }
  return found;
}

/** Maximum number of certificate Secrets of one resource. The operator sends a request for each Secret every minute. */
const MAX_SECRETS = 100;

/**
 * Reads the Secrets with certificates. Returns a map from each name to the Secret, or to the reason why the Secret was
 * not read. `excess` means that there are more names than the maximum number.
 */
export async function tlsSecretsOf(
  { client }: Pick<ReconcilerDeps, 'client'>,
  { namespace }: Pick<Managed['metadata'], 'namespace'>,
  names: readonly string[],
): Promise<ReadonlyMap<string, TlsSecret>> {
  const found = new Map<string, TlsSecret>();
  for (const name of names.slice(MAX_SECRETS)) found.set(name, 'excess');
  for (const name of names.slice(0, MAX_SECRETS)) {
    try {
      found.set(name, (await client.get(KINDS.secret, { namespace, name })) ?? 'missing');
    } catch (error) {
      if (!(error instanceof KubeRefusal && error.status === 403)) throw error;
      found.set(name, 'forbidden');
    }
  }
  return found;
}
