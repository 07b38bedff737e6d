/** What makes a Recorder invalid, beyond what its schema refuses. Pure. */
import { isAnnotationKey, type KubeObject } from '../kube-object.ts';
import { belongsTo } from '../nodes/node-group.ts';
import { recorderGroup } from './group.ts';
import { storageOf, type Recorder } from './resource.ts';

/**
 * Why a Recorder cannot be deployed, or undefined. The texts are the reference's: people and dashboards know them.
 *
 * @param serviceAccount the ServiceAccount that has the wanted name, whoever made it.
 */
export function problemOf(
  recorder: Recorder,
  serviceAccount: KubeObject | undefined,
  namespace: string,
): string | undefined {
  const { enableUI, replicas } = recorder.spec;
  const storage = storageOf(recorder);
  if (!enableUI && storage.kind === 'scratch') {
    return 'must either enable UI or use S3 storage to ensure recordings are accessible';
  }
  if (replicas > 1 && storage.kind !== 's3') {
    return 'must use S3 storage when using multiple replicas to ensure recordings are accessible';
  }
  const bad = Object.keys(recorder.spec.statefulSet.pod.serviceAccount.annotations).find(
    (key) => !isAnnotationKey(key),
  );
  if (bad !== undefined) {
    return `spec.statefulSet.pod.serviceAccount.annotations: Invalid value: ${JSON.stringify(bad)}: not an annotation key (an optional DNS prefix and "/", then at most 63 letters, digits, "-", "_" or ".")`;
  }
  const group = recorderGroup(recorder, { defaultTags: [] });
  if (serviceAccount !== undefined && !belongsTo(group, serviceAccount)) {
    const { name } = group.account;
    const custom = name === recorder.metadata.name ? '' : 'custom ';
    return `${custom}ServiceAccount name "${name}" specified but conflicts with a pre-existing ServiceAccount in the ${namespace} namespace`;
  }
  return undefined;
}
