/**
 * The objects that the operator watches, with indexes. Reconcilers read the objects from this cache instead of listing
 * them from the API server in each reconciliation. Controllers that watch the same objects share one watch and one
 * copy.
 */
import { pause } from '../async/pause.ts';
import type { Runtime } from './clock.ts';
import { createInformer, type Informer } from './informer.ts';
import { KubeRefusal, type KubeClient, type ListOptions } from './kube-client.ts';
import type { KubeObject, ResourceKind } from './kube-object.ts';

/** Selection of objects of one kind, and of the fields that the cache stores. */
export interface Selection {
  readonly kind: ResourceKind;
  readonly namespace?: string;
  readonly labelSelector?: string;
  /**
   * Returns the part of an object that the cache stores. Default: the cache requests only the metadata, and stores only
   * identity and labels. Selections with the same function share one copy of the objects.
   */
  readonly keep?: (object: KubeObject) => KubeObject;
}

/** Index of watched objects by a key, for example by the group in an object's annotation. */
export interface ObjectIndex {
  readonly of: Selection;
  readonly valuesOf: (object: KubeObject) => readonly string[];
}

/** A view of objects in memory. */
export interface CachedObjects {
  all(selection: Selection): readonly KubeObject[];
  by(index: ObjectIndex, value: string): readonly KubeObject[];
}

export type ObjectCache = ReturnType<typeof createListedObjects>;

/** Called for each object that appeared, changed or disappeared. Must not throw. */
type Listener = (before: KubeObject | undefined, after: KubeObject | undefined) => void;

/** A cache that watches the API server. */
export interface WatchedObjects extends ObjectCache {
  readonly objects: CachedObjects;
  /** Adds a watch. Call this method before `run`. */
  watch(selection: Selection, listener: Listener): void;
  /** Watches until the signal of the cache aborts. */
  run(): Promise<void>;
}

interface Watch {
  readonly selection: Selection;
  readonly informer: Informer;
  readonly listeners: Listener[];
  readonly indexes: Map<ObjectIndex, Map<string, Map<string, KubeObject>>>;
}

/** Maximum time that a reconciler waits for the first list of a kind. */
const FIRST_LIST_MS = 30_000;

interface WatchDeps extends Runtime {
  readonly client: Pick<KubeClient, 'list' | 'watch'>;
}

/** Creates a cache. Call `run` to start its watches. */
export function createWatchedObjects(deps: WatchDeps): WatchedObjects {
  const { client, clock, signal } = deps;
  const watches: Watch[] = [];

  function watchOf(selection: Selection): Watch | undefined {
    return watches.find((one) => isSameSelection(one.selection, selection));
  }

  const objects: CachedObjects = {
    all: (selection) => watchOf(selection)?.informer.items ?? [],
    by(index, value) {
      const watch = watchOf(index.of);
      if (watch === undefined) return [];
      let entries = watch.indexes.get(index);
      if (entries === undefined) {
        entries = new Map();
        for (const object of watch.informer.items) addEntry(index, entries, object);
        watch.indexes.set(index, entries);
      }
      return [...(entries.get(value)?.values() ?? [])];
    },
  };

  return {
    objects,
    watch(selection, listener) {
      let watch = watchOf(selection);
      if (watch === undefined) {
        watch = openWatch(selection, deps);
        watches.push(watch);
      }
      watch.listeners.push(listener);
    },
    async read(selections) {
      const unwatched: Selection[] = [];
      for (const selection of selections) {
        const informer = watchOf(selection)?.informer;
        if (informer === undefined) unwatched.push(selection);
        else if (!informer.isSynced)
          await Promise.race([informer.synced, pause(FIRST_LIST_MS, signal, clock)]);
        if (informer?.isSynced === false)
          throw new Error(`the API server has not sent the list of ${selection.kind.plural} yet`);
      }
      if (unwatched.length === 0) return objects;
      const view = await listAll(client, unwatched);
      return {
        all: (selection) => (watchOf(selection) === undefined ? view : objects).all(selection),
        by: (index, value) => (watchOf(index.of) === undefined ? view : objects).by(index, value),
      };
    },
    async run() {
      await Promise.all(watches.map(({ informer }) => informer.run(signal)));
    },
  };
}

function openWatch(selection: Selection, { client, ...deps }: WatchDeps): Watch {
  const { kind } = selection;
  const options = listOptions(selection);
  const listeners: Listener[] = [];
  const indexes: Watch['indexes'] = new Map();
  const informer = createInformer({
    source: {
      name: kind.plural,
      list: (signal) => client.list(kind, options, signal),
      watch: (resourceVersion, timeoutSeconds, signal) =>
        client.watch(kind, { ...options, resourceVersion, timeoutSeconds }, signal),
    },
    onChange(before, after) {
      for (const [index, entries] of indexes) {
        if (before !== undefined) removeEntry(index, entries, before);
        if (after !== undefined) addEntry(index, entries, after);
      }
      for (const listener of listeners) listener(before, after);
    },
    ...deps,
  });
  return { selection, informer, listeners, indexes };
}

/**
 * Creates a cache without watches: each `read` lists the objects. Commands that visit each resource only once use this
 * cache.
 */
export function createListedObjects(client: Pick<KubeClient, 'list'>) {
  return {
    /**
     * Returns a view of the selected objects. For selections without a watch, the objects are listed from the API
     * server. The objects may be outdated: read an object from the API server before a write that depends on its
     * current content.
     *
     * @throws Error if the API server has not sent a list in time; KubeRefusal if it rejects the request for a list
     */
    read: (selections: readonly Selection[]): Promise<CachedObjects> => listAll(client, selections),
  };
}

async function listAll(
  client: Pick<KubeClient, 'list'>,
  selections: readonly Selection[],
): Promise<CachedObjects> {
  const listed: (readonly [Selection, readonly KubeObject[]])[] = [];
  for (const selection of selections) listed.push([selection, await listOf(client, selection)]);
  return viewOf(listed);
}

/** Returns a view of objects that have been listed. */
export function viewOf(listed: readonly (readonly [Selection, readonly KubeObject[]])[]): CachedObjects {
  const all = (selection: Selection): readonly KubeObject[] =>
    listed.find(([one]) => isSameSelection(one, selection))?.[1] ?? [];
  return {
    all,
    by: ({ of, valuesOf }, value) => all(of).filter((object) => valuesOf(object).includes(value)),
  };
}

/** Returns the objects of a selection; none if the cluster does not know the kind. */
export function listOf(
  client: Pick<KubeClient, 'list'>,
  selection: Selection,
): Promise<readonly KubeObject[]> {
  return listKnown(client, selection.kind, listOptions(selection));
}

/** Returns the objects of a kind; none if the cluster does not know the kind. */
export async function listKnown(
  client: Pick<KubeClient, 'list'>,
  kind: ResourceKind,
  options: ListOptions,
): Promise<readonly KubeObject[]> {
  try {
    return (await client.list(kind, options)).items;
  } catch (error) {
    if (error instanceof KubeRefusal && error.status === 404) return [];
    throw error;
  }
}

/** Returns an object with only its identity and its labels. */
export function namesAndLabels({ apiVersion, kind, metadata }: KubeObject): KubeObject {
  const { name, namespace, uid, resourceVersion, labels } = metadata;
  return { apiVersion, kind, metadata: { name, namespace, uid, resourceVersion, labels } };
}

/** Returns `<namespace>/<name>`, or the name of a cluster-scoped object. */
export function fullName({ metadata: { namespace, name } }: Pick<KubeObject, 'metadata'>): string {
  return namespace === undefined ? name : `${namespace}/${name}`;
}

function listOptions({ namespace, labelSelector, keep }: Selection) {
  return { namespace, labelSelector, metadataOnly: keep === undefined, keep: keep ?? namesAndLabels };
}

function addEntry(index: ObjectIndex, entries: Map<string, Map<string, KubeObject>>, object: KubeObject) {
  for (const value of index.valuesOf(object)) {
    const found = entries.get(value) ?? new Map<string, KubeObject>();
    entries.set(value, found.set(fullName(object), object));
  }
}

function removeEntry(index: ObjectIndex, entries: Map<string, Map<string, KubeObject>>, object: KubeObject) {
  for (const value of index.valuesOf(object)) {
    const found = entries.get(value);
    found?.delete(fullName(object));
    if (found?.size === 0) entries.delete(value);
  }
}

function isSameSelection(left: Selection, right: Selection): boolean {
  return (['kind', 'namespace', 'labelSelector', 'keep'] as const).every((key) => left[key] === right[key]);
}
