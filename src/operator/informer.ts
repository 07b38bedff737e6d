/**
 * Keeps a copy of the objects of one kind by list and watch, and reports changes.
 * - A watch that ends is resumed at the last known resource version.
 * - If the server no longer has this version (410), the informer lists again and reports the differences as changes.
 * - Other failures are retried after a delay that doubles with each failure.
 * - If the API server does not know the kind (404), the informer logs this once, and tries again periodically.
 *
 * The informer runs until its signal aborts.
 */
import { createBackoff } from '../async/backoff.ts';
import { pause } from '../async/pause.ts';
import { errorText } from '../errors.ts';
import type { Runtime } from './clock.ts';
import { KubeRefusal, type ListAnswer, type WatchEvent } from './kube-client.ts';
import type { KubeObject } from './kube-object.ts';

/** Source of the objects. */
export interface InformerSource {
  readonly name: string;
  list(signal: AbortSignal): Promise<ListAnswer>;
  watch(resourceVersion: string, timeoutSeconds: number, signal: AbortSignal): AsyncIterable<WatchEvent>;
}

export interface InformerOptions extends Omit<Runtime, 'signal'> {
  readonly source: InformerSource;
  /**
   * Called after each change of the copy. `before` is undefined for a new object, and `after` is undefined for a
   * deleted object. Must not throw.
   */
  readonly onChange: (before: KubeObject | undefined, after: KubeObject | undefined) => void;
  readonly retry?: { readonly baseMs: number; readonly maxMs: number };
}

export type Informer = ReturnType<typeof createInformer>;

/** Maximum lifetime of a watch at the server. If the server does not end the watch, the client closes it 30 s later. */
const WATCH_SECONDS = 300;
const CUT_AFTER_MS = 30_000;
const UNKNOWN_KIND = 'the API server does not know this kind; the operator retries';

/** Creates an informer. The informer starts with `run`. */
export function createInformer(options: InformerOptions) {
  const { source, clock, log } = options;
  const copy = createCopy(options.onChange);
  const { promise: synced, resolve } = Promise.withResolvers<void>();
  let isSynced = false;
  function markSynced(): void {
    isSynced = true;
    resolve();
  }
  const backoff = createBackoff(options.retry ?? { baseMs: 500, maxMs: 30_000 }, options.random);

  /** Runs one watch. @returns the last known resource version; undefined if the server no longer has that version */
  async function follow(from: string, signal: AbortSignal): Promise<string | undefined> {
    const cut = new AbortController();
    const cancel = clock.schedule(WATCH_SECONDS * 1000 + CUT_AFTER_MS, () =>
      cut.abort(new Error('the watch outlived its time')),
    );
    let place = from;
    try {
      const both = AbortSignal.any([signal, cut.signal]);
      for await (const event of source.watch(place, WATCH_SECONDS, both)) {
        if (event.kind === 'error') {
          if (event.status === 410) return undefined;
          throw new KubeRefusal(`watch of ${source.name}`, event.status, '', event.message);
        }
        place = event.object.metadata.resourceVersion ?? place;
        if (event.kind === 'deleted') copy.remove(event.object);
        else if (event.kind === 'put') copy.put(event.object);
        backoff.reset();
      }
      return place;
    } catch (error) {
      if (error instanceof KubeRefusal && error.status === 410) return undefined;
      // The changes before the failure were reported, so the next watch continues after them.
      if (!signal.aborted) log.debug({ kind: source.name, error: errorText(error) }, 'watch broke');
      if (place === from) throw error;
      return place;
    } finally {
      cancel();
    }
  }

  return {
    /**
     * Resolves when the first list has been read, or when the API server has reported that it does not know the kind.
     */
    synced,
    get isSynced(): boolean {
      return isSynced;
    },
    get items(): readonly KubeObject[] {
      return copy.items();
    },
    async run(signal: AbortSignal): Promise<void> {
      let place: string | undefined;
      let isUnknown = false;
      while (!signal.aborted) {
        try {
          if (place === undefined) {
            const { items, resourceVersion } = await source.list(signal);
            copy.replace(items);
            place = resourceVersion;
            isUnknown = false;
            markSynced();
          }
          const startedAtMs = clock.monotonic();
          place = await follow(place, signal);
          // A delay prevents a busy loop if the server closes watches immediately.
          if (clock.monotonic() - startedAtMs < 1000) await pause(backoff.next(), signal, clock);
        } catch (error) {
          if (signal.aborted) return;
          const retryInMs = backoff.next();
          if (error instanceof KubeRefusal && error.status === 404) {
            if (!isUnknown) log.warn({ kind: source.name }, UNKNOWN_KIND);
            isUnknown = true;
            place = undefined;
            markSynced();
          } else {
            log.warn({ kind: source.name, error: errorText(error), retryInMs }, 'list or watch failed');
          }
          await pause(retryInMs, signal, clock);
        }
      }
    },
  };
}

function createCopy(onChange: InformerOptions['onChange']) {
  const objects = new Map<string, KubeObject>();

  function put(object: KubeObject): void {
    const key = keyOf(object);
    const before = objects.get(key);
    if (before !== undefined && sameVersion(before, object)) return;
    objects.set(key, object);
    onChange(before, object);
  }

  function remove(object: KubeObject): void {
    const before = objects.get(keyOf(object));
    if (objects.delete(keyOf(object))) onChange(before, undefined);
  }

  return {
    put,
    remove,
    replace(listed: readonly KubeObject[]): void {
      const present = new Set(listed.map(keyOf));
      for (const object of objects.values()) if (!present.has(keyOf(object))) remove(object);
      listed.forEach(put);
    },
    items: (): readonly KubeObject[] => [...objects.values()],
  };
}

function keyOf({ metadata }: KubeObject): string {
  return `${metadata.namespace ?? ''}/${metadata.name}`;
}

function sameVersion(left: KubeObject, right: KubeObject): boolean {
  return (
    left.metadata.uid === right.metadata.uid &&
    left.metadata.resourceVersion !== undefined &&
    left.metadata.resourceVersion === right.metadata.resourceVersion
  );
}
