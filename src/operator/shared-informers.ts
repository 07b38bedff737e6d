/** Copies of what is watched. Reconcilers that watch the same share one watch and one copy: 5,000 Services are held once. */
import type { Logger } from '../observe/logger.ts';
import type { Clock } from './clock.ts';
import { createInformer, type Informer } from './informer.ts';
import type { KubeClient } from './kube-client.ts';
import type { KubeObject, ResourceKind } from './kube-object.ts';

/** Objects of one kind, and how much is kept of each. */
export interface Selection {
  readonly kind: ResourceKind;
  readonly namespace?: string;
  readonly labelSelector?: string;
  /**
   * What is kept of an object. Default: `metadata` alone is sent, and name and labels are kept of it, because that it
   * changed is all that matters. Copies are shared where this is the same function.
   */
  readonly keep?: (object: KubeObject) => KubeObject;
}

export interface SharedInformers {
  /** @param onChange told of each object that appeared, changed or went. Must not throw. */
  of(selection: Selection, onChange: (object: KubeObject) => void): Informer;
  /** Works until the signal, on what was asked for before. */
  run(signal: AbortSignal): Promise<void>;
}

export interface SharedInformersOptions {
  readonly client: Pick<KubeClient, 'list' | 'watch'>;
  readonly clock: Clock;
  readonly random: () => number;
  readonly log: Logger;
}

interface Shared {
  readonly selection: Selection;
  readonly informer: Informer;
  readonly listeners: ((object: KubeObject) => void)[];
}

export function createSharedInformers({ client, ...deps }: SharedInformersOptions): SharedInformers {
  const all: Shared[] = [];

  function open(selection: Selection): Shared {
    const { kind, namespace, labelSelector, keep } = selection;
    const options = {
      namespace,
      labelSelector,
      metadataOnly: keep === undefined,
      keep: keep ?? namesAndLabels,
    };
    const listeners: Shared['listeners'] = [];
    const informer = createInformer({
      source: {
        name: kind.plural,
        list: (signal) => client.list(kind, options, signal),
        watch: (resourceVersion, timeoutSeconds, signal) =>
          client.watch(kind, { ...options, resourceVersion, timeoutSeconds }, signal),
      },
      onChange(_change, object) {
        for (const listener of listeners) listener(object);
      },
      ...deps,
    });
    return { selection, informer, listeners };
  }

  return {
    of(selection, onChange) {
      let shared = all.find((one) => isSameSelection(one.selection, selection));
      if (shared === undefined) {
        shared = open(selection);
        all.push(shared);
      }
      shared.listeners.push(onChange);
      return shared.informer;
    },
    async run(signal) {
      await Promise.all(all.map(({ informer }) => informer.run(signal)));
    },
  };
}

function isSameSelection(left: Selection, right: Selection): boolean {
  return (['kind', 'namespace', 'labelSelector', 'keep'] as const).every((key) => left[key] === right[key]);
}

/** Of many objects, where all that is asked is whose they are. */
export function namesAndLabels({ apiVersion, kind, metadata }: KubeObject): KubeObject {
  const { name, namespace, uid, resourceVersion, labels } = metadata;
  return { apiVersion, kind, metadata: { name, namespace, uid, resourceVersion, labels } };
}
