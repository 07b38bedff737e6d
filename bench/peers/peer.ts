/** Peers of a benchmark: processes between the load and the API server, or a direct connection. */
import type { Target } from '../programs/plan.ts';
import type { RunningRecorder } from '../harness/bench.ts';

/** The gateway of the other checkout of `--before`, and the recorder of that checkout. */
export type BeforeName = `before${'' | '-recorded' | '-plain-recorded' | '-durable-first'}`;

export type PeerName =
  | BeforeName
  /** The load generator and the upstream by themselves: the ceiling of everything else. */
  | 'direct'
  | 'tailcast'
  /** Every session goes to the recorder, or does not run. */
  | 'tailcast-recorded'
  /** The same the way the reference runs here: behind a PROXY header, without TLS in front. */
  | 'tailcast-plain-recorded'
  /** Recorded, and nothing is shown before it is durable. */
  | 'tailcast-durable-first'
  /** Go's ReverseProxy, tuned, on two processors: what the goals are measured against. */
  | 'go'
  /** The same with Go's default transport. */
  | 'go-default'
  /** The same with HTTP/2 on both sides. */
  | 'go-h2'
  | 'nginx'
  | 'haproxy'
  /** HAProxy that forwards bytes without TLS: the minimum cost of an additional process. */
  | 'hop'
  /** Node that ends TLS, begins it anew and looks at nothing in between: what a gateway in Node costs at least. */
  | 'tls-hop'
  | 'reference'
  | 'reference-recorded';

export interface Peer {
  readonly name: PeerName;
  readonly target: Target;
  /** Processes whose CPU time and memory count; none for the direct connection. */
  readonly pids: () => readonly number[];
  /** Where its sessions are recorded. */
  readonly recorder?: RunningRecorder;
  /** Starts it anew, with nothing of what it has used so far; none where that makes no difference. */
  readonly restart?: (onStopped?: () => void) => Promise<Peer>;
  /** When it was started anew, by `performance.now()`. */
  readonly startedAtMs?: number;
}

const COUNTERPARTS: Partial<Record<PeerName, BeforeName>> = {
  tailcast: 'before',
  'tailcast-recorded': 'before-recorded',
  'tailcast-plain-recorded': 'before-plain-recorded',
  'tailcast-durable-first': 'before-durable-first',
};

/** The peer that it is compared with under `--before`; undefined: none. */
export function counterpartOf(name: PeerName): BeforeName | undefined {
  return COUNTERPARTS[name];
}
