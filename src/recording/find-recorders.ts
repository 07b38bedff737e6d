/** Finds the recorders whose addresses or tags are in the grants. */
import { TailcastError } from '../errors.ts';
import type { RecordingPolicy } from './policy.ts';

/** Queries to the tailnet. Without these functions, tags are not resolved and addresses are not checked. */
export interface RecorderDirectory {
  /** Returns the addresses of recorders with these tags, for grants without addresses. */
  readonly resolveRecorderTags?: (tags: readonly string[], signal: AbortSignal) => Promise<readonly string[]>;
  /** Returns true if the node with this address has one of the tags. */
  readonly carriesTag?: (address: string, tags: readonly string[], signal: AbortSignal) => Promise<boolean>;
}

type Recorded = Extract<RecordingPolicy, { readonly recorders: readonly string[] }>;
/** The recorders of the grants: addresses and tags. */
export type NamedRecorders = Pick<Recorded, 'recorders' | 'recorderTags' | 'tagsOf'>;

/**
 * Returns the addresses of the grants, in their order, followed by the recorders that were found by tag. If a grant
 * names an address and tags, the address is used only if its node has one of the tags. The address may belong to
 * another node now, or may be a mistake in the policy.
 *
 * @throws TailcastError `RECORDER_UNAVAILABLE` if no address passes this check
 */
export async function findRecorders(
  { recorders, recorderTags, tagsOf = {} }: NamedRecorders,
  { resolveRecorderTags, carriesTag }: RecorderDirectory,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const refused: string[] = [];
  const named: string[] = [];
  for (const address of recorders) {
    const tags = tagsOf[address] ?? [];
    const isVouchedFor =
      tags.length === 0 || carriesTag === undefined || (await carriesTag(address, tags, signal));
    if (isVouchedFor) named.push(address);
    else refused.push(`${address} is no node with ${tags.join(' or ')}`);
  }
  const tagged = recorderTags.length === 0 ? [] : ((await resolveRecorderTags?.(recorderTags, signal)) ?? []);
  const all = [...new Set([...named, ...tagged])];
  if (all.length === 0 && refused.length > 0)
    throw new TailcastError('RECORDER_UNAVAILABLE', refused.join('; '));
  return all;
}

/**
 * Adds addresses that were found by tag to the recorders of the grants. `findRecorders` then only checks whether the
 * nodes of these addresses still have a tag. A recorder therefore stays a candidate even if it is offline for a moment
 * and a later search by tag does not find it.
 */
export function withFound(
  { recorders, recorderTags, tagsOf = {} }: NamedRecorders,
  found: readonly string[],
): NamedRecorders {
  const byTag = found.filter((address) => !recorders.includes(address));
  return {
    recorders: [...recorders, ...byTag],
    recorderTags,
    tagsOf: { ...tagsOf, ...Object.fromEntries(byTag.map((address) => [address, recorderTags])) },
  };
}
