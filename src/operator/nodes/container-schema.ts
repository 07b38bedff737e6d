/** What the resources of several kinds may say of a container. The API server has validated core types already. */
import type { V1ResourceRequirements, V1SecurityContext } from '@kubernetes/client-node';
import { z } from 'zod';

/** A value of a core type, as it came. */
export const passed = <T>() => z.custom<T>().optional();

export const containerSchema = z.object({
  env: z.array(z.object({ name: z.string(), value: z.string().default('') })).default([]),
  image: z.string().default(''),
  imagePullPolicy: z.string().default(''),
  resources: passed<V1ResourceRequirements>(),
  securityContext: passed<V1SecurityContext>(),
});

export type ContainerWish = z.infer<typeof containerSchema>;
