import { describe, expect, it } from 'vitest';
import { KINDS, type KubeObject, type ResourceKind } from '../../../src/operator/kube-object.ts';
import { superviseIngressGroups } from '../../../src/operator/supervisions.ts';

const object = (kind: string, name: string, metadata: object, spec: object = {}): KubeObject => ({
  apiVersion: 'v1',
  kind,
  metadata: { name, ...metadata },
  spec,
});
const service = (name: string, annotations: object): KubeObject =>
  object('Service', name, { namespace: 'prod', annotations });
const slice = (namespace: string, name: string): KubeObject =>
  object('EndpointSlice', `${name}-x`, { namespace, labels: { 'kubernetes.io/service-name': name } });
const GROUP = object('ProxyGroup', 'in', { uid: 'u' }, { type: 'ingress' });

function watched(tailnetServices: boolean) {
  const { others } = superviseIngressGroups(
    { reconcile: () => Promise.resolve(undefined) },
    { namespace: 'tailcast', defaultClass: '', services: true, ingresses: true, tailnetServices },
  );
  return others.find(({ kind }) => kind === KINDS.endpointSlice);
}

describe('what stands behind Services', () => {
  const services = [service('web', { 'tailscale.com/proxy-group': 'in' }), service('plain', {})];
  const others = (kind: ResourceKind): readonly KubeObject[] => (kind === KINDS.service ? services : []);

  it('is looked at for the group that serves one, and for nobody else', () => {
    const names = (one: KubeObject, groups: readonly KubeObject[] = [GROUP]): readonly string[] | undefined =>
      watched(true)?.names(one, groups, others);
    expect(names(slice('prod', 'web'))).toEqual(['in']);
    expect(names(slice('prod', 'plain'))).toEqual([]);
    expect(names(slice('test', 'web'))).toEqual([]);
    expect(names(slice('prod', 'web'), [])).toEqual([]);
  });

  it('is watched where there are Tailscale Services alone', () => {
    expect(watched(true)).toBeDefined();
    expect(watched(false)).toBeUndefined();
  });

  it('is kept by its labels', () => {
    const full = { ...slice('prod', 'web'), endpoints: [{ addresses: ['10.0.0.1'] }] };
    expect(watched(true)?.keep?.(full)).toEqual({
      apiVersion: 'v1',
      kind: 'EndpointSlice',
      metadata: slice('prod', 'web').metadata,
    });
  });
});
