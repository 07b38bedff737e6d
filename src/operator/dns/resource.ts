/** Schema of the `DNSConfig` custom resource (`tailscale.com/v1alpha1`). CRD: `deploy/crds/dnsconfig.yaml`. */
import { z } from 'zod';
import { podFields, metadataSchema, statusSchema } from '../workload/schema.ts';

/** Annotations of a DNSConfig. */
export const DNS_ANNOTATIONS = {
  /**
   * `<namespace>/<name>` of CoreDNS's ConfigMap. With this annotation, the operator may change the Corefile in this
   * ConfigMap.
   */
  coreDns: 'tailcast.dev/coredns',
  /**
   * Annotation that the operator writes before it changes a ConfigMap. The value is the `<namespace>/<name>` of this
   * ConfigMap.
   */
  written: 'tailcast.dev/coredns-written',
} as const;

const dnsConfigSchema = z.object({
  metadata: metadataSchema,
  spec: z
    .object({
      nameserver: z
        .object({
          image: z.object({ repo: z.string().default(''), tag: z.string().default('') }).prefault({}),
          service: z.object({ clusterIP: z.string().default('') }).prefault({}),
          pod: z.object(podFields).prefault({}),
          replicas: z.number().int().min(0).default(1),
        })
        .prefault({}),
    })
    .prefault({}),
  status: statusSchema,
});

export type DnsConfig = z.infer<typeof dnsConfigSchema>;

/**
 * Parses a DNSConfig, with the defaults of the schema.
 *
 * @throws ZodError if the object is invalid. With tailcast's CRD, the API server rejects invalid objects, so this
 *   happens only with another version of the CRD
 */
export function parseDnsConfig(object: unknown): DnsConfig {
  return dnsConfigSchema.parse(object);
}
