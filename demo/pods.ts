import { timestamp } from './container.ts';
import type { ClusterEvents } from './event-recorder.ts';
import { identify, numberAt, objectAt, equalJson, stringAt, withValue, type ApiObject } from './json.ts';
import type { PodRuntime } from './pod-runtime.ts';
import { isStored, NAMESPACES, PODS, RESOURCES } from './resources.ts';
import type { Store } from './store.ts';

const DEFAULT_GRACE_SECONDS = 30;

/** Synchronises the pods of the store with the runtime, and stops deleted pods. */
export class PodController {
  readonly #store: Store;
  readonly #runtime: () => PodRuntime;
  readonly #events: ClusterEvents;
  readonly #now: () => Date;

  /** @param runtime returns the runtime; a function, because the runtime is created after this controller */
  constructor(store: Store, runtime: () => PodRuntime, events: ClusterEvents, now: () => Date) {
    this.#store = store;
    this.#runtime = runtime;
    this.#events = events;
    this.#now = now;
  }

  /** Starts a new pod. */
  started(pod: ApiObject): void {
    const { namespace, name } = identify(pod);
    if (this.#runtime().start(pod) === undefined) {
      this.#events.record(pod, 'FailedScheduling', '0/1 nodes are available: 1 Too many pods.', 'Warning');
      return;
    }
    const node = stringAt(pod, 'spec', 'nodeName');
    this.#events.record(pod, 'Scheduled', `Successfully assigned ${namespace}/${name} to ${node}`);
    this.#events.record(pod, 'Created', 'Created the containers');
    this.#events.record(pod, 'Started', 'Started the containers');
    this.publish(namespace, name);
  }

  /** Starts new ephemeral containers of a changed pod. */
  updated(pod: ApiObject): void {
    const { namespace, name } = identify(pod);
    this.#runtime().refresh(pod);
    this.publish(namespace, name);
  }

  /** Copies the status of a pod from the runtime to the store. */
  publish(namespace: string, name: string): void {
    const running = this.#runtime().find(namespace, name);
    const stored = this.#store.get(PODS, namespace, name);
    if (running === undefined || stored === undefined || identify(stored).uid !== running.uid) return;
    this.#store.update(PODS, namespace, name, (current) => {
      const status = running.status();
      return equalJson(current['status'], status) ? current : { ...current, status };
    });
  }

  /**
   * Deletes a pod. The deletion is immediate if there is no grace period or the pod has exited; otherwise the deletion
   * waits until the pod's programs have exited. Returns the last stored state of the pod. Throws 404.
   */
  deletePod(namespace: string, name: string, graceSeconds?: number): ApiObject {
    const pod = this.#store.require(PODS, namespace, name);
    const ended = ['Succeeded', 'Failed'].includes(stringAt(pod, 'status', 'phase'));
    const asked =
      graceSeconds ?? numberAt(pod, 'spec', 'terminationGracePeriodSeconds') ?? DEFAULT_GRACE_SECONDS;
    const grace = ended ? 0 : Math.max(0, asked);
    const stopped = this.#runtime().stop(namespace, name, grace * 1000);
    if (grace === 0) {
      this.#forget(pod);
      return pod;
    }
    if (stringAt(pod, 'metadata', 'deletionTimestamp') !== '') return pod;
    this.#events.record(pod, 'Killing', 'Stopping container');
    const deadline = timestamp(new Date(this.#now().getTime() + grace * 1000));
    const terminating = this.#store.update(PODS, namespace, name, (current) =>
      withValue(
        withValue(current, ['metadata', 'deletionTimestamp'], deadline),
        ['metadata', 'deletionGracePeriodSeconds'],
        grace,
      ),
    );
    void stopped.then(() => {
      this.#forget(pod);
    });
    return terminating;
  }

  /** Deletes the content of a namespace, and then the namespace. Returns its state. Throws 404. */
  deleteNamespace(name: string): ApiObject {
    const marked = this.#store.update(NAMESPACES, '', name, (current) => ({
      ...withValue(current, ['metadata', 'deletionTimestamp'], timestamp(this.#now())),
      status: { ...objectAt(current, 'status'), phase: 'Terminating' },
    }));
    const pods = this.#store.list(PODS, name).map((pod) => {
      const podName = identify(pod).name;
      this.deletePod(name, podName);
      return this.#runtime().stop(name, podName, DEFAULT_GRACE_SECONDS * 1000);
    });
    void Promise.all(pods).then(() => {
      this.#empty(name);
    });
    return marked;
  }

  #empty(namespace: string): void {
    for (const resource of RESOURCES.filter((candidate) => candidate.namespaced && isStored(candidate))) {
      for (const object of this.#store.list(resource, namespace)) {
        this.#store.remove(resource, namespace, identify(object).name);
      }
    }
    if (this.#store.get(NAMESPACES, '', namespace) !== undefined)
      this.#store.remove(NAMESPACES, '', namespace);
  }

  #forget(pod: ApiObject): void {
    const { namespace, name, uid } = identify(pod);
    const stored = this.#store.get(PODS, namespace, name);
    if (stored !== undefined && identify(stored).uid === uid) this.#store.remove(PODS, namespace, name);
  }
}
