/**
 * Writes Kubernetes Events about resources. `kubectl describe` shows these Events. A repeated event increases the count
 * of the existing Event.
 */
import { BoundedMap } from '../bounded-map.ts';
import { errorText } from '../errors.ts';
import type { Logger } from '../observe/logger.ts';
import { timeOf, type Clock } from './clock.ts';
import type { KubeClient } from './kube-client.ts';
import { KINDS, shortened, type ResourceKind } from './kube-object.ts';

/** The resource that an event is about. */
export interface Subject {
  readonly kind: ResourceKind;
  /** Undefined for cluster-scoped kinds. */
  readonly namespace?: string | undefined;
  readonly name: string;
  readonly uid: string;
}

export type EventRecorder = ReturnType<typeof createEventRecorder>;

/** Namespace of events about cluster-scoped objects, as in client-go. */
const NAMESPACE = 'default';
/** Minimum interval between two writes of the same event. */
const REPEAT_AFTER_MS = 300_000;
const MAX_REMEMBERED = 1000;
const MAX_MESSAGE = 1024;
/** Maximum length of the resource's name within the name of an Event. The name of an Event may have 253 characters. */
const MAX_SUBJECT_NAME = 230;

interface RecentEvent {
  readonly name: string;
  readonly count: number;
  readonly atMs: number;
}

/** Creates a recorder that writes events with a client. */
export function createEventRecorder(options: {
  readonly client: Pick<KubeClient, 'create' | 'patch'>;
  readonly clock: Clock;
  readonly log: Logger;
  /** Returns a unique suffix for the name of an event. */
  readonly createId: () => string;
}) {
  const { client, clock, log } = options;
  /**
   * Recent events. After an event was evicted from this map, its repetition creates a new Event instead of increasing
   * the count.
   */
  const recent = new BoundedMap<RecentEvent>(MAX_REMEMBERED);

  return {
    /** Writes an event. Never throws; a failed write is logged. */
    async record(
      about: Subject,
      {
        type,
        reason,
        message,
      }: { readonly type: 'Normal' | 'Warning'; readonly reason: string; readonly message: string },
    ): Promise<void> {
      const text = message.slice(0, MAX_MESSAGE);
      const key = JSON.stringify([about.uid, type, reason, text]);
      const before = recent.get(key);
      const now = clock.monotonic();
      if (before !== undefined && now - before.atMs < REPEAT_AFTER_MS) return;
      const time = timeOf(clock);
      try {
        if (before === undefined) {
          const name = `${shortened(about.name, MAX_SUBJECT_NAME)}.${options.createId()}`;
          await client.create(KINDS.event, newEvent(name, about, { type, reason, message: text }, time));
          recent.set(key, { name, count: 1, atMs: now });
        } else {
          const count = before.count + 1;
          const body = { count, lastTimestamp: time };
          await client.patch(
            KINDS.event,
            { namespace: about.namespace ?? NAMESPACE, name: before.name },
            { kind: 'merge', body },
          );
          recent.set(key, { ...before, count, atMs: now });
        }
      } catch (error) {
        recent.delete(key);
        log.debug(
          { kind: about.kind.kind, name: about.name, reason, error: errorText(error) },
          'event not written',
        );
      }
    },
  };
}

function newEvent(
  name: string,
  about: Subject,
  event: { readonly type: string; readonly reason: string; readonly message: string },
  time: string,
): object {
  return {
    apiVersion: 'v1',
    kind: 'Event',
    metadata: { name, namespace: about.namespace ?? NAMESPACE },
    involvedObject: {
      apiVersion: about.kind.apiVersion,
      kind: about.kind.kind,
      ...(about.namespace === undefined ? {} : { namespace: about.namespace }),
      name: about.name,
      uid: about.uid,
    },
    ...event,
    source: { component: 'tailcast-operator' },
    reportingComponent: 'tailcast-operator',
    firstTimestamp: time,
    lastTimestamp: time,
    count: 1,
  };
}
