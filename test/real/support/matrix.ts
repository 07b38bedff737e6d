/** One case of kubectl, run directly as a control and through every gateway. */
import { isDeepStrictEqual } from 'node:util';
import { mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { CaseContext, KubectlCase, Observation, WitnessedRun } from '../cases/case.ts';
import { createPod, deletePod, observe } from '../cases/case.ts';
import { OBJECT_CASES } from '../cases/objects.ts';
import { PORT_FORWARD_CASES } from '../cases/port-forward.ts';
import { STREAM_CASES } from '../cases/streams.ts';
import { TERMINAL_CASES } from '../cases/terminal.ts';
import { type Kubectl, type Transport, minorNumber, speaks } from '../rig/kubectl.ts';
import type { Kubernetes } from '../rig/kubernetes.ts';
import type { Gateway, Gateways } from './gateways.ts';
import { compareRecordings } from './recorded.ts';

export interface Client {
  readonly kubectl: Kubectl;
  readonly transport: Transport;
}

export interface MatrixCase extends KubectlCase {
  /**
   * Checks the response of a gateway in auth mode. Set this function only if that response must differ from the API
   * server's response. Returns the problems.
   */
  readonly inAuthMode?: (control: Observation, seen: Observation) => readonly string[];
}

/** `--as` is a claim of the client: the API server accepts it from an admin, a gateway in auth mode refuses it. */
const AS_SOMEBODY: MatrixCase = {
  name: '--as',
  streams: 'none',
  async run(context) {
    const args = ['get', 'configmaps', '--output=name', '--namespace=tailcast'];
    const plain = await observe(context, args);
    const forged = await observe(context, [...args, '--as=rig-nobody', '--as-group=rig:nobodies']);
    return { plain, forged };
  },
  inAuthMode(control, seen) {
    const forged = seen['forged'] as { code: number; stdout: string; stderr: string };
    const isRefused =
      forged.code === 1 && forged.stdout === '' && forged.stderr.includes('refuses --as, --as-group');
    const believed = (control['forged'] as { code: number }).code === 1;
    return [
      ...(isRefused ? [] : [`--as was not refused: ${JSON.stringify(forged)}`]),
      ...(believed ? [] : ['the control believed nobody']),
    ];
  },
};

export const ALL_CASES: readonly MatrixCase[] = [
  ...OBJECT_CASES,
  AS_SOMEBODY,
  ...STREAM_CASES,
  ...TERMINAL_CASES,
  ...PORT_FORWARD_CASES,
];

/** Returns the cases that this client can run. */
export function casesFor(client: Client): readonly MatrixCase[] {
  return ALL_CASES.filter((item) => {
    if (item.sinceMinor !== undefined && minorNumber(client.kubectl) < item.sinceMinor) return false;
    // Requests without streams do not depend on the transport, so they run only once.
    if (item.streams === 'none') return client.transport === 'spdy';
    return speaks(client.kubectl, client.transport, item.streams);
  });
}

export interface MatrixJob {
  readonly client: Client;
  readonly item: MatrixCase;
  readonly cluster: Kubernetes;
  readonly gateways: Gateways;
}

export interface MatrixResult {
  /** Describes each difference in a sentence. */
  readonly problems: readonly string[];
}

let counter = 0;

/** Runs the case directly and then through each gateway, and compares responses and recordings. */
export async function runJob({ client, item, cluster, gateways }: MatrixJob): Promise<MatrixResult> {
  counter += 1;
  const pod = `matrix-${counter}`;
  await createPod(cluster, pod, { command: ['sleep', 'infinity'] });
  try {
    const context = (kubeconfig: string, witness: WitnessedRun[]): CaseContext => {
      counter += 1;
      const unique = `case-${counter}`;
      const folder = join(dirname(cluster.caPath), unique);
      mkdirSync(folder);
      return { ...client, cluster, kubeconfig, pod, folder, unique, witness };
    };
    const runDirectly = (): Promise<Observation> => item.run(context(gateways.direct, []));
    const control = createControl(await runDirectly(), runDirectly);
    const problems: string[] = [];
    for (const gateway of gateways.all) {
      const through = context(gateway.kubeconfig, []);
      const found = await runThrough(gateway, gateways, item, through, control).catch((error: unknown) => [
        error instanceof Error ? error.message : String(error),
      ]);
      problems.push(...found.map((problem) => `${gateway.name}: ${problem}`));
    }
    return { problems };
  } finally {
    await deletePod(cluster, pod);
  }
}

interface Control {
  /** First result of the API server. */
  readonly first: Observation;
  /** Returns true if a direct run has this result, too. Some results vary because of races in kubectl. */
  gives(seen: Observation): Promise<boolean>;
}

const CONTROL_RUNS = 3;

function createControl(first: Observation, runAgain: () => Promise<Observation>): Control {
  const given = [first];
  return {
    first,
    async gives(seen) {
      while (!given.some((observation) => isDeepStrictEqual(seen, observation))) {
        if (given.length === CONTROL_RUNS) return false;
        given.push(await runAgain());
      }
      return true;
    },
  };
}

async function runThrough(
  gateway: Gateway,
  { archive }: Gateways,
  item: MatrixCase,
  context: CaseContext,
  control: Control,
): Promise<readonly string[]> {
  const known = new Set((await archive.of(context.pod)).map(({ id }) => id));
  const seen = await item.run(context);
  const problems: string[] = [];
  if (gateway.mode === 'auth' && item.inAuthMode !== undefined) {
    problems.push(...item.inAuthMode(control.first, seen));
  } else if (!(await control.gives(seen))) {
    problems.push(`saw ${JSON.stringify(seen)}, the API server gives ${JSON.stringify(control.first)}`);
  }
  if (gateway.recorded)
    return [...problems, ...(await compareRecordings(archive, item.name, context, known))];
  const unwanted = (await archive.of(context.pod)).filter(({ id }) => !known.has(id));
  return [...problems, ...unwanted.map(({ id }) => `recorded without being asked to: ${id}`)];
}
