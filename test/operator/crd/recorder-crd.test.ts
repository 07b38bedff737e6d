import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import type { Schema } from './core-schema.ts';

const crd = parse(readFileSync(new URL('../../../deploy/crds/recorder.yaml', import.meta.url), 'utf8')) as {
  metadata: { name: string };
  spec: {
    group: string;
    scope: string;
    names: object;
    versions: (Schema & { schema: { openAPIV3Schema: Schema } })[];
  };
};
const [version] = crd.spec.versions;
const root = version!.schema.openAPIV3Schema;

/** The schema of a field, e.g. `spec.tags[]`. */
function field(path: string): Schema {
  let schema = root;
  for (const part of path.split('.')) {
    const name = part.replace(/\[\]$/, '');
    schema = (schema['properties'] as Record<string, Schema>)[name]!;
    if (part.endsWith('[]')) schema = schema['items'] as Schema;
  }
  const { description: _description, ...rest } = schema;
  return rest;
}

const TEXT_MAP = { type: 'object', additionalProperties: { type: 'string' } };
const POD = 'spec.statefulSet.pod';

describe('the CRD of Recorder', () => {
  it('is the reference’s resource', () => {
    expect(crd.metadata.name).toBe('recorders.tailscale.com');
    expect(crd.spec).toMatchObject({
      group: 'tailscale.com',
      scope: 'Cluster',
      names: {
        kind: 'Recorder',
        listKind: 'RecorderList',
        plural: 'recorders',
        singular: 'recorder',
        shortNames: ['rec'],
      },
    });
    expect(version).toMatchObject({
      name: 'v1alpha1',
      served: true,
      storage: true,
      subresources: { status: {} },
      additionalPrinterColumns: [
        {
          name: 'Status',
          type: 'string',
          jsonPath: '.status.conditions[?(@.type == "RecorderReady")].reason',
        },
        { name: 'URL', type: 'string', jsonPath: '.status.devices[?(@.url != "")].url' },
        { name: 'Age', type: 'date', jsonPath: '.metadata.creationTimestamp' },
      ],
    });
    expect(root['required']).toEqual(['spec']);
  });

  it('has its rules', () => {
    expect(field('spec')['x-kubernetes-validations']).toEqual([
      {
        rule: '!(self.replicas > 1 && (!has(self.storage) || !has(self.storage.s3)))',
        message: 'S3 storage must be used when deploying multiple Recorder replicas',
      },
    ]);
    expect(field('spec.tailnet')).toEqual({
      type: 'string',
      'x-kubernetes-validations': [{ rule: 'self == oldSelf', message: 'Recorder tailnet is immutable' }],
    });
  });

  it.each<[string, object]>([
    ['spec.enableUI', { type: 'boolean' }],
    ['spec.replicas', { type: 'integer', format: 'int32', default: 1, minimum: 0 }],
    ['spec.tags[]', { type: 'string', pattern: '^tag:[a-zA-Z][a-zA-Z0-9-]*$' }],
    ['spec.storage.s3.endpoint', { type: 'string' }],
    ['spec.storage.s3.bucket', { type: 'string' }],
    ['spec.storage.s3.credentials.secret.name', { type: 'string' }],
    ['spec.statefulSet.labels', TEXT_MAP],
    ['spec.statefulSet.annotations', TEXT_MAP],
    [`${POD}.labels`, TEXT_MAP],
    [`${POD}.annotations`, TEXT_MAP],
    [`${POD}.nodeSelector`, TEXT_MAP],
    [
      `${POD}.serviceAccount.name`,
      { type: 'string', maxLength: 253, pattern: '^[a-z0-9]([a-z0-9-.]{0,61}[a-z0-9])?$' },
    ],
    [`${POD}.serviceAccount.annotations`, TEXT_MAP],
    [`${POD}.container.env[].name`, { type: 'string', pattern: '^[-._a-zA-Z][-._a-zA-Z0-9]*$' }],
    [`${POD}.container.env[].value`, { type: 'string' }],
    [`${POD}.container.image`, { type: 'string' }],
    [`${POD}.container.imagePullPolicy`, { type: 'string', enum: ['Always', 'Never', 'IfNotPresent'] }],
    ['status.devices[].hostname', { type: 'string' }],
    ['status.devices[].tailnetIPs[]', { type: 'string' }],
    ['status.devices[].url', { type: 'string' }],
  ])('has the field %s', (path, expected) => {
    expect(field(path)).toEqual(expected);
  });

  it('takes the core types as they are', () => {
    const keys = (path: string) => Object.keys(field(path)['properties'] as object);
    expect(keys(`${POD}.affinity`)).toEqual(['nodeAffinity', 'podAffinity', 'podAntiAffinity']);
    expect(keys(`${POD}.tolerations[]`).toSorted()).toEqual([
      'effect',
      'key',
      'operator',
      'tolerationSeconds',
      'value',
    ]);
    expect(keys(`${POD}.imagePullSecrets[]`)).toEqual(['name']);
    expect(keys(`${POD}.securityContext`)).toEqual(
      expect.arrayContaining(['fsGroup', 'runAsUser', 'seccompProfile', 'sysctls']),
    );
    expect(keys(`${POD}.container.securityContext`)).toEqual(
      expect.arrayContaining(['capabilities', 'readOnlyRootFilesystem']),
    );
    expect(keys(`${POD}.container.resources`)).toEqual(['claims', 'limits', 'requests']);
  });

  it('requires and keys what the reference does', () => {
    expect(field(`${POD}.container.env[]`)['required']).toEqual(['name']);
    expect(field('status.conditions[]')['required']).toEqual([
      'lastTransitionTime',
      'message',
      'reason',
      'status',
      'type',
    ]);
    expect(field('status.devices[]')['required']).toEqual(['hostname']);
    expect(field('status.conditions')).toMatchObject({
      'x-kubernetes-list-type': 'map',
      'x-kubernetes-list-map-keys': ['type'],
    });
    expect(field('status.devices')).toMatchObject({
      'x-kubernetes-list-type': 'map',
      'x-kubernetes-list-map-keys': ['hostname'],
    });
  });
});
