import { alreadyExists, conflict, notFound, tooManyRequests } from './api-status.ts';
import { createJournal, type Watcher, type WatchQuery } from './journal.ts';
import { identify, stringAt, withValue, type ApiObject } from './json.ts';
import type { Resource } from './resources.ts';
import type { Selector } from './selectors.ts';

/**
 * The objects of the cluster, in memory. All objects share one counter for resource versions, and watches use a
 * limited history of changes.
 *
 * Objects are immutable. Every write stores a new object, and objects that were returned earlier do not change.
 * Callers handle defaults, validation and side effects.
 */
export interface Store {
  readonly resourceVersion: number;
  get(resource: Resource, namespace: string, name: string): ApiObject | undefined;
  /** Returns an object. Throws a 404 error if the object does not exist. */
  require(resource: Resource, namespace: string, name: string): ApiObject;
  /** Returns objects in the order of namespace and name. `namespace` '' lists all namespaces. */
  list(resource: Resource, namespace: string, selector?: Selector): readonly ApiObject[];
  /**
   * Stores a new object, and returns it with its resource version. Throws a 409 error if the name exists, and a 429
   * error if the store is full.
   */
  create(resource: Resource, object: ApiObject): ApiObject;
  /**
   * Replaces an object by the result of `change`, and returns the stored object. Throws a 404 error if the object does
   * not exist, and a 409 error if the result contains an outdated resource version.
   */
  update(
    resource: Resource,
    namespace: string,
    name: string,
    change: (current: ApiObject) => ApiObject,
  ): ApiObject;
  /** Removes an object and returns its last state. Throws a 404 error if the object does not exist. */
  remove(resource: Resource, namespace: string, name: string): ApiObject;
  /** Follows changes after `query.fromVersion`. Throws a 410 error if the history no longer contains these changes. */
  watch(query: WatchQuery): Watcher;
}

export interface StoreLimits {
  readonly maxObjects: number;
  readonly maxHistory: number;
  readonly maxQueuedEvents: number;
}

const DEFAULT_LIMITS: StoreLimits = { maxObjects: 20_000, maxHistory: 4_000, maxQueuedEvents: 4_000 };

/**
 * Creates an empty store. `limits` are the maximum numbers of objects, changes in the history, and queued events per
 * watcher.
 */
export function createStore(limits: Partial<StoreLimits> = {}): Store {
  const bounds = { ...DEFAULT_LIMITS, ...limits };
  const tables = new Map<Resource, Map<string, ApiObject>>();
  const journal = createJournal(bounds.maxHistory, bounds.maxQueuedEvents);
  let version = 1;
  let count = 0;

  const table = (resource: Resource): Map<string, ApiObject> => {
    const found = tables.get(resource) ?? new Map<string, ApiObject>();
    tables.set(resource, found);
    return found;
  };
  const record = (
    resource: Resource,
    key: string,
    before: ApiObject | undefined,
    next: ApiObject | undefined,
  ): ApiObject => {
    version += 1;
    const last = next ?? before ?? {};
    const stamped = withValue(last, ['metadata', 'resourceVersion'], String(version));
    if (next === undefined) table(resource).delete(key);
    else table(resource).set(key, stamped);
    count += (next === undefined ? 0 : 1) - (before === undefined ? 0 : 1);
    const { namespace } = identify(last);
    const after = next === undefined ? undefined : stamped;
    const gone = next === undefined && before !== undefined ? stamped : before;
    journal.record({ version, resource, namespace, before: gone, after });
    return stamped;
  };
  const require = (resource: Resource, namespace: string, name: string): ApiObject => {
    const found = table(resource).get(keyOf(namespace, name));
    if (found === undefined) throw notFound(resource, name);
    return found;
  };

  return {
    get resourceVersion() {
      return version;
    },
    get: (resource, namespace, name) => table(resource).get(keyOf(namespace, name)),
    require,
    list: (resource, namespace, selector) => selectFrom(table(resource), namespace, selector),
    create(resource, object) {
      const { namespace, name } = identify(object);
      const key = keyOf(namespace, name);
      if (table(resource).has(key)) throw alreadyExists(resource, name);
      if (count >= bounds.maxObjects) throw tooManyRequests('this demo cluster holds too many objects');
      return record(resource, key, undefined, object);
    },
    update(resource, namespace, name, change) {
      const current = require(resource, namespace, name);
      const next = change(current);
      if (next === current) return current;
      const expected = stringAt(next, 'metadata', 'resourceVersion');
      if (expected !== '' && expected !== stringAt(current, 'metadata', 'resourceVersion')) {
        throw conflict(resource, name);
      }
      return record(resource, keyOf(namespace, name), current, next);
    },
    remove: (resource, namespace, name) =>
      record(resource, keyOf(namespace, name), require(resource, namespace, name), undefined),
    watch: (query) => journal.watch(query),
  };
}

function keyOf(namespace: string, name: string): string {
  return `${namespace}/${name}`;
}

function selectFrom(
  table: ReadonlyMap<string, ApiObject>,
  namespace: string,
  selector: Selector | undefined,
): readonly ApiObject[] {
  return [...table]
    .filter(([key]) => namespace === '' || key.startsWith(`${namespace}/`))
    .toSorted(([left], [right]) => (left < right ? -1 : 1))
    .map(([, object]) => object)
    .filter((object) => selector?.(object) ?? true);
}
