/**
 * The order in which recorders are tried: nodes in the order of the grant, the addresses of one node together, and
 * nodes that failed recently last. A node that failed is tried later and with shorter timeouts, but never skipped.
 */

/** A recorder with all its addresses. */
export interface RecorderNode {
  readonly key: string;
  readonly addresses: readonly string[];
  /** True if the node failed within the last `suspectMs`. */
  readonly suspect: boolean;
}

export interface RecorderCandidates {
  order(addresses: readonly string[]): readonly RecorderNode[];
  failed(key: string): void;
  succeeded(key: string): void;
}

/** Maximum number of remembered failures. The oldest is forgotten first. */
const MAX_SUSPECTS = 256;

export function createCandidates(deps: {
  /** Returns the node of an address. Addresses with the same node are one recorder. */
  readonly nodeOf: (address: string) => string;
  readonly nowMs: () => number;
  readonly suspectMs: number;
}): RecorderCandidates {
  const failedAt = new Map<string, number>();
  const isSuspect = (key: string): boolean => {
    const at = failedAt.get(key);
    if (at === undefined) return false;
    if (deps.nowMs() - at < deps.suspectMs) return true;
    failedAt.delete(key);
    return false;
  };
  return {
    order(addresses) {
      const nodes = new Map<string, string[]>();
      for (const address of addresses) {
        const key = deps.nodeOf(address);
        const known = nodes.get(key);
        if (known === undefined) nodes.set(key, [address]);
        else if (!known.includes(address)) known.push(address);
      }
      const all = [...nodes].map(([key, grouped]) => ({ key, addresses: grouped, suspect: isSuspect(key) }));
      return [...all.filter((node) => !node.suspect), ...all.filter((node) => node.suspect)];
    },
    failed(key) {
      failedAt.delete(key);
      failedAt.set(key, deps.nowMs());
      if (failedAt.size <= MAX_SUSPECTS) return;
      for (const oldest of failedAt.keys()) {
        failedAt.delete(oldest);
        break;
      }
    },
    succeeded(key) {
      failedAt.delete(key);
    },
  };
}
