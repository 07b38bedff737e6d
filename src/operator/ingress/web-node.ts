/** Common parts of the reconcilers of Ingresses and Gateways, each of which has a single node. Effects only. */
import { KubeRefusal } from '../kube-client.ts';
import { KINDS } from '../kube-object.ts';
import type { ProxyClass } from '../proxy-class/resource.ts';
import type { Deployed } from '../workload/deploy.ts';
import { deployProxy } from '../workload/proxy.ts';
import type { Managed, Observation, ReconcilerDeps } from '../workload/reconciler.ts';
import { stateSecretName, type NodeGroup } from '../workload/workload.ts';
import { readNodeState, secretData } from '../workload/node-state.ts';
import type { ServingNode } from './serve-config.ts';
import type { TlsSecret } from './table.ts';

/**
 * Interval at which the operator reads certificate Secrets, in milliseconds. The operator polls because it has the
 * right to `get` these Secrets, but not to `watch` them.
 */
const SECRET_POLL_MS = 60_000;

/** Returns the time until the next reconciliation of a deployed resource. */
export function nextPassMs(retryAfterMs: number | undefined, secrets: number): number | undefined {
  return secrets > 0 ? Math.min(retryAfterMs ?? Infinity, SECRET_POLL_MS) : retryAfterMs;
}

export function nodeOf({ name }: NodeGroup, { observed, control }: Observation): ServingNode {
  const { dnsName, addresses, https } = readNodeState(observed.secrets.get(stateSecretName(name, 0)));
  return { dnsName, addresses, hasCertificate: control.issuesCertificates && https };
}

/** Plan for the node of an Ingress or a Gateway. */
export interface WebNodePlan {
  /** Serve configuration of tailscaled. */
  readonly config: { readonly TCP?: Readonly<Record<string, object>> };
  /** Ingress table for tailcast's ingress server; undefined if tailscaled routes the requests itself. */
  readonly table?: object | undefined;
}

/** Deploys the node of an Ingress or a Gateway. */
export async function deployWebNode(
  deps: ReconcilerDeps,
  { group }: Managed,
  proxyClass: ProxyClass | undefined,
  found: Observation,
  {
    hostname,
    node,
    plan: { config, table },
  }: {
    readonly hostname: string;
    readonly node: ServingNode;
    readonly plan: WebNodePlan;
  },
): Promise<
  Deployed & {
    /** True if the node serves the planned configuration. */
    readonly serves: boolean;
  }
> {
  const duty = {
    kind: 'web',
    serveConfig: JSON.stringify(config),
    table: table === undefined ? undefined : JSON.stringify(table),
  } as const;
  const deployed = await deployProxy(deps, { group, duty, hostname: () => hostname }, proxyClass, found);
  // Tailcast's ingress server reports with its readiness probe that it serves the table. For tailscaled, containerboot
  // writes to the state Secret that it has applied the configuration.
  const secret = found.observed.secrets.get(stateSecretName(group.name, 0));
  const hasApplied = (secretData(secret).get('https_endpoint') ?? '') !== '';
  const serves =
    table === undefined
      ? Object.keys(config.TCP ?? {}).length === 0 || !node.hasCertificate || hasApplied
      : deployed.missing === undefined;
  return { ...deployed, serves };
}

/** Returns the node's name in the tailnet after it has joined. */
export async function dnsNameOf(
  { client, options }: Pick<ReconcilerDeps, 'client' | 'options'>,
  group: NodeGroup,
): Promise<string | undefined> {
  const reference = { namespace: options.namespace, name: stateSecretName(group.name, 0) };
  return readNodeState(await client.get(KINDS.secret, reference)).dnsName;
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
