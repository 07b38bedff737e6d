/** Commands of kubectl with a real API server, as a user runs them. */
import { readFileSync } from 'node:fs';
import { findKubectls, runKubectl, type Kubectl } from '../../test/real/rig/kubectl.ts';
import type { Bench } from '../harness/bench.ts';
import { COMMANDS, type BenchCase, type Scale } from '../harness/case.ts';
import { clusterOf, PODS, peerInCluster } from '../peers/cluster.ts';
import { PeerMissingError } from '../peers/missing.ts';
import type { Peer } from '../peers/peer.ts';
import { percentile, percentiles, type LoadResult } from '../programs/plan.ts';

let found: Kubectl | undefined;

async function newestKubectl(): Promise<Kubectl> {
  found ??= (await findKubectls()).at(-1);
  if (found === undefined) throw new PeerMissingError('there is no kubectl on this machine');
  return found;
}

interface Command {
  readonly args: readonly string[];
  /** True if the output is correct. */
  readonly isRight: (stdout: string) => boolean;
}

const GET_PODS: Command = {
  args: ['get', 'pods'],
  isRight(stdout) {
    const lines = stdout.trimEnd().split('\n');
    return (
      lines
        .slice(1)
        .map((line) => line.split(' ')[0])
        .join() === PODS.join()
    );
  },
};
const EXEC: Command = { args: ['exec', 'shell', '--', 'true'], isRight: (stdout) => stdout === '' };

async function run(
  { args, isRight }: Command,
  peer: Peer,
  bench: Bench,
  { quick }: Scale,
): Promise<LoadResult> {
  const { kubernetes } = await clusterOf(bench);
  const kubectl = await newestKubectl();
  const kubeconfig = kubernetes.kubeconfig(`bench-${peer.name}`, {
    server: `https://localhost:${peer.target.port}`,
    ca: readFileSync(peer.target.ca ?? '', 'utf8'),
    token: kubernetes.tokens.admin,
  });
  const latencies: number[] = [];
  const commands = quick ? 5 : 20;
  const startedAt = performance.now();
  for (let command = 0; command < commands; command += 1) {
    const before = performance.now();
    const { code, stdout, stderr } = await runKubectl(kubectl, args, { kubeconfig });
    latencies.push(performance.now() - before);
    if (code !== 0 || !isRight(stdout.toString()))
      throw new Error(`kubectl ${args.join(' ')}: ${code} ${stderr.toString()}`);
  }
  return {
    units: commands,
    seconds: (performance.now() - startedAt) / 1000,
    ...percentiles(latencies),
    p90Ms: percentile(latencies, 0.9),
    loadCpuSeconds: 0,
  };
}

function kubectlCase(benchmark: Pick<BenchCase, 'name' | 'title' | 'peers'>, command: Command): BenchCase {
  return {
    ...benchmark,
    unit: COMMANDS,
    async start(name, bench) {
      await newestKubectl();
      return peerInCluster(name, bench);
    },
    run: (peer, bench, scale) => run(command, peer, bench, scale),
  };
}

export const KUBECTL_CASES: readonly BenchCase[] = [
  kubectlCase(
    {
      name: 'kubectl',
      title: 'kubectl get pods, 20 times, with a real API server',
      peers: ['direct', 'tailcast', 'go'],
    },
    GET_PODS,
  ),
  kubectlCase(
    {
      name: 'exec-start',
      title: 'kubectl exec shell -- true, 20 times, with a real API server',
      peers: ['direct', 'tailcast', 'tailcast-recorded', 'go'],
    },
    EXEC,
  ),
];
