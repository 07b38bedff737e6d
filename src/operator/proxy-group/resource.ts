/** Schema of the `ProxyGroup` custom resource (`tailscale.com/v1alpha1`). CRD: `deploy/crds/proxygroup.yaml`. */
import { z } from 'zod';
import type { KubeObject } from '../kube-object.ts';
import { problemOfListeners } from '../workload/pod-specs.ts';
import { metadataSchema, statusSchema } from '../workload/schema.ts';

/** Annotations for settings without a field in the ProxyGroup. */
export const ANNOTATIONS = {
  /** Secret of type kubernetes.io/tls with the gateway's certificate. Default: a certificate from the tailnet. */
  tlsSecret: 'tailcast.dev/tls-secret',
  /** Settings of the gateway, one `NAME=value` per line. These settings override settings that the operator chooses. */
  env: 'tailcast.dev/env',
  /** Label selector of Secrets in the operator's namespace that describe additional clusters. */
  clusters: 'tailcast.dev/clusters',
} as const;

const proxyGroupSchema = z.object({
  metadata: metadataSchema,
  spec: z.object({
    type: z.string(),
    replicas: z.number().int().min(0).default(2),
    tags: z.array(z.string()).default([]),
    hostnamePrefix: z.string().default(''),
    proxyClass: z.string().default(''),
    tailnet: z.string().default(''),
    kubeAPIServer: z
      .object({ mode: z.enum(['auth', 'noauth']).default('auth'), hostname: z.string().default('') })
      .prefault({}),
  }),
  status: statusSchema,
});

export type ProxyGroup = z.infer<typeof proxyGroupSchema>;

/**
 * Parses a ProxyGroup, with the defaults of the schema.
 *
 * @throws ZodError if the cluster has another version of the CRD; with tailcast's CRD, the API server rejects invalid
 *   objects
 */
export function parseProxyGroup(object: unknown): ProxyGroup {
  return proxyGroupSchema.parse(object);
}

/** Returns true for groups of type kube-apiserver, whose nodes are gateways for the API server of this cluster. */
export function isApiServerGroup({ spec }: ProxyGroup): boolean {
  return spec.type === 'kube-apiserver';
}

/** Returns true for groups of type egress, through which Services connect to the tailnet. */
export function isEgressGroup({ spec }: ProxyGroup): boolean {
  return spec.type === 'egress';
}

/** Returns true for groups of type ingress, which expose Services and Ingresses to the tailnet. */
export function isIngressGroup({ spec }: ProxyGroup): boolean {
  return spec.type === 'ingress';
}

/**
 * Returns the name of the ProxyClass in the spec of a group; empty for none. Groups of type `kube-apiserver` ignore
 * their ProxyClass.
 */
export function groupClassOf(object: KubeObject): string {
  const known = proxyGroupSchema.safeParse(object);
  return known.success ? known.data.spec.proxyClass : '';
}

/**
 * Parses the gateway settings in the annotation.
 *
 * @returns `problem` with the invalid line, if any
 */
export function settingsOf({ metadata }: ProxyGroup) {
  const settings = new Map<string, string>();
  const lines = (metadata.annotations[ANNOTATIONS.env] ?? '').split('\n').map((line) => line.trim());
  for (const line of lines.filter((one) => one !== '' && !one.startsWith('#'))) {
    const match = /^(TAILCAST_[A-Z0-9_]+)=(.*)$/.exec(line);
    if (match?.[1] === undefined)
      return { settings, problem: `${ANNOTATIONS.env}: not TAILCAST_…=value: ${line}` };
    settings.set(match[1], match[2] ?? '');
  }
  const problem = problemOfListeners(settings);
  return { settings, problem: problem === undefined ? undefined : `${ANNOTATIONS.env}: ${problem}` };
}
