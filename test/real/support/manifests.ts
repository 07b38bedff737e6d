/** Applies the manifests of `deploy/` unchanged. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseAllDocuments } from 'yaml';
import type { Kubernetes } from '../rig/kubernetes.ts';

const deploy = join(import.meta.dirname, '../../../deploy');
interface KubernetesObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string; readonly namespace?: string };
}

const PLURALS: Readonly<Record<string, string>> = {
  CustomResourceDefinition: 'customresourcedefinitions',
  ServiceAccount: 'serviceaccounts',
  ClusterRole: 'clusterroles',
  ClusterRoleBinding: 'clusterrolebindings',
  ValidatingAdmissionPolicy: 'validatingadmissionpolicies',
  ValidatingAdmissionPolicyBinding: 'validatingadmissionpolicybindings',
};

function pathOf({ apiVersion, kind, metadata }: KubernetesObject): string {
  const base = apiVersion.includes('/') ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  const namespace = metadata.namespace === undefined ? '' : `/namespaces/${metadata.namespace}`;
  return `${base}${namespace}/${PLURALS[kind] ?? ''}`;
}

/** Creates the objects of a file below `deploy/`. */
export function applyManifest(cluster: Kubernetes, file: string): Promise<void> {
  return applyYaml(cluster, readFileSync(join(deploy, file), 'utf8'));
}

/** Creates the objects of a YAML text. */
export async function applyYaml(cluster: Kubernetes, yaml: string): Promise<void> {
  for (const document of parseAllDocuments(yaml)) {
    const object = document.toJS() as KubernetesObject;
    await cluster.api('POST', pathOf(object), object);
  }
}

export async function removeManifest(cluster: Kubernetes, file: string): Promise<void> {
  for (const document of parseAllDocuments(readFileSync(join(deploy, file), 'utf8'))) {
    const object = document.toJS() as KubernetesObject;
    await cluster.api('DELETE', `${pathOf(object)}/${object.metadata.name}`);
  }
}

/** Returns a token of the gateway's account from `deploy/rbac`, or of another account in its namespace. */
export async function accountToken(cluster: Kubernetes, account = 'tailcast-gateway'): Promise<string> {
  const path = `/api/v1/namespaces/tailcast/serviceaccounts/${account}/token`;
  const answer = (await cluster.api('POST', path, {
    apiVersion: 'authentication.k8s.io/v1',
    kind: 'TokenRequest',
    spec: {},
  })) as { status: { token: string } };
  return answer.status.token;
}
