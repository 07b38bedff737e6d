import { flagOf, queryNumber, type ResourcePath } from './api-path.ts';
import { badRequest, invalid } from './api-status.ts';
import type { Container } from './container.ts';
import type { ApiExchange } from './exchange.ts';
import { writeLog, type LogQuery } from './logs.ts';
import type { PodRuntime, RunningPod } from './pod-runtime.ts';
import { PODS } from './resources.ts';
import type { Store } from './store.ts';

/**
 * Returns the container that a request names, or the only container of the pod. Throws a 400 error like the API server
 * if neither exists.
 */
export function chooseContainer(pod: RunningPod, name: string): Container {
  if (name !== '') {
    const found = [...pod.containers, ...pod.ephemeral].find(({ spec }) => spec.name === name);
    if (found === undefined) throw badRequest(`container ${name} is not valid for pod ${pod.name}`);
    return found;
  }
  const [only, ...others] = pod.containers;
  if (only === undefined || others.length > 0) {
    const names = pod.containers.map(({ spec }) => spec.name).join(' ');
    throw badRequest(`a container name must be specified for pod ${pod.name}, choose one of: [${names}]`);
  }
  return only;
}

/**
 * Returns the running pod that the path of a subresource names. Throws a 404 error if the pod does not exist, and a 400
 * error if it has not started.
 */
export function requireRunningPod(store: Store, runtime: PodRuntime, path: ResourcePath): RunningPod {
  store.require(PODS, path.namespace, path.name);
  const pod = runtime.find(path.namespace, path.name);
  if (pod === undefined) throw badRequest(`pod ${path.name} does not have a host assigned`);
  return pod;
}

/** Serves `GET …/pods/{name}/log`. Source: core/v1 PodLogOptions. */
export async function sendContainerLog(exchange: ApiExchange, pod: RunningPod, now: Date): Promise<void> {
  const { query, signal } = exchange;
  const container = chooseContainer(pod, query.get('container') ?? '');
  const previous = flagOf(query, 'previous');
  const log = container.log(previous);
  const { name } = container.spec;
  if (log === undefined) {
    throw badRequest(`previous terminated container "${name}" in pod "${pod.name}" not found`);
  }
  if (container.state.kind === 'waiting' && container.state.reason === 'ContainerCreating') {
    throw badRequest(`container "${name}" in pod "${pod.name}" is waiting to start: ContainerCreating`);
  }
  const options = parseLogQuery(query, now);
  const stream = exchange.stream('text/plain');
  await writeLog(log, options, (bytes) => stream.write(bytes), signal);
  stream.end();
}

function parseLogQuery(query: URLSearchParams, now: Date): LogQuery {
  const tailLines = queryNumber(query, 'tailLines');
  const limitBytes = queryNumber(query, 'limitBytes');
  const sinceSeconds = queryNumber(query, 'sinceSeconds');
  const sinceTime = Date.parse(query.get('sinceTime') ?? '');
  if ((tailLines ?? 0) < 0)
    throw invalid('PodLogOptions', '', 'tailLines', 'must be greater than or equal to 0');
  if (limitBytes !== undefined && limitBytes < 1) {
    throw invalid('PodLogOptions', '', 'limitBytes', 'must be greater than 0');
  }
  const since = sinceSeconds === undefined ? sinceTime : now.getTime() - sinceSeconds * 1000;
  return {
    follow: flagOf(query, 'follow'),
    timestamps: flagOf(query, 'timestamps'),
    tailLines,
    limitBytes,
    sinceMs: Number.isNaN(since) ? undefined : since,
  };
}
