/** A kubectl session against a real API server: what a person waits for. */
import { readFileSync } from 'node:fs';
import { GoMissingError } from '../../test/real/rig/build.ts';
import { findKubectls, runKubectl, type Kubectl } from '../../test/real/rig/kubectl.ts';
import { startKubernetes, type Kubernetes } from '../../test/real/rig/kubernetes.ts';
import type { Bench } from '../harness/bench.ts';
import { COMMANDS, type BenchCase, type Scale } from '../harness/case.ts';
import { startGo } from '../peers/go.ts';
import { PeerMissingError } from '../peers/missing.ts';
import type { Peer, PeerName } from '../peers/peer.ts';
import { startTailcast } from '../peers/tailcast.ts';
import { percentiles, type LoadResult } from '../programs/plan.ts';

const PODS = 20;

interface Cluster {
  readonly kubernetes: Kubernetes;
  readonly kubectl: Kubectl;
}

const clusters = new WeakMap<Bench, Promise<Cluster>>();

function clusterOf(bench: Bench): Promise<Cluster> {
  const known = clusters.get(bench);
  if (known !== undefined) return known;
  const started = startCluster(bench);
  clusters.set(bench, started);
  return started;
}

async function startCluster(bench: Bench): Promise<Cluster> {
  try {
    const kubernetes = await startKubernetes(bench.rig, { controllers: false, node: false });
    const kubectl = (await findKubectls()).at(-1);
    if (kubectl === undefined) throw new PeerMissingError('there is no kubectl on this machine');
    const namespace = '/api/v1/namespaces/default';
    await kubernetes.api('POST', `${namespace}/serviceaccounts`, { metadata: { name: 'default' } });
    for (let index = 0; index < PODS; index += 1) {
      await kubernetes.api('POST', `${namespace}/pods`, {
        metadata: { name: nameOf(index) },
        spec: { automountServiceAccountToken: false, containers: [{ name: 'main', image: 'none' }] },
      });
    }
    return { kubernetes, kubectl };
  } catch (error) {
    if (error instanceof GoMissingError) throw new PeerMissingError(error.message);
    throw error;
  }
}

function nameOf(pod: number): string {
  return `web-${String(pod).padStart(2, '0')}`;
}

/** The same kinds of peers, in front of the real API server; the credential they hold may only impersonate. */
async function start(name: PeerName, bench: Bench): Promise<Peer> {
  const { kubernetes } = await clusterOf(bench);
  const token = kubernetes.tokens.impersonator;
  if (name === 'direct')
    return { name, target: { port: kubernetes.port, ca: kubernetes.caPath }, pids: () => [] };
  if (name === 'tailcast')
    return startTailcast(name, bench, kubernetes.kubeconfig('bench-gateway', { token }));
  if (name === 'go') return startGo(name, bench, { url: kubernetes.url, ca: kubernetes.caPath, token });
  throw new PeerMissingError(`${name} has no kubectl case`);
}

async function run(peer: Peer, bench: Bench, { quick }: Scale): Promise<LoadResult> {
  const { kubernetes, kubectl } = await clusterOf(bench);
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
    if (code !== 0 || names.join() !== Array.from({ length: PODS }, (_, index) => nameOf(index)).join())
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
  start,
  run,
};
