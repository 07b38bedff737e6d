/** The `DNSConfig` custom resource (`tailscale.com/v1alpha1`) as the operator reads it. Schema: `deploy/crds/dnsconfig.yaml`. */
import type { V1Affinity, V1LocalObjectReference, V1Toleration } from '@kubernetes/client-node';
import { z } from 'zod';
import { passed, conditionSchema, metadataSchema } from '../workload/schema.ts';

/** What people write on a DNSConfig. */
export const DNS_ANNOTATIONS = {
  /** `<namespace>/<name>` of the ConfigMap with CoreDNS's Corefile, into which the operator is to write. */
  coreDns: 'tailcast.dev/coredns',
  /** Ours: the one that we have written into. */
  written: 'tailcast.dev/coredns-written',
} as const;

const dnsConfigSchema = z.object({
  metadata: metadataSchema.extend({ creationTimestamp: z.string().default('') }),
  spec: z
    .object({
      nameserver: z
        .object({
          image: z.object({ repo: z.string().default(''), tag: z.string().default('') }).prefault({}),
          service: z.object({ clusterIP: z.string().default('') }).prefault({}),
          pod: z
            .object({
              tolerations: passed<V1Toleration[]>(),
              affinity: passed<V1Affinity>(),
              imagePullSecrets: passed<V1LocalObjectReference[]>(),
              nodeSelector: z.record(z.string(), z.string()).optional(),
            })
            .prefault({}),
          replicas: z.number().int().min(0).default(1),
        })
        .prefault({}),
    })
    .prefault({}),
  status: z
    .object({
      conditions: z.array(conditionSchema).default([]),
      nameserver: z.object({ ip: z.string().default('') }).prefault({}),
    })
    .prefault({}),
});

export type DnsConfig = z.infer<typeof dnsConfigSchema>;

/**
 * Reads a DNSConfig, with every default of the schema filled in.
 *
 * @throws ZodError when it is not one; the API server's validation comes first, so that means a foreign CRD.
 */
export function parseDnsConfig(object: unknown): DnsConfig {
  return dnsConfigSchema.parse(object);
}
