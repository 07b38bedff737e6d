import { describe, expect, it } from 'vitest';
import { secretRole } from '../../../src/operator/workload/workload.ts';
import {
  authSecret,
  disruptionBudget,
  role,
  roleBinding,
  serviceAccount,
  stateSecret,
} from '../../../src/operator/workload/object-specs.ts';
import { OPTIONS, group, S3 } from './recorders.ts';

const LABELS = {
  'app.kubernetes.io/name': 'recorder',
  'app.kubernetes.io/instance': 'test',
  'app.kubernetes.io/managed-by': 'tailscale-operator',
};
const OWNERS = [
  {
    apiVersion: 'tailscale.com/v1alpha1',
    kind: 'Recorder',
    name: 'test',
    uid: 'uid-1',
    controller: true,
    blockOwnerDeletion: true,
  },
];

describe('the objects of a Recorder', () => {
  it('all have its labels and the operator’s namespace, and its owner reference but for Secrets', () => {
    const three = group({ replicas: 3, storage: S3 });
    const stored = { key: 'tskey', id: '7', expiresAtMs: 1, tags: ['tag:k8s'] };
    for (const object of [
      serviceAccount(three, OPTIONS),
      role(three, OPTIONS),
      roleBinding(three, OPTIONS),
      disruptionBudget(three, OPTIONS),
      authSecret(three, OPTIONS, 2, stored),
      stateSecret(three, OPTIONS, 2, {}),
    ]) {
      expect(object.metadata).toMatchObject({
        namespace: 'tailcast',
        labels: LABELS,
        ownerReferences: object.kind === 'Secret' ? [] : OWNERS,
      });
    }
  });

  it('bind the role to the account, under a custom name too', () => {
    const custom = group({
      enableUI: true,
      statefulSet: { pod: { serviceAccount: { name: 'test-sa', annotations: { 'cloud/role': 'writer' } } } },
    });
    expect(serviceAccount(custom, OPTIONS).metadata).toMatchObject({
      name: 'test-sa',
      annotations: { 'cloud/role': 'writer' },
    });
    expect(roleBinding(custom, OPTIONS)).toMatchObject({
      metadata: { name: 'test' },
      subjects: [{ kind: 'ServiceAccount', name: 'test-sa', namespace: 'tailcast' }],
      roleRef: { kind: 'Role', name: 'test' },
    });
  });

  it('let a drain take one replica at a time, of this group’s alone', () => {
    expect(disruptionBudget(group({ replicas: 3, storage: S3 }), OPTIONS).spec).toEqual({
      maxUnavailable: 1,
      selector: { matchLabels: LABELS },
    });
  });

  it('let a pod touch the state Secrets and nothing else', () => {
    expect(role(group({ replicas: 2, storage: S3 }), OPTIONS).rules).toEqual([
      {
        apiGroups: [''],
        resources: ['secrets'],
        verbs: ['get', 'patch', 'update'],
        resourceNames: ['test-0', 'test-1'],
      },
      { apiGroups: [''], resources: ['events'], verbs: ['get', 'create', 'patch'] },
    ]);
  });

  it('have no rule about Secrets when there are no replicas, because one without names means all of them', () => {
    expect(role(group({ replicas: 0 }), OPTIONS).rules).toEqual([
      { apiGroups: [''], resources: ['events'], verbs: ['get', 'create', 'patch'] },
    ]);
  });

  it('keep an auth key and what is known about it in one Secret, and hand it to the pod in another', () => {
    const one = group({ enableUI: true });
    const stored = { key: 'tskey-abc', id: 'k1', expiresAtMs: 1_700_000_000_000, tags: ['tag:a', 'tag:b'] };
    expect(authSecret(one, OPTIONS, 0, stored)).toMatchObject({
      metadata: {
        name: 'test-auth-0',
        annotations: {
          'tailcast.dev/key-id': 'k1',
          'tailcast.dev/key-expires': '1700000000000',
          'tailcast.dev/tags': 'tag:a,tag:b',
        },
      },
      data: { authkey: Buffer.from('tskey-abc').toString('base64') },
    });
    expect(stateSecret(one, OPTIONS, 0, { authkey: 'tskey-abc' })).toMatchObject({
      metadata: { name: 'test-0' },
      data: { authkey: Buffer.from('tskey-abc').toString('base64') },
    });
    expect(stateSecret(one, OPTIONS, 0, {})).not.toHaveProperty('data');
  });

  it('carry the Recorder’s tags, or the operator’s, in one order', () => {
    expect(group({}).tags).toEqual(['tag:k8s']);
    expect(group({ tags: ['tag:b', 'tag:a', 'tag:b'] }).tags).toEqual(['tag:a', 'tag:b']);
  });

  it.each([
    ['test-0', { kind: 'state', ordinal: 0 }],
    ['test-12', { kind: 'state', ordinal: 12 }],
    ['test-auth-3', { kind: 'auth', ordinal: 3 }],
    ['test-01', undefined],
    ['test-', undefined],
    ['test-auth-', undefined],
    ['test-notes', undefined],
    ['test', undefined],
    ['other-0', undefined],
    ['test-9999999999', undefined],
  ])('are known by name: %s', (name, expected) => {
    expect(secretRole('test', name)).toEqual(expected);
  });
});
