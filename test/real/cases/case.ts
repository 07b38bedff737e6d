/**
 * Tasks with kubectl that run against an API server or against a proxy. A case returns the visible results as plain
 * data without times or names. The direct run and the run through a proxy must return equal results.
 */
import type { Kubectl, KubectlResult, Transport } from '../rig/kubectl.ts';
import { runKubectl } from '../rig/kubectl.ts';
import type { Kubernetes } from '../rig/kubernetes.ts';
import type { Terminal } from '../rig/terminal.ts';

export interface CaseContext {
  readonly kubectl: Kubectl;
  readonly transport: Transport;
  /** Kubeconfig that kubectl uses: for the API server or for the proxy under test. */
  readonly kubeconfig: string;
  /** The API server itself, for set-up and for checks that bypass the proxy. */
  readonly cluster: Kubernetes;
  /** Name of an idle pod with `sh` in container `main`. */
  readonly pod: string;
  /** An empty folder of this case. */
  readonly folder: string;
  /** A unique name. */
  readonly unique: string;
  /** If set, each kubectl run of the case is added to this list with its output. */
  readonly witness?: WitnessedRun[];
}

/** Output of a kubectl run. Tests compare this output with the recording of the session. */
export type WitnessedRun =
  | ({ readonly args: readonly string[]; readonly on: 'pipes' } & KubectlResult)
  | { readonly args: readonly string[]; readonly on: 'terminal'; readonly terminal: Terminal };

export type Observation = Readonly<Record<string, unknown>>;

export interface KubectlCase {
  readonly name: string;
  /** Kind of streams that the case opens. Old kubectl versions do not support every kind over WebSocket. */
  readonly streams: 'none' | 'exec' | 'port-forward';
  /** The oldest kubectl minor version that has the command. */
  readonly sinceMinor?: number;
  run(context: CaseContext): Promise<Observation>;
}

/** Runs kubectl and keeps exit code and output as text. */
export async function observe(
  context: CaseContext,
  args: readonly string[],
  stdin?: Buffer | string,
): Promise<{ code: number; stdout: string; stderr: string }> {
  const { code, stdout, stderr } = await kubectl(context, args, stdin);
  return { code, stdout: stdout.toString(), stderr: withoutChatter(stderr.toString()) };
}

export async function kubectl(
  context: CaseContext,
  args: readonly string[],
  stdin?: Buffer | string,
): Promise<KubectlResult> {
  const result = await runKubectl(context.kubectl, args, {
    kubeconfig: context.kubeconfig,
    transport: context.transport,
    ...(stdin === undefined ? {} : { stdin }),
  });
  context.witness?.push({ args, on: 'pipes', ...result });
  return result;
}

/**
 * Warnings that vary between runs: a version difference, or a message that arrived before kubectl had created its
 * stream.
 */
const CHATTER = /^WARNING: version difference between client|^E\d{4} .*\] Unknown stream id \d+, discarding/;

function withoutChatter(text: string): string {
  return text
    .split('\n')
    .filter((line) => !CHATTER.test(line))
    .join('\n');
}

export interface PodOptions {
  readonly command: readonly string[];
  readonly stdin?: boolean;
  readonly tty?: boolean;
}

/** Creates a pod with one container `main`, directly at the API server, and waits until it runs. */
export async function createPod(cluster: Kubernetes, name: string, options: PodOptions): Promise<void> {
  await cluster.api('POST', '/api/v1/namespaces/default/pods', {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, labels: { app: name } },
    spec: {
      restartPolicy: 'Never',
      terminationGracePeriodSeconds: 1,
      containers: [
        {
          name: 'main',
          image: 'local/shell',
          command: options.command,
          stdin: options.stdin === true,
          stdinOnce: options.stdin === true,
          tty: options.tty === true,
        },
      ],
    },
  });
  for (let attempt = 0; ; attempt += 1) {
    const pod = (await cluster.api('GET', `/api/v1/namespaces/default/pods/${name}`)) as PodStatus;
    if (pod.status.phase !== 'Pending') return;
    if (attempt > 400) throw new Error(`pod ${name} does not start: ${JSON.stringify(pod.status)}`);
    await new Promise((done) => setTimeout(done, 25));
  }
}

interface PodStatus {
  readonly status: { readonly phase: string };
}

export async function deletePod(cluster: Kubernetes, name: string): Promise<void> {
  await cluster
    .api('DELETE', `/api/v1/namespaces/default/pods/${name}?gracePeriodSeconds=0`)
    .catch(() => undefined);
}
