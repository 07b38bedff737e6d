/**
 * A real API server with a Kubernetes node, and peers in front of the API server. The API server starts once per run.
 * The peers are the same programs as in other cases.
 */
import { writeFileSync } from 'node:fs';
import { get } from 'node:https';
import { join } from 'node:path';
import { GoMissingError } from '../../test/real/rig/build.ts';
import { startKubernetes, type Kubernetes } from '../../test/real/rig/kubernetes.ts';
import type { Bench } from '../harness/bench.ts';
import { startGo } from './go.ts';
import { PeerMissingError } from './missing.ts';
import type { Peer, PeerName } from './peer.ts';
import { startReference } from './reference.ts';
import { isTailcast, startTailcast } from './tailcast.ts';
import { startTlsHop } from './tls-hop.ts';

/** Names of pods whose containers only sleep. Sessions use the first pod. */
export const PODS: readonly string[] = [
  'shell',
  ...Array.from({ length: 19 }, (_, index) => `web-${String(index).padStart(2, '0')}`),
];

export interface Cluster {
  readonly kubernetes: Kubernetes;
  /** A kubeconfig for proxies, with only the right to impersonate. */
  readonly kubeconfig: string;
  /** Requests a URL path, stores the response in a file, and returns the path of the file. */
  answerTo(path: string): Promise<string>;
}

const clusters = new WeakMap<Bench, Promise<Cluster>>();

/** @throws PeerMissingError if the cluster cannot be built */
export function clusterOf(bench: Bench): Promise<Cluster> {
  const known = clusters.get(bench);
  if (known !== undefined) return known;
  const started = startCluster(bench);
  clusters.set(bench, started);
  return started;
}

async function startCluster(bench: Bench): Promise<Cluster> {
  try {
    const kubernetes = await startKubernetes(bench.rig, { controllers: false, node: { webSockets: true } });
    const namespace = '/api/v1/namespaces/default';
    await kubernetes.api('POST', `${namespace}/serviceaccounts`, { metadata: { name: 'default' } });
    for (const name of PODS)
      await kubernetes.api('POST', `${namespace}/pods`, {
        metadata: { name },
        spec: {
          automountServiceAccountToken: false,
          terminationGracePeriodSeconds: 1,
          containers: [{ name: 'main', image: 'local/shell', command: ['sleep', 'infinity'] }],
        },
      });
    for (const name of PODS)
      await bench.rig.until(`pod ${name}`, async () => {
        const pod = (await kubernetes.api('GET', `${namespace}/pods/${name}`)) as PodStatus;
        return pod.status.phase === 'Running' ? pod : undefined;
      });
    let answers = 0;
    return {
      kubernetes,
      kubeconfig: kubernetes.kubeconfig('bench-gateway', { token: kubernetes.tokens.impersonator }),
      async answerTo(path) {
        const answer = await fetchText(kubernetes, path);
        answers += 1;
        const file = join(bench.rig.folder, `answer-${answers}.json`);
        writeFileSync(file, answer);
        return file;
      },
    };
  } catch (error) {
    if (error instanceof GoMissingError) throw new PeerMissingError(error.message);
    throw error;
  }
}

interface PodStatus {
  readonly status: { readonly phase: string };
}

/** Returns the bytes of a response as sent by the API server. */
function fetchText({ port, ca, tokens }: Kubernetes, path: string): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const headers = { accept: 'application/json', authorization: `Bearer ${tokens.admin}` };
    get({ host: '127.0.0.1', port, ca, path, headers, agent: false }, (response) => {
      const chunks: Buffer[] = [];
      response.on('data', (chunk: Buffer) => chunks.push(chunk));
      response.on('error', reject);
      response.on('end', () => {
        if (response.statusCode === 200) resolve(Buffer.concat(chunks));
        else reject(new Error(`${path}: ${response.statusCode} ${Buffer.concat(chunks).toString()}`));
      });
    }).on('error', reject);
  });
}

const peers = new WeakMap<Bench, Map<PeerName, Promise<Peer>>>();

/**
 * Returns a peer in front of the real API server. Starts the peer at the first call. @throws PeerMissingError if the
 * peer is not available
 */
export function peerInCluster(name: PeerName, bench: Bench): Promise<Peer> {
  const known = peers.get(bench) ?? new Map<PeerName, Promise<Peer>>();
  peers.set(bench, known);
  const peer = known.get(name) ?? start(name, bench);
  known.set(name, peer);
  return peer;
}

async function start(name: PeerName, bench: Bench): Promise<Peer> {
  const { kubernetes, kubeconfig } = await clusterOf(bench);
  const { port, url, caPath: ca, tokens } = kubernetes;
  if (name === 'direct') return { name, target: { port, ca, token: tokens.admin }, pids: () => [] };
  if (name === 'tls-hop') return startTlsHop(bench, { port, ca, token: tokens.admin });
  if (isTailcast(name)) return startTailcast(name, bench, kubeconfig);
  if (name === 'go') return startGo(name, bench, { url, ca, token: tokens.impersonator });
  if (name === 'reference' || name === 'reference-recorded') return startReference(name, bench, kubeconfig);
  throw new PeerMissingError(`${name} is not set up for a real API server`);
}
