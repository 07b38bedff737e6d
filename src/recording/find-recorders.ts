/** Which recorders a caller's grants mean: addresses that the tailnet vouches for, and nodes that carry a tag. */
import { TailcastError } from '../errors.ts';
import type { RecordingPolicy } from './policy.ts';

/** What is asked of the tailnet. Without an answer-giver nothing is resolved, and every address is taken at its word. */
export interface RecorderDirectory {
  /** Addresses of the recorders with these tags, for grants in which the control server named none. */
  readonly resolveRecorderTags?: (tags: readonly string[], signal: AbortSignal) => Promise<readonly string[]>;
  /** Whether the node that has an address carries one of the tags. */
  readonly carriesTag?: (address: string, tags: readonly string[], signal: AbortSignal) => Promise<boolean>;
}

type Recorded = Extract<RecordingPolicy, { readonly recorders: readonly string[] }>;

/**
 * Recorders in the order of the grants, each once. An address in a grant is only dialled when its node carries the tag that the
 * grant names: an address may have got another owner, or was written by hand.
 *
 * @throws TailcastError `RECORDER_UNAVAILABLE` when none is left of those that were named
 */
export async function findRecorders(
  { recorders, recorderTags, tagsOf = {} }: Pick<Recorded, 'recorders' | 'recorderTags' | 'tagsOf'>,
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
