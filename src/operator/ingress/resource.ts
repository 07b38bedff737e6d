/** Schema of Ingresses (`networking.k8s.io/v1`), and selection of the operator's Ingresses. */
import { z } from 'zod';
import { FINALIZER, isDnsLabel, type KubeObject } from '../kube-object.ts';
import { nullableList, metadataSchema } from '../workload/schema.ts';
import { dnsLabel } from '../workload/workload.ts';
import { groupIn } from '../service/predicates.ts';

/** Name of the operator's IngressClass. */
export const INGRESS_CLASS = 'tailscale';
/** Controller name in the IngressClass of the operator. */
export const INGRESS_CONTROLLER = 'tailscale.com/ts-ingress';

/** Annotations that only Ingresses support. Ingresses also support some of the annotations of Services. */
export const INGRESS_ANNOTATIONS = {
  redirect: 'tailscale.com/http-redirect',
  funnel: 'tailscale.com/funnel',
  /** `enabled`: HTTP is served in addition to HTTPS. Only Ingresses of a ProxyGroup support this annotation. */
  http: 'tailscale.com/http-endpoint',
} as const;

const backendSchema = z.object({
  service: z
    .object({
      name: z.string(),
      port: z.object({ name: z.string().default(''), number: z.number().default(0) }).prefault({}),
    })
    .optional(),
});

const pathSchema = z.object({
  path: z.string().default(''),
  pathType: z.string().default('ImplementationSpecific'),
  backend: backendSchema,
});

const ingressSchema = z.object({
  metadata: metadataSchema,
  spec: z
    .object({
      ingressClassName: z.string().default(''),
      defaultBackend: backendSchema.optional(),
      rules: nullableList(
        z.object({
          host: z.string().default(''),
          http: z.object({ paths: z.array(pathSchema).default([]) }).optional(),
        }),
      ),
      tls: nullableList(z.object({ hosts: nullableList(z.string()), secretName: z.string().default('') })),
    })
    .prefault({}),
  status: z
    .object({ loadBalancer: z.object({ ingress: z.array(z.looseObject({})).default([]) }).prefault({}) })
    .prefault({}),
});

export type Ingress = z.infer<typeof ingressSchema>;
export type IngressBackend = z.infer<typeof backendSchema>;

/** @throws ZodError for an invalid Ingress */
export function parseIngress(object: unknown): Ingress {
  return ingressSchema.parse(object);
}

/** True if the Ingress gets its own proxy. Ingresses of a ProxyGroup use the nodes of the group instead. */
export function hasOwnProxy({ metadata, spec }: Ingress): boolean {
  return spec.ingressClassName === INGRESS_CLASS && groupIn(metadata.annotations) === '';
}

/** True if the Ingress has the operator's IngressClass or finalizer. */
export function isIngressOfInterest(object: KubeObject): boolean {
  const { metadata, spec } = parseIngress(object);
  return spec.ingressClassName === INGRESS_CLASS || metadata.finalizers.includes(FINALIZER);
}

/** Returns the names of the Services that an Ingress uses as backends. */
export function backendNames({ spec }: Ingress): readonly string[] {
  const paths = spec.rules.flatMap(({ http }) => http?.paths ?? []);
  const backends = [spec.defaultBackend, ...paths.map(({ backend }) => backend)];
  return [...new Set(backends.flatMap((backend) => backend?.service?.name ?? []))];
}

/**
 * Returns the hostname of the node: the first label of the first host in `spec.tls`, otherwise a name that contains
 * namespace and name.
 */
export function hostnameOf({ metadata, spec }: Ingress): string {
  const [label = ''] = (spec.tls[0]?.hosts[0] ?? '').toLowerCase().split('.');
  if (isDnsLabel(label)) return label;
  return dnsLabel(`${metadata.namespace ?? ''}-${metadata.name}-ingress`);
}
