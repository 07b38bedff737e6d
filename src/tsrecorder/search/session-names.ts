/** What an index knows a recording by. Pure. */
import type { SessionNames } from '../../search/search-index.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';

export function sessionNames(recording: Recording): SessionNames {
  const { id, startedAt, source, destination, kubernetes, kind, state, command, durationSeconds, exitCode } =
    recording;
  const startedAtMs = Date.parse(startedAt);
  return {
    id,
    startedAtMs: Number.isNaN(startedAtMs) ? 0 : startedAtMs,
    ...(source.user === undefined ? {} : { user: source.user }),
    tags: source.tags ?? [],
    ...(kubernetes === undefined
      ? {}
      : { namespace: kubernetes.namespace, pod: kubernetes.pod, container: kubernetes.container }),
    nodes: [source.node, source.nodeId, destination.node, destination.nodeId].filter((name) => name !== ''),
    kind,
    state: state === 'open' ? 'running' : state,
    ...(command === undefined ? {} : { command }),
    ...(durationSeconds === undefined ? {} : { durationSeconds }),
    ...(exitCode === undefined ? {} : { exitCode }),
  };
}
