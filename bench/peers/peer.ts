/** Peers of a benchmark: processes between the load and the API server, or a direct connection. */
import type { Target } from '../programs/plan.ts';
import type { RunningRecorder } from '../harness/bench.ts';

/** Gateway and recorder of the checkout that `--before` names. */
export type BeforeName = `before${'' | '-recorded' | '-plain-recorded' | '-durable-first'}`;

export type PeerName =
  | BeforeName
  /** Direct connection from the load generator to the upstream server: the highest possible rate. */
  | 'direct'
  | 'tailcast'
  /** tailcast with a recorder and `enforceRecorder`. */
  | 'tailcast-recorded'
  /** tailcast in the setup of the peer `reference`: connections start with a PROXY header and have no TLS. */
  | 'tailcast-plain-recorded'
  /** tailcast with a recorder and `--recorder-window 0`. */
  | 'tailcast-durable-first'
  /** tailcast with the setting `clusters`: with one cluster, and with 200 clusters. */
  | 'tailcast-cluster'
  | 'tailcast-clusters'
  /** Go's ReverseProxy, tuned, on two processors. The goals compare tailcast with this peer. */
  | 'go'
  /** Go's ReverseProxy with the default transport. */
  | 'go-default'
  /** Go's ReverseProxy with HTTP/2 on both sides. */
  | 'go-h2'
  /** A Node program that decrypts and encrypts TLS without parsing: the minimum cost of a gateway in Node. */
  | 'tls-hop'
  | 'reference'
  | 'reference-recorded';

export interface Peer {
  readonly name: PeerName;
  readonly target: Target;
  /** Processes whose CPU time and memory are measured; empty for the direct connection. */
  readonly pids: () => readonly number[];
  /** Recorder of the peer's sessions. */
  readonly recorder?: RunningRecorder;
  /** Restarts the proxy with an empty state; undefined if the proxy has no state that affects results. */
  readonly restart?: (onStopped?: () => void) => Promise<Peer>;
  /** Time of the last restart, by `performance.now()`. */
  readonly startedAtMs?: number;
}

const COUNTERPARTS: Partial<Record<PeerName, BeforeName>> = {
  tailcast: 'before',
  'tailcast-recorded': 'before-recorded',
  'tailcast-plain-recorded': 'before-plain-recorded',
  'tailcast-durable-first': 'before-durable-first',
};

/** Returns the name of the same proxy in the checkout of `--before`, or undefined if it has no such proxy. */
export function counterpartOf(name: PeerName): BeforeName | undefined {
  return COUNTERPARTS[name];
}
