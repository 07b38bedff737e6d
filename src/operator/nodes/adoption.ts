/** Taking over what another operator made for a resource. Pure. */
import { z } from 'zod';
import type { KubeObject, ManagedFields } from '../kube-object.ts';
import type { DesiredStatefulSet, ImmutableParts } from './pods.ts';

/**
 * The field owners an object must have so that our next server-side apply also removes what its former operator stated
 * and we do not: that operator's entry becomes ours (as client-go's csaupgrade does). Undefined when there is nothing
 * to take over: we have applied before, or only people and controllers of Kubernetes have written.
 */
export function takenOver(object: KubeObject, fieldManager: string): readonly ManagedFields[] | undefined {
  const entries = object.metadata.managedFields ?? [];
  if (entries.some((entry) => entry.manager === fieldManager && entry.operation === 'Apply'))
    return undefined;
  const theirs = entries.filter(isOperators);
  if (theirs.length === 0) return undefined;
  const [first, ...more] = theirs;
  const merged: ManagedFields = {
    ...first,
    manager: fieldManager,
    operation: 'Apply',
    fieldsV1: more.reduce((fields, entry) => union(fields, entry.fieldsV1 ?? {}), first?.fieldsV1 ?? {}),
  };
  return [merged, ...entries.filter((entry) => !isOperators(entry))];
}

/** What was written as a whole object, by a program and not by a person's kubectl. */
function isOperators({ manager, operation, subresource }: ManagedFields): boolean {
  return (
    operation === 'Update' &&
    (subresource === undefined || subresource === '') &&
    manager?.startsWith('kubectl') !== true
  );
}

type FieldSet = Readonly<Record<string, unknown>>;

/** Field sets are nested records whose leaves are empty (structured-merge-diff, fieldpath). */
function union(left: FieldSet, right: FieldSet): Record<string, unknown> {
  const merged = new Map(Object.entries(left));
  for (const [path, fields] of Object.entries(right)) {
    const known = merged.get(path);
    merged.set(path, isFieldSet(known) && isFieldSet(fields) ? union(known, fields) : fields);
  }
  return Object.fromEntries(merged);
}

function isFieldSet(value: unknown): value is FieldSet {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

const existingSchema = z.object({
  spec: z.object({
    podManagementPolicy: z.string().default('OrderedReady'),
    selector: z.object({ matchLabels: z.record(z.string(), z.string()).default({}) }),
    volumeClaimTemplates: z
      .array(
        z.object({
          metadata: z.object({ name: z.string() }),
          spec: z.object({
            storageClassName: z.string().optional(),
            resources: z.object({ requests: z.record(z.string(), z.string()).default({}) }),
          }),
        }),
      )
      .default([]),
  }),
});

/** What an existing StatefulSet fixes for the one we want. */
export function immutablePartsOf(existing: KubeObject): ImmutableParts {
  return { podManagementPolicy: existingSchema.parse(existing).spec.podManagementPolicy };
}

/**
 * Whether a StatefulSet must be made anew because of what cannot be changed in place: its selector, or its volumes.
 * It is then deleted without its pods, and the new one takes those over, so this alone restarts nothing.
 */
export function mustRecreate(existing: KubeObject, desired: DesiredStatefulSet): boolean {
  const { spec } = existingSchema.parse(existing);
  const wanted = existingSchema.parse(desired).spec;
  return (
    !sameMap(spec.selector.matchLabels, wanted.selector.matchLabels) ||
    claims(spec.volumeClaimTemplates) !== claims(wanted.volumeClaimTemplates)
  );
}

function sameMap(left: Readonly<Record<string, string>>, right: Readonly<Record<string, string>>): boolean {
  const keys = Object.keys(left);
  return keys.length === Object.keys(right).length && keys.every((key) => left[key] === right[key]);
}

function claims(templates: z.infer<typeof existingSchema>['spec']['volumeClaimTemplates']): string {
  return JSON.stringify(
    templates.map(({ metadata, spec }) => [
      metadata.name,
      spec.storageClassName ?? '',
      spec.resources.requests['storage'] ?? '',
    ]),
  );
}
