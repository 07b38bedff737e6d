/** Schema of the `ProxyClass` custom resource (`tailscale.com/v1alpha1`). CRD: `deploy/crds/proxyclass.yaml`. */
import type {
  V1PodDNSConfig,
  V1PodSecurityContext,
  V1TopologySpreadConstraint,
} from '@kubernetes/client-node';
import { z } from 'zod';
import {
  containerSchema,
  passed,
  podFields,
  metadataSchema,
  statusSchema,
  textMap,
} from '../workload/schema.ts';

const tailscaleContainerSchema = containerSchema.extend({
  debug: z.object({ enable: z.boolean().default(false) }).prefault({}),
});

const podSchema = z.object({
  ...podFields,
  labels: textMap,
  annotations: textMap,
  securityContext: passed<V1PodSecurityContext>(),
  nodeName: z.string().optional(),
  topologySpreadConstraints: passed<V1TopologySpreadConstraint[]>(),
  priorityClassName: z.string().optional(),
  dnsPolicy: z.string().optional(),
  dnsConfig: passed<V1PodDNSConfig>(),
  tailscaleContainer: tailscaleContainerSchema.prefault({}),
  tailscaleInitContainer: containerSchema.prefault({}),
});

const proxyClassSchema = z.object({
  metadata: metadataSchema,
  spec: z
    .object({
      statefulSet: z
        .object({ labels: textMap, annotations: textMap, pod: podSchema.prefault({}) })
        .prefault({}),
      metrics: z
        .object({
          enable: z.boolean().default(false),
          serviceMonitor: z.object({ enable: z.boolean().default(false), labels: textMap }).prefault({}),
        })
        .prefault({}),
      tailscale: z.object({ acceptRoutes: z.boolean().default(false) }).prefault({}),
      useLetsEncryptStagingEnvironment: z.boolean().default(false),
      staticEndpoints: z.custom<object>().optional(),
    })
    .prefault({}),
  status: statusSchema,
});

export type ProxyClass = z.infer<typeof proxyClassSchema>;

/** Type of the condition of a valid ProxyClass. Proxies that use the class wait for this condition. */
export const READY = 'ProxyClassReady';

/**
 * Parses a ProxyClass, with the defaults of the schema.
 *
 * @throws ZodError if the cluster has another version of the CRD; with tailcast's CRD, the API server rejects invalid
 *   objects
 */
export function parseProxyClass(object: unknown): ProxyClass {
  return proxyClassSchema.parse(object);
}

/** True if the operator has found the current generation valid. */
export function isReady({ metadata, status }: ProxyClass): boolean {
  const condition = status.conditions.find(({ type }) => type === READY);
  return condition?.status === 'True' && (condition.observedGeneration ?? 0) >= metadata.generation;
}
