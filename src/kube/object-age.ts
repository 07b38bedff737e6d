/** Decides which Kubernetes object gets a name or address that several objects claim. Pure. */

/** The parts of an object's metadata by which {@link olderFirst} compares. */
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
