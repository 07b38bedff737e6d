/** The `Connector` custom resource (`tailscale.com/v1alpha1`) as the operator reads it. Schema: `deploy/crds/connector.yaml`. */
import { z } from 'zod';
import type { KubeObject } from '../kube-object.ts';
import { conditionSchema, metadataSchema } from '../nodes/resource-parts.ts';

const connectorSchema = z.object({
  metadata: metadataSchema,
  spec: z
    .object({
      replicas: z.number().int().min(0).default(1),
      tags: z.array(z.string()).default([]),
      hostname: z.string().default(''),
      hostnamePrefix: z.string().default(''),
      proxyClass: z.string().default(''),
      tailnet: z.string().default(''),
      subnetRouter: z.object({ advertiseRoutes: z.array(z.string()).default([]) }).optional(),
      exitNode: z.boolean().default(false),
      appConnector: z.object({ routes: z.array(z.string()).default([]) }).optional(),
    })
    .prefault({}),
  status: z
    .object({
      conditions: z.array(conditionSchema).default([]),
      subnetRoutes: z.string().default(''),
      isExitNode: z.boolean().default(false),
      isAppConnector: z.boolean().default(false),
      hostname: z.string().default(''),
      tailnetIPs: z.array(z.string()).default([]),
      devices: z
        .array(z.object({ hostname: z.string(), tailnetIPs: z.array(z.string()).optional() }))
        .default([]),
    })
    .prefault({}),
});

export type Connector = z.infer<typeof connectorSchema>;

/**
 * Reads a Connector, with every default of the schema filled in.
 *
 * @throws ZodError when it is not one; the API server's validation comes first, so that means a foreign CRD.
 */
export function parseConnector(object: unknown): Connector {
  return connectorSchema.parse(object);
}

/** The class that a Connector follows; empty: none. The operator's default is for Services alone. */
export function connectorClassOf(object: KubeObject): string {
  const known = connectorSchema.safeParse(object);
  return known.success ? known.data.spec.proxyClass : '';
}
