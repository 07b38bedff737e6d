/** What the resources of all kinds have in common, as schemas. */
import { z } from 'zod';

export const textMap = z.record(z.string(), z.string()).default({});

export const metadataSchema = z.object({
  name: z.string(),
  namespace: z.string().optional(),
  uid: z.string(),
  resourceVersion: z.string().default(''),
  generation: z.number().default(0),
  labels: textMap,
  annotations: textMap,
  finalizers: z.array(z.string()).default([]),
  deletionTimestamp: z.string().optional(),
});

export const conditionSchema = z.object({
  type: z.string(),
  status: z.string(),
  reason: z.string(),
  message: z.string(),
  lastTransitionTime: z.string(),
  observedGeneration: z.number().optional(),
});
