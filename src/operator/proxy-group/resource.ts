/** The `ProxyGroup` custom resource (`tailscale.com/v1alpha1`) as the operator reads it. Schema: `deploy/crds/proxygroup.yaml`. */
import { z } from 'zod';
import type { KubeObject } from '../kube-object.ts';
import { conditionSchema, metadataSchema } from '../workload/schema.ts';

/** Annotations of a ProxyGroup that ask for what the resource has no field for. */
export const ANNOTATIONS = {
  /** Secret of type kubernetes.io/tls with the gateway's certificate, instead of what the tailnet issues. */
  tlsSecret: 'tailcast.dev/tls-secret',
  /** Settings of the gateway, a `NAME=value` a line; they win over those that the operator sets. */
  env: 'tailcast.dev/env',
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
  status: z
    .object({
      conditions: z.array(conditionSchema).default([]),
      devices: z
        .array(z.object({ hostname: z.string(), tailnetIPs: z.array(z.string()).optional() }))
        .default([]),
      url: z.string().optional(),
    })
    .prefault({}),
});

export type ProxyGroup = z.infer<typeof proxyGroupSchema>;

/**
 * Reads a ProxyGroup, with every default of the schema filled in.
 *
 * @throws ZodError when it is not one; the API server's validation comes first, so that means a foreign CRD.
 */
export function parseProxyGroup(object: unknown): ProxyGroup {
  return proxyGroupSchema.parse(object);
}

/** Gateways to this API server. */
export function isApiServerGroup({ spec }: ProxyGroup): boolean {
  return spec.type === 'kube-apiserver';
}

/** Services lead to the tailnet through these. */
export function isEgressGroup({ spec }: ProxyGroup): boolean {
  return spec.type === 'egress';
}

/** Services and Ingresses are reached from the tailnet through these. */
export function isIngressGroup({ spec }: ProxyGroup): boolean {
  return spec.type === 'ingress';
}

/** The ProxyClass that the nodes of a group follow; empty: the operator's default, or none. Gateways follow none. */
export function groupClassOf(object: KubeObject): string {
  const known = proxyGroupSchema.safeParse(object);
  return known.success ? known.data.spec.proxyClass : '';
}

/**
 * The settings of the gateway that the annotation names.
 *
 * @returns the line that cannot be understood, in `problem`.
 */
export function settingsOf({ metadata }: ProxyGroup): {
  readonly settings: ReadonlyMap<string, string>;
  readonly problem: string | undefined;
} {
  const settings = new Map<string, string>();
  const lines = (metadata.annotations[ANNOTATIONS.env] ?? '').split('\n').map((line) => line.trim());
  for (const line of lines.filter((one) => one !== '' && !one.startsWith('#'))) {
    const match = /^(TAILCAST_[A-Z0-9_]+)=(.*)$/.exec(line);
    if (match?.[1] === undefined)
      return { settings, problem: `${ANNOTATIONS.env}: not TAILCAST_…=value: ${line}` };
    settings.set(match[1], match[2] ?? '');
  }
  return { settings, problem: undefined };
}
