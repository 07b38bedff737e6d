/**
 * Renders the chart with helm, and writes the kustomize bases from the rendered chart.
 *
 *   node test/real/chart/render.ts      writes deploy/kustomize/
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseAllDocuments } from 'yaml';
import { ensurePeer } from '../rig/build.ts';

export const ROOT = fileURLToPath(new URL('../../../', import.meta.url));
export const CHART = join(ROOT, 'deploy', 'chart', 'tailcast');
export const NAMESPACE = 'tailcast';
const EXAMPLES = join(CHART, 'examples');

/** Kustomize bases, each rendered from the chart's example with the same name. */
export const BASES: readonly string[] = ['gateway-auth', 'gateway-noauth', 'recorder', 'operator'];

export const CRDS: readonly string[] = [
  'recorder.yaml',
  'proxygroup.yaml',
  'connector.yaml',
  'proxyclass.yaml',
  'dnsconfig.yaml',
];

export interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
  };
  /** Rules of a Role or ClusterRole. */
  readonly rules?: readonly {
    readonly apiGroups?: readonly string[];
    readonly resources: readonly string[];
    readonly verbs: readonly string[];
    readonly resourceNames?: readonly string[];
  }[];
}

export interface Container {
  readonly name: string;
  readonly env: readonly { readonly name: string; readonly value?: string }[];
  readonly securityContext: unknown;
  readonly resources: { readonly requests: { memory?: string }; readonly limits: { memory?: string } };
  readonly startupProbe?: unknown;
  readonly readinessProbe?: { readonly httpGet: unknown };
  readonly livenessProbe?: { readonly httpGet: unknown };
  readonly volumeMounts: readonly { readonly name: string }[];
}

export interface Workload extends Manifest {
  readonly spec: {
    readonly selector: { readonly matchLabels: Readonly<Record<string, string>> };
    readonly template: {
      readonly metadata: { readonly labels: Readonly<Record<string, string>> };
      readonly spec: {
        readonly securityContext: { readonly seccompProfile: unknown };
        readonly automountServiceAccountToken: boolean;
        readonly terminationGracePeriodSeconds: number;
        readonly affinity: unknown;
        readonly initContainers?: readonly Container[];
        readonly containers: readonly [Container];
      };
    };
  };
}

export interface Outcome {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

export function exampleNames(): readonly string[] {
  return readdirSync(EXAMPLES)
    .filter((name) => name.endsWith('.yaml'))
    .map((name) => name.replace(/\.yaml$/, ''))
    .toSorted();
}

export function exampleFile(name: string): string {
  return join(EXAMPLES, `${name}.yaml`);
}

/** Runs a program until it exits. */
export function run(program: string, args: readonly string[], input?: string, cwd?: string): Outcome {
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    cwd,
    encoding: 'utf8',
    input: input ?? '',
    maxBuffer: 64 * 1024 ** 2,
    timeout: 180_000,
  });
  if (error !== undefined) throw error;
  return { code: status ?? 1, stdout, stderr };
}

/** @throws Error with the message of helm */
export function template(helm: string, release: string, ...args: readonly string[]): string {
  const outcome = run(helm, ['template', release, CHART, '--namespace', NAMESPACE, ...args]);
  if (outcome.code !== 0) throw new Error(outcome.stderr);
  return outcome.stdout;
}

export function manifestsOf(yaml: string): readonly Manifest[] {
  return parseAllDocuments(yaml, { uniqueKeys: true }).flatMap((document) => {
    const [problem] = document.errors;
    if (problem !== undefined) throw problem;
    const value = document.toJS() as Manifest | null;
    return value === null ? [] : [value];
  });
}

/** Returns the files of the kustomize bases: path in the repository, and content. */
export function kustomizeBases(helm: string): ReadonlyMap<string, string> {
  return new Map(
    BASES.flatMap((name) => {
      const folder = `deploy/kustomize/${name}`;
      return [
        [`${folder}/kustomization.yaml`, kustomization(name)],
        [`${folder}/resources.yaml`, resources(template(helm, 'tailcast', '-f', exampleFile(name)), name)],
      ] as const;
    }),
  );
}

function kustomization(name: string): string {
  const operator = name === 'operator';
  return [
    `# kubectl apply${operator ? ' --server-side' : ''} -k deploy/kustomize/${name}`,
    'apiVersion: kustomize.config.k8s.io/v1beta1',
    'kind: Kustomization',
    // The operator creates Events in other namespaces, so the kustomization sets no namespace for it.
    ...(operator ? [] : [`namespace: ${NAMESPACE}`]),
    operator ? 'resources: [../../crds, resources.yaml]' : 'resources: [resources.yaml]',
    '',
  ].join('\n');
}

/** Returns the resources without helm's `# Source` comments and without the label `managed-by: Helm`. */
function resources(rendered: string, name: string): string {
  const body = rendered
    .split('\n')
    .filter(
      (line) => !line.startsWith('# Source: ') && !/^\s+app\.kubernetes\.io\/managed-by: Helm$/.test(line),
    )
    .join('\n')
    .replace(/^---\n/, '');
  return `# Rendered from deploy/chart/tailcast with examples/${name}.yaml: node test/real/chart/render.ts\n${body}`;
}

if (import.meta.main) {
  const { helm = '' } = await ensurePeer('helm');
  for (const [path, content] of kustomizeBases(helm)) {
    mkdirSync(dirname(join(ROOT, path)), { recursive: true });
    writeFileSync(join(ROOT, path), content);
    process.stdout.write(`${path}\n`);
  }
}
