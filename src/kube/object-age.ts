/** The order in which Kubernetes objects get a name or address that several of them claim. Pure. */

/** The parts of an object's metadata that determine its position in the order. */
interface Aged {
  readonly metadata: {
    readonly creationTimestamp?: string | undefined;
    readonly namespace?: string | undefined;
    readonly name: string;
  };
}

/**
 * Comparison function that sorts Kubernetes objects by age, oldest first, then by namespace and name. If several
 * objects claim the same name or address, the oldest object gets it.
 */
export function olderFirst(a: Aged, b: Aged): number {
  return keyOf(a) < keyOf(b) ? -1 : 1;
}

function keyOf({ metadata: { creationTimestamp = '', namespace = '', name } }: Aged): string {
  return `${creationTimestamp} ${namespace}/${name}`;
}
