/** A Recorder as a group of nodes. Pure. */
import { groupLabels, tagsOf, type NodeGroup, type SpecOptions } from '../nodes/node-group.ts';
import type { Recorder } from './resource.ts';

/** @param options `defaultTags` are those of Recorders that name none. */
export function recorderGroup(
  { metadata, spec }: Recorder,
  { defaultTags }: Pick<SpecOptions, 'defaultTags'>,
): NodeGroup {
  const { name, annotations } = spec.statefulSet.pod.serviceAccount;
  return {
    kind: 'Recorder',
    name: metadata.name,
    uid: metadata.uid,
    owned: true,
    replicas: spec.replicas,
    tags: tagsOf(spec.tags, defaultTags),
    labels: groupLabels('Recorder', metadata.name),
    account: { name: name === '' ? metadata.name : name, annotations, shared: false },
  };
}
