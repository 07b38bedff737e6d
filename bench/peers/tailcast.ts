/** The gateway, with and without a recorder. */
import { writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { Bench } from '../harness/bench.ts';
import type { GatewayProgram } from '../programs/gateway.ts';
import type { Peer, PeerName } from './peer.ts';

interface Variant {
  readonly recorded: boolean;
  /** True if clients connect without TLS. */
  readonly plain: boolean;
  /** True for `--recorder-window 0`. */
  readonly durableFirst: boolean;
  /** Number of clusters of the setting `clusters`. */
  readonly clusters?: number;
}

const ALONE: Variant = { recorded: false, plain: false, durableFirst: false };
const PLAIN_RECORDED: Variant = { ...ALONE, recorded: true, plain: true };
const DURABLE_FIRST: Variant = { ...ALONE, recorded: true, durableFirst: true };
const VARIANTS = {
  tailcast: ALONE,
  'tailcast-recorded': { ...ALONE, recorded: true },
  'tailcast-plain-recorded': PLAIN_RECORDED,
  'tailcast-durable-first': DURABLE_FIRST,
  'tailcast-cluster': { ...ALONE, clusters: 1 },
  'tailcast-clusters': { ...ALONE, clusters: 200 },
  before: ALONE,
  'before-recorded': { ...ALONE, recorded: true },
  'before-plain-recorded': PLAIN_RECORDED,
  'before-durable-first': DURABLE_FIRST,
} as const satisfies Readonly<Record<string, Variant>>;

type TailcastName = keyof typeof VARIANTS;

/** True if the peer is tailcast, from this checkout or from the checkout that `--before` names. */
export function isTailcast(name: PeerName): name is TailcastName {
  return Object.hasOwn(VARIANTS, name);
}

/** PROXY header with a loopback address. The gateway's fixed identity applies only to callers on this machine. */
const PROXY_HEADER = 'PROXY TCP4 127.0.0.1 127.0.0.1 40000 443\r\n';

export async function startTailcast(
  name: TailcastName,
  bench: Bench,
  kubeconfig: string = bench.kubeconfig,
): Promise<Peer> {
  // all load comes from one user, who would exceed the default limit for concurrent sessions
  const policy = join(bench.rig.folder, 'policy.yaml');
  writeFileSync(policy, 'sessions:\n  perUser: 1000\n');
  const { recorded, plain, durableFirst, clusters }: Variant = VARIANTS[name];
  const version = name.startsWith('before') ? 'before' : 'here';
  const recorder = recorded ? await bench.recorder(version) : undefined;
  const options: GatewayProgram = {
    kubeconfig,
    cert: bench.files.cert,
    key: bench.files.key,
    stateDirectory: join(bench.rig.folder, `${name}-${basename(kubeconfig)}`),
    policy,
    ...(recorder === undefined ? {} : { recorder: recorder.address }),
    durableFirst,
    plain,
    ...(clusters === undefined ? {} : { clusters }),
  };
  // The gateway program of commit 9719fbc, the usual checkout of `--before`, requires a number of workers.
  const argument = JSON.stringify(version === 'before' ? { ...options, workers: 1 } : options);
  const { program, port } = await bench.launch('gateway', name, [argument], version);
  return {
    name,
    target: plain ? { port, preamble: PROXY_HEADER } : { port, ca: bench.files.ca },
    pids: () => [program.pid],
    ...(recorder === undefined ? {} : { recorder }),
    async restart(onStopped) {
      await program.stop();
      onStopped?.();
      return startTailcast(name, bench, kubeconfig);
    },
  };
}
