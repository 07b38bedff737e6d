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

/** The resource that an event or a status belongs to. */
export interface EventTarget {
  readonly kind: ResourceKind;
  readonly metadata: {
    /** Namespace of the resource; undefined for cluster-scoped kinds. */
    readonly namespace?: string | undefined;
    readonly name: string;
    readonly uid: string;
  };
}

/** Content of an event. */
interface Warning {
  readonly reason: string;
  readonly message: string;
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
    /** Writes an event of type `Warning`. Never throws; a failed write is logged. */
    async warn({ kind, metadata }: EventTarget, { reason, message }: Warning): Promise<void> {
      const text = message.slice(0, MAX_MESSAGE);
      const key = JSON.stringify([metadata.uid, reason, text]);
      const before = recent.get(key);
      const now = clock.monotonic();
      if (before !== undefined && now - before.atMs < REPEAT_AFTER_MS) return;
      const time = timeOf(clock);
      try {
        if (before === undefined) {
          const name = `${shortened(metadata.name, MAX_SUBJECT_NAME)}.${options.createId()}`;
          const warning = { reason, message: text };
          await client.create(KINDS.event, newEvent(name, { kind, metadata }, warning, time));
          recent.set(key, { name, count: 1, atMs: now });
        } else {
          const count = before.count + 1;
          const body = { count, lastTimestamp: time };
          await client.patch(
            KINDS.event,
            { namespace: metadata.namespace ?? NAMESPACE, name: before.name },
            { kind: 'merge', body },
          );
          recent.set(key, { ...before, count, atMs: now });
        }
      } catch (error) {
        recent.delete(key);
        const { name } = metadata;
        log.debug({ kind: kind.kind, name, reason, error: errorText(error) }, 'event not written');
      }
    },
  };
}

function newEvent(
  name: string,
  { kind: { apiVersion, kind }, metadata: { namespace, name: of, uid } }: EventTarget,
  warning: Warning,
  time: string,
): object {
  return {
    apiVersion: 'v1',
    kind: 'Event',
    metadata: { name, namespace: namespace ?? NAMESPACE },
    involvedObject: { apiVersion, kind, namespace, name: of, uid },
    type: 'Warning',
    ...warning,
    source: { component: 'tailcast-operator' },
    reportingComponent: 'tailcast-operator',
    firstTimestamp: time,
    lastTimestamp: time,
    count: 1,
  };
}
