import { expired } from './api-status.ts';
import { withValue, type ApiObject } from './json.ts';
import type { Resource } from './resources.ts';
import type { Selector } from './selectors.ts';

export interface WatchQuery {
  readonly resource: Resource;
  /** Namespace to watch; '' for all namespaces. */
  readonly namespace: string;
  readonly selector: Selector;
  readonly fromVersion: number;
}

export interface ChangeEvent {
  readonly type: 'ADDED' | 'MODIFIED' | 'DELETED';
  readonly object: ApiObject;
}

export interface Watcher {
  /**
   * Returns the next change. Returns undefined after `close`, or if the watcher was too slow and its queue became
   * full.
   */
  next(): Promise<ChangeEvent | undefined>;
  close(): void;
}

/** A change of one object. `before` is undefined for a new object, and `after` for a deleted object. */
export interface Change {
  readonly version: number;
  readonly resource: Resource;
  readonly namespace: string;
  readonly before: ApiObject | undefined;
  readonly after: ApiObject | undefined;
}

/** The latest changes of the store, and the watchers that follow them. The number of changes is limited. */
export interface Journal {
  record(change: Change): void;
  /** Follows changes after `fromVersion`. Throws a 410 error if the journal no longer contains these changes. */
  watch(query: WatchQuery): Watcher;
}

/** Creates a journal of the last `maxChanges` changes. Each watcher may queue `maxQueued` events. */
export function createJournal(maxChanges: number, maxQueued: number): Journal {
  const history: Change[] = [];
  const watchers = new Set<QueuedWatcher>();
  let forgotten = 0;
  return {
    record(change) {
      history.push(change);
      while (history.length > maxChanges) forgotten = history.shift()?.version ?? forgotten;
      for (const watcher of watchers) watcher.offer(change);
    },
    watch(query) {
      if (query.fromVersion < forgotten) {
        throw expired(`too old resource version: ${String(query.fromVersion)} (${String(forgotten)})`);
      }
      const watcher = createWatcher(query, maxQueued, () => watchers.delete(watcher));
      for (const change of history) {
        if (change.version > query.fromVersion) watcher.offer(change);
      }
      watchers.add(watcher);
      return watcher;
    },
  };
}

interface QueuedWatcher extends Watcher {
  offer(change: Change): void;
}

/**
 * Creates a watcher with a queue of at most `maxQueued` events. If the queue is full, the watch ends, as in the API
 * server.
 */
function createWatcher(query: WatchQuery, maxQueued: number, onClose: () => void): QueuedWatcher {
  const queue: ChangeEvent[] = [];
  let waiting: ((event: ChangeEvent | undefined) => void) | undefined;
  let closed = false;
  const close = (): void => {
    closed = true;
    onClose();
    waiting?.(undefined);
    waiting = undefined;
  };
  return {
    offer(change) {
      const event = closed ? undefined : eventFor(query, change);
      if (event === undefined) return;
      if (waiting !== undefined) {
        waiting(event);
        waiting = undefined;
      } else if (queue.push(event) > maxQueued) {
        queue.length = 0;
        close();
      }
    },
    next() {
      const event = queue.shift();
      if (event !== undefined || closed) return Promise.resolve(event);
      return new Promise((resolve) => {
        waiting = resolve;
      });
    },
    close,
  };
}

/**
 * Returns the event that a watcher gets for a change. If an object no longer matches the selectors, the event is
 * DELETED with the previous state. If an object starts to match the selectors, the event is ADDED.
 */
function eventFor(query: WatchQuery, change: Change): ChangeEvent | undefined {
  if (change.resource !== query.resource) return undefined;
  if (query.namespace !== '' && change.namespace !== query.namespace) return undefined;
  const { before, after } = change;
  const was = before !== undefined && query.selector(before);
  const is = after !== undefined && query.selector(after);
  if (is) return { type: was ? 'MODIFIED' : 'ADDED', object: after };
  if (!was) return undefined;
  const version = String(change.version);
  return { type: 'DELETED', object: withValue(before, ['metadata', 'resourceVersion'], version) };
}
