/** Pieces of CRD schemas. */
import type { Schema } from './core-schema.ts';

export const text = (description: string, more: Schema = {}): Schema => ({
  description,
  type: 'string',
  ...more,
});
export const flag = (description: string): Schema => ({ description, type: 'boolean' });
export const object = (description: string, properties: Schema, more: Schema = {}): Schema => ({
  description,
  type: 'object',
  properties,
  ...more,
});
export const textMap = (description: string): Schema => ({
  description,
  type: 'object',
  additionalProperties: { type: 'string' },
});
/** Labels with limited values. */
export const labelMap = (description: string): Schema => ({
  description,
  type: 'object',
  additionalProperties: {
    type: 'string',
    maxLength: 63,
    pattern: '^(([a-zA-Z0-9][-._a-zA-Z0-9]*)?[a-zA-Z0-9])?$',
  },
});
export const list = (description: string, items: Schema, more: Schema = {}): Schema => ({
  description,
  type: 'array',
  items,
  ...more,
});

export function conditionsSchema(types: string, whichType: string): Schema {
  const name = '([a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?';
  return list(
    types,
    {
      type: 'object',
      properties: {
        lastTransitionTime: text('When the status changed last.', { format: 'date-time' }),
        message: text('For people.', { maxLength: 32_768 }),
        observedGeneration: { type: 'integer', format: 'int64', minimum: 0 },
        reason: text('For programs.', {
          maxLength: 1024,
          minLength: 1,
          pattern: '^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$',
        }),
        status: text('Whether it holds.', { enum: ['True', 'False', 'Unknown'] }),
        type: text(whichType, {
          maxLength: 316,
          pattern: `^${name}(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`,
        }),
      },
      required: ['lastTransitionTime', 'message', 'reason', 'status', 'type'],
    },
    { 'x-kubernetes-list-map-keys': ['type'], 'x-kubernetes-list-type': 'map' },
  );
}

/** Devices as a list that may contain duplicate names. */
export function plainDevicesSchema(more: Schema = {}): Schema {
  return list('The nodes that have joined the tailnet.', {
    type: 'object',
    properties: {
      hostname: text('Name of the node.'),
      tailnetIPs: list('Its addresses in the tailnet.', { type: 'string' }),
      ...more,
    },
  });
}

/** Devices by their names. */
export function devicesSchema(more: Schema = {}): Schema {
  const { items, ...plain } = plainDevicesSchema(more);
  return {
    ...plain,
    items: { ...(items as Schema), required: ['hostname'] },
    'x-kubernetes-list-map-keys': ['hostname'],
    'x-kubernetes-list-type': 'map',
  };
}

export interface CrdOptions {
  readonly kind: string;
  /** Default: the kind in small letters and an s. */
  readonly plural?: string;
  readonly shortName?: string;
  readonly description: string;
  /** Columns of `kubectl get`. The age is the last column unless `ageFirst` is set. */
  readonly columns: readonly Schema[];
  readonly ageFirst?: boolean;
  /** Default: `Cluster`. */
  readonly scope?: 'Cluster' | 'Namespaced';
  /** Required fields. Default: `spec`. */
  readonly required?: readonly string[];
  readonly spec: Schema;
  readonly status: Schema;
}

/** The definition of a resource of `tailscale.com/v1alpha1` with a status. */
export function crd({ kind, shortName, description, columns, spec, status, ...more }: CrdOptions): object {
  const age = { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' };
  const singular = kind.toLowerCase();
  const plural = more.plural ?? `${singular}s`;
  return {
    apiVersion: 'apiextensions.k8s.io/v1',
    kind: 'CustomResourceDefinition',
    metadata: { name: `${plural}.tailscale.com` },
    spec: {
      group: 'tailscale.com',
      names: {
        kind,
        listKind: `${kind}List`,
        plural,
        ...(shortName === undefined ? {} : { shortNames: [shortName] }),
        singular,
      },
      scope: more.scope ?? 'Cluster',
      versions: [
        {
          name: 'v1alpha1',
          served: true,
          storage: true,
          subresources: { status: {} },
          additionalPrinterColumns: more.ageFirst === true ? [age, ...columns] : [...columns, age],
          schema: {
            openAPIV3Schema: object(
              description,
              {
                apiVersion: text('Version of this schema.'),
                kind: text(kind),
                metadata: { type: 'object' },
                spec,
                status,
              },
              { required: more.required ?? ['spec'] },
            ),
          },
        },
      ],
    },
  };
}
