/**
 * In which order recorders are tried: nodes in the order they are named, the addresses of one node together, nodes that
 * failed a moment ago last. A failure is only a reason to be tried later and more briefly, never to be left out: with
 * one recorder there is nothing better to do than to ask it again.
 */

export interface RecorderNode {
  readonly key: string;
  readonly addresses: readonly string[];
  /** It failed within the last `suspectMs`. */
  readonly suspect: boolean;
}

export interface RecorderCandidates {
  order(addresses: readonly string[]): readonly RecorderNode[];
  failed(key: string): void;
  succeeded(key: string): void;
}

/** Failed nodes that are remembered; beyond that the oldest is forgotten. */
const MAX_SUSPECTS = 256;

export function createCandidates(deps: {
  /** Which node an address belongs to; addresses with equal answers are one recorder. */
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
