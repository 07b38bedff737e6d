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

export function devicesSchema(more: Schema = {}): Schema {
  return list(
    'The nodes that have joined the tailnet.',
    {
      type: 'object',
      properties: {
        hostname: text('Name of the node.'),
        tailnetIPs: list('Its addresses in the tailnet.', { type: 'string' }),
        ...more,
      },
      required: ['hostname'],
    },
    { 'x-kubernetes-list-map-keys': ['hostname'], 'x-kubernetes-list-type': 'map' },
  );
}
