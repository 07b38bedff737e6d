/**
 * Ensures that each name in a tailnet belongs to only one resource. This applies to the names of nodes and Tailscale
 * Services, across resources of all kinds and namespaces. Each name has a ConfigMap that contains the uid of the name's
 * owner: the resource for which the ConfigMap was first created. Effects.
 */
import { hash } from 'node:crypto';
import { z } from 'zod';
import { KubeRefusal, type KubeClient } from '../kube-client.ts';
import { kindOf, KINDS, type KubeObject, type ResourceKind } from '../kube-object.ts';
import type { ObjectCache, Selection } from '../object-cache.ts';
import { removeExact } from './cleanup.ts';
import { listOwn } from './observe.ts';

type NamesDeps = {
  readonly client: Pick<KubeClient, 'get' | 'list' | 'create' | 'remove'>;
  readonly options: { readonly namespace: string };
};

/** A resource, and the names that it needs. */
export interface NameClaim {
  readonly kind: ResourceKind;
  readonly metadata: {
    readonly namespace?: string | undefined;
    readonly name: string;
    readonly uid: string;
  };
  /** Name of the `Tailnet` resource; empty for the tailnet of the operator. */
  readonly tailnet: string;
  /** First DNS labels of the names in the tailnet, in upper or lower case. */
  readonly names: readonly string[];
}

/** Label of these ConfigMaps. Its value is the uid of the owner. */
const OWNER = 'tailcast.dev/name-owner';
/** Maximum number of attempts if another operator creates or removes the same ConfigMap at the same time. */
const ATTEMPTS = 3;

const ownerSchema = z.object({
  apiVersion: z.string(),
  kind: z.string(),
  namespace: z.string().optional(),
  name: z.string(),
  uid: z.string(),
});
type Owner = z.infer<typeof ownerSchema>;

/**
 * Makes a resource the owner of its names.
 *
 * @returns the reason and the owner if one of the names is taken; undefined if the resource owns all names
 * @throws KubeRefusal; Error if the operator did not create the ConfigMap with this name
 */
export async function claimNames(deps: NamesDeps, claim: NameClaim): Promise<string | undefined> {
  for (const name of new Set(claim.names)) {
    const owner = await claimName(deps, claim, name);
    if (owner === undefined) continue;
    const where = owner.namespace === undefined ? owner.name : `${owner.namespace}/${owner.name}`;
    return `the tailnet name ${name.toLowerCase()} belongs to ${owner.kind} ${where}: choose another name`;
  }
  return undefined;
}

/** Releases all names of a resource, except those in `claim.names`. */
export async function releaseNames(deps: NamesDeps, claim: NameClaim): Promise<void> {
  const kept = new Set(objectNames(claim));
  const selector = `${OWNER}=${claim.metadata.uid}`;
  for (const object of await listOwn(deps, KINDS.configMap, selector, true))
    if (!kept.has(object.metadata.name)) await removeExact(deps, object);
}

/** Returns a selection of all ConfigMaps that record owners of names. */
export function nameSelection(namespace: string): Selection {
  return { kind: KINDS.configMap, namespace, labelSelector: OWNER };
}

/** Returns, for the uid of each owner, the names of the ConfigMaps that record its names. */
export async function namesByOwner({
  cache,
  options,
}: Pick<NamesDeps, 'options'> & { readonly cache: ObjectCache }): Promise<
  ReadonlyMap<string, readonly string[]>
> {
  const selection = nameSelection(options.namespace);
  const objects = (await cache.read([selection])).all(selection);
  const byOwner = Map.groupBy(objects, ({ metadata }) => metadata.labels?.[OWNER] ?? '');
  return new Map([...byOwner].map(([uid, owned]) => [uid, owned.map(({ metadata }) => metadata.name)]));
}

/**
 * True if one of the ConfigMaps with the names `owned` records the owner of the node's name. A number at the end is
 * ignored, because the control server adds it if another node has the same name.
 */
export function ownsNodeName(owned: readonly string[], dnsName: string): boolean {
  const [label = ''] = dnsName.split('.', 1);
  return [label, label.replace(/-\d+$/, '')].some((name) => owned.includes(objectName(name, '')));
}

/** True if the resource owns all names in the claim and no other names. */
export function isSettled(claim: NameClaim, owners: ReadonlyMap<string, readonly string[]>): boolean {
  const owned = owners.get(claim.metadata.uid) ?? [];
  const wanted = objectNames(claim);
  return owned.length === wanted.length && wanted.every((name) => owned.includes(name));
}

function objectNames({ names, tailnet }: NameClaim): readonly string[] {
  return [...new Set(names.map((name) => objectName(name, tailnet)))];
}

function objectName(name: string, tailnet: string): string {
  const suffix = tailnet === '' ? '' : `.${hash('sha256', tailnet).slice(0, 8)}`;
  return `tailnet-name.${name.toLowerCase()}${suffix}`;
}

/** Returns the owner if the name belongs to another resource. */
async function claimName(
  { client, options: { namespace } }: NamesDeps,
  { kind, metadata, tailnet }: NameClaim,
  wanted: string,
): Promise<Owner | undefined> {
  const name = objectName(wanted, tailnet);
  const { uid } = metadata;
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    const existing = await client.get(KINDS.configMap, { namespace, name });
    if (existing === undefined) {
      const data = {
        apiVersion: kind.apiVersion,
        kind: kind.kind,
        ...(metadata.namespace === undefined ? {} : { namespace: metadata.namespace }),
        name: metadata.name,
        uid,
      };
      const object = {
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { name, namespace, labels: { [OWNER]: uid } },
        data,
      };
      if (await isCreated(client, object)) return undefined;
      continue;
    }
    const owner = ownerIn(existing, namespace);
    if (owner.uid === uid) return undefined;
    if (await exists(client, owner)) return owner;
    // The owner no longer exists. It was deleted without the operator's finalizer, so its ConfigMap is left over.
    await removeExact({ client }, existing);
  }
  throw new Error(`ConfigMap ${namespace}/${name}: another operator changes it at the same time`);
}

/** @returns false if another client created the object first */
async function isCreated(client: NamesDeps['client'], object: object): Promise<boolean> {
  try {
    await client.create(KINDS.configMap, object);
    return true;
  } catch (error) {
    if (error instanceof KubeRefusal && error.status === 409) return false;
    throw error;
  }
}

function ownerIn(object: KubeObject, namespace: string): Owner {
  const { success, data } = ownerSchema.safeParse(object['data']);
  if (success && object.metadata.labels?.[OWNER] === data.uid) return data;
  throw new Error(
    `ConfigMap ${namespace}/${object.metadata.name} exists, but does not contain the owner of the name: delete it`,
  );
}

async function exists(
  client: NamesDeps['client'],
  { uid, namespace, name, ...type }: Owner,
): Promise<boolean> {
  const kind = kindOf(type);
  const object = kind === undefined ? undefined : await client.get(kind, { namespace, name });
  return object?.metadata.uid === uid;
}
