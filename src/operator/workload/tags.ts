/**
 * Rules for the tags of proxies. Without these rules, a proxy could get a tag that recorders and gateways trust.
 * Effects.
 */
import { z } from 'zod';
import type { Clock } from '../clock.ts';
import type { KubeClient } from '../kube-client.ts';
import { KINDS } from '../kube-object.ts';
import { listOf } from '../object-cache.ts';
import type { SpecOptions } from './workload.ts';

export type TagPolicy = ReturnType<typeof createTagPolicy>;

/** Lifetime of the cached list of gateways and recorders, in milliseconds. */
const REMEMBERED_MS = 5000;

const taggedSchema = z.object({
  spec: z.object({ type: z.string().default(''), tags: z.array(z.string()).default([]) }).prefault({}),
});

/** Creates the rules for tags from the settings of an operator. */
export function createTagPolicy(deps: {
  readonly client: Pick<KubeClient, 'list'>;
  readonly options: Pick<SpecOptions, 'allowedTags' | 'defaultTags' | 'recorderUploaders'>;
  readonly clock: Pick<Clock, 'monotonic'>;
}) {
  const { options, clock } = deps;
  const { allowedTags, defaultTags } = options;
  let known: { readonly atMs: number; readonly owners: ReadonlyMap<string, string> } | undefined;

  async function owners(): Promise<ReadonlyMap<string, string>> {
    const now = clock.monotonic();
    if (known === undefined || now - known.atMs >= REMEMBERED_MS)
      known = { atMs: now, owners: await trustedTags(deps) };
    return known.owners;
  }

  return {
    /**
     * Returns the reason why a proxy must not have these tags, or undefined.
     *
     * @param place.namespace namespace of the resource; undefined for a cluster-scoped resource, which may have every
     * tag that no gateway or recorder has
     * @throws KubeRefusal
     */
    async problemOf({
      namespace,
      tags,
    }: {
      readonly namespace?: string | undefined;
      readonly tags: readonly string[];
    }): Promise<string | undefined> {
      const trusted = await owners();
      for (const tag of tags) {
        const owner = trusted.get(tag);
        if (owner !== undefined)
          return (
            `${tag} is a tag of ${owner}, and proxies never have tags of gateways or recorders: choose ` +
            'another tag'
          );
      }
      if (namespace === undefined) return undefined;
      const mayHave = (tag: string): boolean =>
        defaultTags.includes(tag) ||
        allowedTags.some(
          (one) => one.tag === tag && (one.namespace === undefined || one.namespace === namespace),
        );
      const refused = tags.find((tag) => !mayHave(tag));
      return refused === undefined
        ? undefined
        : `${refused} is not allowed in namespace ${namespace}: choose another tag, or add ` +
            `${namespace}=${refused} to --allowed-tags of the operator`;
    },
  };
}

/** Returns the tags of gateways and recorders, each with the resource or setting that contains it. */
async function trustedTags({
  client,
  options,
}: Parameters<typeof createTagPolicy>[0]): Promise<ReadonlyMap<string, string>> {
  const owners = new Map<string, string>();
  for (const uploader of options.recorderUploaders)
    if (uploader.startsWith('tag:')) owners.set(uploader, 'the setting recorderUploaders');
  for (const kind of [KINDS.recorder, KINDS.proxyGroup]) {
    for (const object of await listOf(client, { kind, keep: (one) => one })) {
      const { spec } = taggedSchema.parse(object);
      if (kind === KINDS.proxyGroup && spec.type !== 'kube-apiserver') continue;
      for (const tag of spec.tags) owners.set(tag, `${kind.kind} ${object.metadata.name}`);
    }
  }
  return owners;
}
