/** Installs `deploy/` for the operator into a cluster of the rig, and runs the operator from the sources. */
import { execFile } from 'node:child_process';
import { mkdirSync, readFileSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseAllDocuments } from 'yaml';
import { readManifest } from '../../../scripts/release/project.ts';
import { ensurePeer } from '../rig/build.ts';
import type { Kubernetes } from '../rig/kubernetes.ts';
import type { Program, Rig } from '../rig/rig.ts';

const root = fileURLToPath(new URL('../../../', import.meta.url));
export const NAMESPACE = 'tailcast';

/** tailcast rejects unknown `TAILCAST_` variables, so the rig's marker is removed. */
const WITHOUT_MARKER = ['-u', 'TAILCAST_RIG'] as const;

interface Manifest {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
}

const PLURALS: Readonly<Record<string, string>> = {
  ServiceAccount: 'serviceaccounts',
  ClusterRole: 'clusterroles',
  ClusterRoleBinding: 'clusterrolebindings',
  Role: 'roles',
  RoleBinding: 'rolebindings',
  CustomResourceDefinition: 'customresourcedefinitions',
  StatefulSet: 'statefulsets',
  Secret: 'secrets',
  IngressClass: 'ingressclasses',
  GatewayClass: 'gatewayclasses',
};

/** @param file relative to the repository, or absolute */
export function manifests(file: string): readonly Manifest[] {
  return parseAllDocuments(readFileSync(resolve(root, file), 'utf8')).map(
    (document) => document.toJS() as Manifest,
  );
}

export function create(cluster: Kubernetes, manifest: Manifest, query = ''): Promise<unknown> {
  const { apiVersion, kind, metadata } = manifest;
  const base = apiVersion === 'v1' ? '/api/v1' : `/apis/${apiVersion}`;
  const scope = metadata.namespace === undefined ? '' : `/namespaces/${metadata.namespace}`;
  return cluster.api('POST', `${base}${scope}/${PLURALS[kind]}${query}`, manifest);
}

/** Installs the shipped CRDs and RBAC. Returns a kubeconfig of the operator's account. */
export async function install(rig: Rig, cluster: Kubernetes): Promise<{ readonly kubeconfig: string }> {
  for (const name of readdirSync(resolve(root, 'deploy/crds')).filter(
    (file) => file !== 'kustomization.yaml',
  )) {
    for (const manifest of manifests(`deploy/crds/${name}`)) await create(cluster, manifest);
  }
  for (const manifest of manifests('deploy/rbac/operator.yaml')) await create(cluster, manifest);
  await rig.until('the APIs', async () => {
    for (const plural of [
      'recorders',
      'tailnets',
      'proxygroups',
      'proxygrouppolicies',
      'connectors',
      'proxyclasses',
      'dnsconfigs',
    ]) {
      await cluster.api('GET', `/apis/tailscale.com/v1alpha1/${plural}`);
    }
    return true;
  });
  return { kubeconfig: await accountKubeconfig(cluster, 'tailcast-operator') };
}

/** Returns the CRDs of the Gateway API's standard channel, from its Go module. */
export async function gatewayApiCrds(): Promise<readonly Manifest[]> {
  const { crds = '' } = await ensurePeer('gateway-api');
  return ['gatewayclasses', 'gateways', 'httproutes'].flatMap((plural) =>
    manifests(join(crds, `gateway.networking.k8s.io_${plural}.yaml`)),
  );
}

/** Returns a kubeconfig with a token of an account in {@link NAMESPACE}. */
export async function accountKubeconfig(cluster: Kubernetes, name: string): Promise<string> {
  const path = `/api/v1/namespaces/${NAMESPACE}/serviceaccounts/${name}/token`;
  const answer = (await cluster.api('POST', path, {
    apiVersion: 'authentication.k8s.io/v1',
    kind: 'TokenRequest',
    spec: { expirationSeconds: 24 * 3600 },
  })) as { status: { token: string } };
  return cluster.kubeconfig(name, { token: answer.status.token });
}

/** Options of the operator and its doctor. */
export interface OperatorOptions {
  readonly kubeconfig: string;
  readonly controlUrl: string;
  readonly apiKey: string;
  readonly name?: string;
  readonly leaderElection?: boolean;
  /** True to run the built operator instead of the sources, for measurements of its resource usage. */
  readonly isBuilt?: boolean;
  readonly more?: readonly string[];
}

/** Runs the operator with headscale and short intervals. */
export function launchOperator(rig: Rig, options: OperatorOptions): Program {
  return rig.launch({
    name: options.name ?? 'operator',
    path: 'env',
    args: [
      ...operatorCommand(rig, ['operator'], options),
      '--ops-listen=off',
      '--log-level=debug',
      ...(options.more ?? []),
    ],
  });
}

/** Returns the report of the doctor under the operator's account. */
export async function examineOperator(
  rig: Rig,
  options: OperatorOptions,
): Promise<{
  readonly code: number;
  readonly statuses: Readonly<Record<string, string>>;
  readonly text: string;
}> {
  const command = [
    ...operatorCommand(rig, ['doctor', 'operator', '--json'], options),
    ...(options.more ?? []),
  ];
  const { code, text, problem } = await new Promise<{ code: number; text: string; problem: string }>((done) =>
    // The operator must not see the variables of the suite.
    execFile('env', ['-i', ...command], { encoding: 'utf8', timeout: 60_000 }, (error, stdout, stderr) =>
      done({ code: error === null ? 0 : Number(error.code), text: stdout, problem: stderr }),
    ),
  );
  if (text === '') throw new Error(`the doctor ended with ${code}: ${problem}`);
  const { checks } = JSON.parse(text) as { checks: { id: string; status: string }[] };
  return { code, statuses: Object.fromEntries(checks.map(({ id, status }) => [id, status])), text };
}

function operatorCommand(rig: Rig, role: readonly string[], options: OperatorOptions): string[] {
  const credentials = join(rig.folder, `${options.name ?? 'operator'}-credentials`);
  mkdirSync(credentials, { recursive: true });
  writeFileSync(join(credentials, 'api_key'), options.apiKey, { mode: 0o600 });
  return [
    ...WITHOUT_MARKER,
    process.execPath,
    join(root, options.isBuilt === true ? 'dist/main.js' : 'src/main.ts'),
    ...role,
    `--kubeconfig=${options.kubeconfig}`,
    `--namespace=${NAMESPACE}`,
    '--control=headscale',
    `--control-url=${options.controlUrl}`,
    `--credentials=${credentials}`,
    `--lease=${options.leaderElection === true ? 'tailcast-operator' : 'off'}`,
  ];
}

/**
 * Returns the commands that the kubelet double runs instead of images. The commands refer to this repository through a
 * link in the rig's folder. Without the link, the double would replace the repository's path if it is below `/tmp` and
 * a pod mounts `/tmp`.
 */
export function imageCommands(rig: Rig, tailscaled: string): Readonly<Record<string, readonly string[]>> {
  const linked = linkRepository(rig);
  const script = (name: string): string => linked(fileURLToPath(new URL(`${name}.ts`, import.meta.url)));
  const node = linked(process.execPath);
  return {
    // The kubelet double replaces this path with the folder of the ServiceAccount.
    'tailscale/tailscale': [
      node,
      script('tailscale-container'),
      tailscaled,
      '/var/run/secrets/kubernetes.io/serviceaccount',
    ],
    ...ownCommand(linked),
    'tailcast/stand-in': [node, script('recorder-container')],
  };
}

/** Like {@link imageCommands}, but returns only the command for tailcast's image. */
export function ownImage(rig: Rig): Readonly<Record<string, readonly string[]>> {
  return ownCommand(linkRepository(rig));
}

function ownCommand(linked: (path: string) => string): Readonly<Record<string, readonly string[]>> {
  const argv = ['env', ...WITHOUT_MARKER, linked(process.execPath), linked(join(root, 'src/main.ts'))];
  return { [readManifest().publishing.image]: argv };
}

/** @returns a function that turns a path of this repository into a path through the link */
function linkRepository(rig: Rig): (path: string) => string {
  const link = join(rig.folder, 'repository');
  symlinkSync(root, link);
  return (path) => (path.startsWith(root) ? join(link, path.slice(root.length)) : path);
}
