/** What makes a Recorder invalid, beyond what its schema refuses. Pure. */
import { isAnnotationKey, type KubeObject } from '../kube-object.ts';
import { belongsTo, problemOfName } from '../nodes/node-group.ts';
import { recorderGroup } from './group.ts';
import { ANNOTATIONS, searchServerOf, storageOf, type Recorder } from './resource.ts';

/**
 * Why a Recorder cannot be deployed, or undefined. The texts are the reference's, where it has the field: people and dashboards know them.
 *
 * @param serviceAccount the ServiceAccount that has the wanted name, whoever made it.
 */
export function problemOf(
  recorder: Recorder,
  serviceAccount: KubeObject | undefined,
  namespace: string,
): string | undefined {
  const { enableUI, replicas } = recorder.spec;
  const nameProblem = problemOfName(recorder.metadata.name);
  if (nameProblem !== undefined) return nameProblem;
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
  const searchProblem = problemOfSearch(recorder);
  if (searchProblem !== undefined) return searchProblem;
  const group = recorderGroup(recorder, { defaultTags: [] });
  if (serviceAccount !== undefined && !belongsTo(group, serviceAccount)) {
    const { name } = group.account;
    const custom = name === recorder.metadata.name ? '' : 'custom ';
    return `${custom}ServiceAccount name "${name}" specified but conflicts with a pre-existing ServiceAccount in the ${namespace} namespace`;
  }
  return undefined;
}

/** What its recorder would refuse to start with. */
function problemOfSearch(recorder: Recorder): string | undefined {
  const server = searchServerOf(recorder);
  if (server === undefined) return undefined;
  const { searchUrl, searchCredentials, searchCa } = ANNOTATIONS;
  if (server.url === '') return `annotations ${searchCredentials} and ${searchCa} need ${searchUrl}`;
  const url = URL.parse(server.url);
  if (url === null || !/^https?:$/.test(url.protocol) || url.search !== '' || url.hash !== '')
    return `annotation ${searchUrl}: an http:// or https:// URL of a server is expected`;
  if (url.username !== '' || url.password !== '')
    return `annotation ${searchUrl} has a user or a password in it: put user:password into a Secret, and name that in ${searchCredentials}`;
  if (server.credentials !== undefined && url.protocol !== 'https:')
    return `annotation ${searchCredentials}: they would be readable on the way: ${searchUrl} must begin with https://`;
  return undefined;
}
