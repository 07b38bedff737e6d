import { randomBytes, randomUUID } from 'node:crypto';
import { timestamp } from './container.ts';
import { identify, stringAt, type ApiObject } from './json.ts';
import { EVENTS, NAMESPACES } from './resources.ts';
import type { Store } from './store.ts';

/** Writes Events about objects. `kubectl describe` shows these Events. */
export interface ClusterEvents {
  record(about: ApiObject, reason: string, message: string, type?: 'Normal' | 'Warning'): void;
}

/** Creates a writer that stores Events in `store`. The store keeps the last `maxEvents` Events of the cluster. */
export function createClusterEvents(store: Store, now: () => Date, maxEvents = 500): ClusterEvents {
  const kept: (readonly [string, string])[] = [];
  return {
    record(about, reason, message, type = 'Normal') {
      const { namespace, name, uid } = identify(about);
      if (store.get(NAMESPACES, '', namespace) === undefined) return;
      const time = timestamp(now());
      const eventName = `${name}.${randomBytes(8).toString('hex')}`;
      store.create(EVENTS, {
        kind: 'Event',
        apiVersion: 'v1',
        metadata: { name: eventName, namespace, uid: randomUUID(), creationTimestamp: time },
        involvedObject: {
          kind: stringAt(about, 'kind'),
          namespace,
          name,
          uid,
          apiVersion: stringAt(about, 'apiVersion'),
          resourceVersion: stringAt(about, 'metadata', 'resourceVersion'),
        },
        reason,
        message,
        source: { component: 'tailcast-demo' },
        firstTimestamp: time,
        lastTimestamp: time,
        count: 1,
        type,
        eventTime: null,
        reportingComponent: 'tailcast-demo',
        reportingInstance: '',
      });
      kept.push([namespace, eventName]);
      while (kept.length > maxEvents) {
        const [oldNamespace = '', oldName = ''] = kept.shift() ?? [];
        if (store.get(EVENTS, oldNamespace, oldName) !== undefined)
          store.remove(EVENTS, oldNamespace, oldName);
      }
    },
  };
}
