/** Reads the objects of Tailscale's operator (*the reference*) from a cluster. Changes nothing. */
import { z } from 'zod';
import { TailcastError } from '../../errors.ts';
import type { ClusterConnection } from '../../operator/cluster-connection.ts';
import { KubeRefusal, type KubeClient, type ListOptions } from '../../operator/kube-client.ts';
import { KINDS, type KubeObject, type ResourceKind } from '../../operator/kube-object.ts';
import { HELM_SELECTOR } from './helm.ts';
import { REFERENCE_GROUP } from './objects.ts';

/** Objects of a cluster, and messages about kinds that could not be read. */
export interface ClusterObjects {
  /** Custom resources, Services and Ingresses. */
  readonly objects: readonly KubeObject[];
  /** Secrets in which Helm stores deployed releases. */
  readonly helmSecrets: readonly KubeObject[];
  /** One sentence for each kind that the account may not list. */
  readonly unreadable: readonly string[];
}

const groupSchema = z.object({ preferredVersion: z.object({ groupVersion: z.string() }) });
const resourcesSchema = z.object({
  resources: z.array(z.object({ name: z.string(), kind: z.string(), namespaced: z.boolean() })),
});

/**
 * Lists Services, Ingresses, Helm releases, and the objects of all kinds in the API group `tailscale.com`, including
 * kinds that tailcast does not know.
 *
 * @throws TailcastError `UPSTREAM_UNAVAILABLE` if the API server cannot be reached
 */
export async function readCluster(
  connection: Pick<ClusterConnection, 'request'>,
  client: Pick<KubeClient, 'list'>,
  signal: AbortSignal,
): Promise<ClusterObjects> {
  const objects: KubeObject[] = [];
  const unreadable: string[] = [];
  const list = async (kind: ResourceKind, options: ListOptions = {}): Promise<readonly KubeObject[]> => {
    try {
      const { items } = await client.list(kind, options);
      return items.map((item) => ({ ...item, apiVersion: kind.apiVersion, kind: kind.kind }));
    } catch (error) {
      if (!(error instanceof KubeRefusal)) throw error;
      if (error.status !== 404) unreadable.push(`${kind.plural}: ${error.message}`);
      return [];
    }
  };
  for (const kind of await servedKinds(connection, signal)) objects.push(...(await list(kind)));
  objects.push(...(await list(KINDS.service)), ...(await list(KINDS.ingress)));
  const helmSecrets = await list(KINDS.secret, { labelSelector: HELM_SELECTOR });
  return { objects, helmSecrets, unreadable };
}

/** Returns the kinds of the reference's API group; none if its CRDs are not installed. */
async function servedKinds(
  connection: Pick<ClusterConnection, 'request'>,
  signal: AbortSignal,
): Promise<readonly ResourceKind[]> {
  const group = await readJson(connection, `/apis/${REFERENCE_GROUP}`, signal);
  if (group === undefined) return [];
  const { groupVersion } = groupSchema.parse(group).preferredVersion;
  const resources = await readJson(connection, `/apis/${groupVersion}`, signal);
  return resourcesSchema
    .parse(resources ?? { resources: [] })
    .resources.filter(({ name }) => !name.includes('/'))
    .map(({ name, kind, namespaced }) => ({ apiVersion: groupVersion, kind, plural: name, namespaced }));
}

async function readJson(
  connection: Pick<ClusterConnection, 'request'>,
  path: string,
  signal: AbortSignal,
): Promise<unknown> {
  const { status, text } = await connection.request({
    method: 'GET',
    path,
    accept: 'application/json',
    signal,
  });
  if (status === 404) return undefined;
  if (status !== 200)
    throw new TailcastError(
      'UPSTREAM_UNAVAILABLE',
      `GET ${path}: the API server responded with status ${status}`,
    );
  return JSON.parse(text);
}
