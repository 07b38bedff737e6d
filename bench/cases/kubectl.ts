/** A kubectl session with a real API server, as a user runs it. */
import { readFileSync } from 'node:fs';
import { findKubectls, runKubectl, type Kubectl } from '../../test/real/rig/kubectl.ts';
import type { Bench } from '../harness/bench.ts';
import { COMMANDS, type BenchCase, type Scale } from '../harness/case.ts';
import { clusterOf, PODS, peerInCluster } from '../peers/cluster.ts';
import { PeerMissingError } from '../peers/missing.ts';
import type { Peer } from '../peers/peer.ts';
import { percentiles, type LoadResult } from '../programs/plan.ts';

let found: Kubectl | undefined;

async function newestKubectl(): Promise<Kubectl> {
  found ??= (await findKubectls()).at(-1);
  if (found === undefined) throw new PeerMissingError('there is no kubectl on this machine');
  return found;
}

async function run(peer: Peer, bench: Bench, { quick }: Scale): Promise<LoadResult> {
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
    const { code, stdout, stderr } = await runKubectl(kubectl, ['get', 'pods'], { kubeconfig });
    latencies.push(performance.now() - before);
    const lines = stdout.toString().trimEnd().split('\n');
    const names = lines.slice(1).map((line) => line.split(' ')[0]);
    if (code !== 0 || names.join() !== PODS.join())
      throw new Error(`kubectl get pods: ${code} ${stderr.toString()}`);
  }
  return {
    units: commands,
    seconds: (performance.now() - startedAt) / 1000,
    ...percentiles(latencies),
    loadCpuSeconds: 0,
  };
}

export const KUBECTL_CASE: BenchCase = {
  name: 'kubectl',
  title: 'kubectl get pods, 20 times, with a real API server',
  unit: COMMANDS,
  peers: ['direct', 'tailcast', 'go'],
  async start(name, bench) {
    await newestKubectl();
    return peerInCluster(name, bench);
  },
  run,
};
