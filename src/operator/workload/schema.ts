/** Common schemas of all resources. */
import type {
  V1Affinity,
  V1LocalObjectReference,
  V1ResourceRequirements,
  V1SecurityContext,
  V1Toleration,
} from '@kubernetes/client-node';
import { z } from 'zod';

export const textMap = z.record(z.string(), z.string()).default({});

/** Returns the schema of a list that may be null, because Go writes empty lists as null. */
export function nullableList<Item extends z.ZodType>(item: Item) {
  return z
    .array(item)
    .nullish()
    .transform((items) => items ?? []);
}

export const metadataSchema = z.object({
  name: z.string(),
  namespace: z.string().optional(),
  uid: z.string(),
  resourceVersion: z.string().default(''),
  generation: z.number().default(0),
  labels: textMap,
  annotations: textMap,
  finalizers: z.array(z.string()).default([]),
  creationTimestamp: z.string().default(''),
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

/**
 * Schema of a status: only the conditions are parsed. Other fields are kept, so that the operator can compare them with
 * the new status and skip an unnecessary write.
 */
export const statusSchema = z.looseObject({ conditions: z.array(conditionSchema).default([]) }).prefault({});

/**
 * Schema for a value of a Kubernetes type, which is passed on unchanged, because the API server has already validated
 * it.
 */
export const passed = <T>() => z.custom<T>().optional();

/** Settings of pods in all custom resources. */
export const podFields = {
  affinity: passed<V1Affinity>(),
  imagePullSecrets: passed<V1LocalObjectReference[]>(),
  nodeSelector: z.record(z.string(), z.string()).optional(),
  tolerations: passed<V1Toleration[]>(),
};

export const containerSchema = z.object({
  env: z.array(z.object({ name: z.string(), value: z.string().default('') })).default([]),
  image: z.string().default(''),
  imagePullPolicy: z.string().default(''),
  resources: passed<V1ResourceRequirements>(),
  securityContext: passed<V1SecurityContext>(),
});

export type ContainerOverrides = z.infer<typeof containerSchema>;
