import { createHash } from 'node:crypto';
import {
  arrayAt,
  identify,
  numberAt,
  objectAt,
  equalJson,
  stringAt,
  withValue,
  type ApiObject,
} from './json.ts';
import { prepareCreate } from './objects.ts';
import type { PodController } from './pods.ts';
import { summarizePod } from './pod-summary.ts';
import { isStored, PODS, requireResource, RESOURCES, type Resource } from './resources.ts';
import type { Store } from './store.ts';

const DEPLOYMENTS = requireResource('apps', 'deployments');
const REPLICA_SETS = requireResource('apps', 'replicasets');

/**
 * The controllers of Deployments and ReplicaSets. The controllers create a ReplicaSet for the template of each
 * Deployment, and the pods of each ReplicaSet. The controllers also delete objects whose owners were all deleted.
 * Rolling updates replace all pods at once.
 */
export class WorkloadController {
  readonly #store: Store;
  readonly #pods: PodController;
  readonly #now: () => Date;
  #scheduled = false;

  constructor(store: Store, pods: PodController, now: () => Date) {
    this.#store = store;
    this.#pods = pods;
    this.#now = now;
  }

  /** Schedules a reconciliation. Call this function after every change of the store. */
  changed(): void {
    if (this.#scheduled) return;
    this.#scheduled = true;
    queueMicrotask(() => {
      this.#scheduled = false;
      this.#collectOrphans();
      for (const deployment of this.#live(DEPLOYMENTS)) this.#reconcileDeployment(deployment);
      for (const set of this.#live(REPLICA_SETS)) this.#reconcileReplicaSet(set);
    });
  }

  #live(resource: Resource): readonly ApiObject[] {
    return this.#store
      .list(resource, '')
      .filter((object) => stringAt(object, 'metadata', 'deletionTimestamp') === '');
  }

  /** Deletes each object that has owners if none of these owners exists. */
  #collectOrphans(): void {
    const stored = RESOURCES.filter(isStored);
    const uids = new Set(
      stored.flatMap((resource) => this.#store.list(resource, '')).map((object) => identify(object).uid),
    );
    for (const resource of stored) {
      for (const object of this.#live(resource)) {
        const owners = arrayAt(object, 'metadata', 'ownerReferences').map((owner) => stringAt(owner, 'uid'));
        if (owners.length === 0 || owners.some((uid) => uids.has(uid))) continue;
        this.#remove(resource, object);
      }
    }
  }

  #remove(resource: Resource, object: ApiObject): void {
    const { namespace, name } = identify(object);
    if (resource === PODS) this.#pods.deletePod(namespace, name);
    else this.#store.remove(resource, namespace, name);
    this.changed();
  }

  #reconcileDeployment(deployment: ApiObject): void {
    const { namespace, name } = identify(deployment);
    const template = objectAt(deployment, 'spec', 'template');
    const hash = hashOf(template);
    const setName = `${name}-${hash}`;
    const replicas = numberAt(deployment, 'spec', 'replicas') ?? 1;
    const labels = { ...objectAt(template, 'metadata', 'labels'), 'pod-template-hash': hash };
    if (this.#store.get(REPLICA_SETS, namespace, setName) === undefined) {
      this.#create(REPLICA_SETS, namespace, {
        metadata: { name: setName, labels, ownerReferences: [ownerReference(deployment)] },
        spec: {
          replicas,
          selector: { matchLabels: labels },
          template: withValue(template, ['metadata', 'labels'], labels),
        },
      });
    }
    const sets = this.#owned(REPLICA_SETS, deployment);
    for (const set of sets) {
      const wanted = identify(set).name === setName ? replicas : 0;
      this.#revise(REPLICA_SETS, set, (current) => withValue(current, ['spec', 'replicas'], wanted));
    }
    const current = this.#store.get(REPLICA_SETS, namespace, setName);
    const sum = (field: string): number =>
      sets.reduce((total, set) => total + (numberAt(set, 'status', field) ?? 0), 0);
    const ready = numberAt(current, 'status', 'readyReplicas') ?? 0;
    this.#setStatus(DEPLOYMENTS, deployment, {
      observedGeneration: numberAt(deployment, 'metadata', 'generation') ?? 1,
      replicas: sum('replicas'),
      updatedReplicas: numberAt(current, 'status', 'replicas') ?? 0,
      readyReplicas: sum('readyReplicas'),
      availableReplicas: ready,
      conditions: [
        {
          type: 'Available',
          status: ready >= replicas ? 'True' : 'False',
          reason: 'MinimumReplicasAvailable',
        },
        { type: 'Progressing', status: 'True', reason: 'NewReplicaSetAvailable' },
      ],
    });
  }

  #reconcileReplicaSet(set: ApiObject): void {
    const { namespace, name } = identify(set);
    const replicas = numberAt(set, 'spec', 'replicas') ?? 1;
    const owned = this.#owned(PODS, set).filter(
      (pod) => stringAt(pod, 'metadata', 'deletionTimestamp') === '',
    );
    for (const pod of owned.slice(replicas)) this.#remove(PODS, pod);
    for (let missing = replicas - owned.length; missing > 0; missing -= 1) {
      const template = objectAt(set, 'spec', 'template');
      const metadata = {
        ...objectAt(template, 'metadata'),
        generateName: `${name}-`,
        ownerReferences: [ownerReference(set)],
      };
      const pod = this.#create(PODS, namespace, { metadata, spec: objectAt(template, 'spec') });
      if (pod === undefined) break;
      this.#pods.started(pod);
    }
    const pods = this.#owned(PODS, set);
    const ready = pods.filter((pod) => summarizePod(pod).status === 'Running').length;
    this.#setStatus(REPLICA_SETS, set, {
      replicas: Math.min(pods.length, replicas),
      fullyLabeledReplicas: Math.min(pods.length, replicas),
      readyReplicas: ready,
      availableReplicas: ready,
      observedGeneration: numberAt(set, 'metadata', 'generation') ?? 1,
    });
  }

  #owned(resource: Resource, owner: ApiObject): readonly ApiObject[] {
    const { namespace, uid } = identify(owner);
    return this.#store
      .list(resource, namespace)
      .filter((object) =>
        arrayAt(object, 'metadata', 'ownerReferences').some((each) => stringAt(each, 'uid') === uid),
      );
  }

  /**
   * Stores an object. Returns undefined if the cluster rejects the object, for example because of an invalid template,
   * or because its namespace is being deleted.
   */
  #create(resource: Resource, namespace: string, object: ApiObject): ApiObject | undefined {
    try {
      return this.#store.create(
        resource,
        prepareCreate(this.#store, resource, namespace, object, this.#now()),
      );
    } catch {
      return undefined;
    }
  }

  #setStatus(resource: Resource, object: ApiObject, status: ApiObject): void {
    this.#revise(resource, object, (current) => ({ ...current, status }));
  }

  #revise(resource: Resource, object: ApiObject, change: (current: ApiObject) => ApiObject): void {
    const { namespace, name } = identify(object);
    let unchanged = true;
    this.#store.update(resource, namespace, name, (current) => {
      const next = change(current);
      unchanged = equalJson(next, current);
      return unchanged ? current : next;
    });
    if (!unchanged) this.changed();
  }
}

function ownerReference(owner: ApiObject): ApiObject {
  const { name, uid } = identify(owner);
  return {
    apiVersion: stringAt(owner, 'apiVersion'),
    kind: stringAt(owner, 'kind'),
    name,
    uid,
    controller: true,
    blockOwnerDeletion: true,
  };
}

function hashOf(template: ApiObject): string {
  const digits = createHash('sha256').update(JSON.stringify(template)).digest();
  return [...digits.subarray(0, 9)].map((byte) => 'bcdfghjklmnpqrstvwxz2456789'[byte % 27] ?? '').join('');
}
