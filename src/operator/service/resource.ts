/** Schema of the core Service. Objects in the cache contain only some of the fields. */
import { z } from 'zod';
import { conditionSchema, metadataSchema, nullableList } from '../workload/schema.ts';

const ingressSchema = z.looseObject({ hostname: z.string().optional(), ip: z.string().optional() });

const serviceSchema = z.object({
  metadata: metadataSchema,
  spec: z
    .object({
      type: z.string().default('ClusterIP'),
      clusterIP: z.string().default(''),
      clusterIPs: z.array(z.string()).default([]),
      externalName: z.string().default(''),
      loadBalancerClass: z.string().optional(),
      selector: z.record(z.string(), z.string()).nullish(),
      ports: nullableList(
        z.object({
          name: z.string().default(''),
          port: z.number(),
          protocol: z.string().default('TCP'),
          appProtocol: z.string().default(''),
        }),
      ),
    })
    .prefault({}),
  status: z
    .object({
      conditions: z.array(conditionSchema).default([]),
      loadBalancer: z.object({ ingress: z.array(ingressSchema).default([]) }).prefault({}),
    })
    .prefault({}),
});

export type Service = z.infer<typeof serviceSchema>;
export type LoadBalancerIngress = z.infer<typeof ingressSchema>;

/** @throws ZodError for an invalid Service */
export function parseService(object: unknown): Service {
  return serviceSchema.parse(object);
}
