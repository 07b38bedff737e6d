/**
 * Determines the order in which recorders are tried. The nodes of the recorders are tried in the order of the grants.
 * The addresses of one node are tried together. Nodes that failed recently come last and get shorter timeouts, but are
 * never skipped.
 */
import { BoundedMap } from '../bounded-map.ts';

/** A recorder with all its addresses. */
export interface RecorderNode {
  readonly key: string;
  readonly addresses: readonly string[];
  /** True if the node failed within the last `suspectMs`. */
  readonly suspect: boolean;
}

export type RecorderCandidates = ReturnType<typeof createCandidates>;

/** Maximum number of failures that are kept. The oldest failure is removed first. */
const MAX_SUSPECTS = 256;

export function createCandidates(deps: {
  /** Returns the id of the node with an address. Addresses of the same node belong to one recorder. */
  readonly nodeOf: (address: string) => string;
  readonly nowMs: () => number;
  readonly suspectMs: number;
}) {
  const failedAt = new BoundedMap<number>(MAX_SUSPECTS);
  const isSuspect = (key: string): boolean => {
    const at = failedAt.get(key);
    if (at === undefined) return false;
    if (deps.nowMs() - at < deps.suspectMs) return true;
    failedAt.delete(key);
    return false;
  };
  return {
    order(addresses: readonly string[]): readonly RecorderNode[] {
      const nodes = Map.groupBy(new Set(addresses), (address) => deps.nodeOf(address));
      const all = [...nodes].map(([key, grouped]) => ({ key, addresses: grouped, suspect: isSuspect(key) }));
      return [...all.filter((node) => !node.suspect), ...all.filter((node) => node.suspect)];
    },
    failed: (key: string): void => void failedAt.set(key, deps.nowMs()),
    succeeded: (key: string): void => void failedAt.delete(key),
  };
}
