import { invalid } from './api-status.ts';
import { numberAt, objectAt, stringAt, stringMapAt, withValue, type Json, type ApiObject } from './json.ts';

/** Returns the `autoscaling/v1` Scale of a workload. */
export function readScale(object: ApiObject): ApiObject {
  const { name, namespace, uid, resourceVersion, creationTimestamp } = objectAt(object, 'metadata');
  const labels = [...stringMapAt(object, 'spec', 'selector', 'matchLabels')];
  return {
    kind: 'Scale',
    apiVersion: 'autoscaling/v1',
    metadata: { name, namespace, uid, resourceVersion, creationTimestamp },
    spec: { replicas: numberAt(object, 'spec', 'replicas') ?? 0 },
    status: {
      replicas: numberAt(object, 'status', 'replicas') ?? 0,
      selector: labels.map(([key, value]) => `${key}=${value}`).join(','),
    },
  };
}

/** Returns the workload with the number of replicas from a Scale. Throws a 422 error for an invalid number. */
export function writeScale(object: ApiObject, scale: Json): ApiObject {
  const replicas = numberAt(scale, 'spec', 'replicas') ?? 0;
  if (!Number.isInteger(replicas) || replicas < 0) {
    const name = stringAt(object, 'metadata', 'name');
    throw invalid(
      'Scale',
      name,
      'spec.replicas',
      `Invalid value: ${String(replicas)}: must be greater than or equal to 0`,
    );
  }
  return withValue(object, ['spec', 'replicas'], replicas);
}
