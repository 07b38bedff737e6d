import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { KINDS } from '../../../src/operator/kube-object.ts';
import { createProxyGroupPolicyReconciler } from '../../../src/operator/proxy-group-policy/reconcile.ts';
import { createBench, type Bench } from '../bench.ts';

const ADMISSION = '/apis/admissionregistration.k8s.io/v1';
const POLICIES = `${ADMISSION}/validatingadmissionpolicies`;
const BINDINGS = `${ADMISSION}/validatingadmissionpolicybindings`;

let bench: Bench;
beforeEach(async () => {
  bench = await createBench();
});
afterEach(() => bench.close());

function put(name: string, spec: object): string {
  return bench.put(KINDS.proxyGroupPolicy, { name, namespace: 'prod' }, spec);
}

const reconcile = (leaving = false): Promise<number | undefined> =>
  createProxyGroupPolicyReconciler({ ...bench.deps(), leaving }).reconcile('prod');

const left = (): readonly string[] =>
  [...bench.api.objects.keys()].filter((path) => path.startsWith(ADMISSION));

function expressionOf(direction: string): string {
  const spec = bench.object(`${POLICIES}/ts-${direction}-prod`)?.['spec'] as {
    validations: { expression: string }[];
  };
  return spec.validations[0]?.expression ?? '';
}

describe('the ProxyGroupPolicies of a namespace', () => {
  it('add up to one admission policy per direction, bound to the namespace', async () => {
    put('first', { ingress: ['web', 'shared'], egress: [] });
    put('second', { ingress: ['shared', 'api'] });
    expect(await reconcile()).toBeUndefined();
    expect(expressionOf('ingress')).toContain('in ["api", "shared", "web"]');
    expect(expressionOf('egress')).toContain('in []');
    for (const direction of ['ingress', 'egress'])
      expect(bench.object(`${BINDINGS}/ts-${direction}-prod`)?.['spec']).toEqual({
        policyName: `ts-${direction}-prod`,
        validationActions: ['Deny'],
        matchResources: { namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'prod' } } },
      });
  });

  it('also apply to updates of the status, which can change annotations', async () => {
    put('first', { ingress: ['web'] });
    await reconcile();
    const resourcesOf = (direction: string): unknown => {
      const spec = bench.object(`${POLICIES}/ts-${direction}-prod`)?.['spec'] as {
        matchConstraints: { resourceRules: { resources: string[] }[] };
      };
      return spec.matchConstraints.resourceRules.map(({ resources }) => resources);
    };
    expect(resourcesOf('egress')).toEqual([['services', 'services/status']]);
    expect(resourcesOf('ingress')).toEqual([
      ['ingresses', 'ingresses/status'],
      ['services', 'services/status'],
    ]);
  });

  it('do not apply to updates of the status that change no annotation', async () => {
    put('first', { ingress: ['web'] });
    await reconcile();
    for (const direction of ['ingress', 'egress']) {
      const spec = bench.object(`${POLICIES}/ts-${direction}-prod`)?.['spec'] as {
        matchConditions: { expression: string }[];
      };
      expect(spec.matchConditions.map(({ expression }) => expression)).toEqual([
        '!has(request.subResource) || request.subResource != "status" || ' +
          'has(object.metadata.annotations) != has(oldObject.metadata.annotations) || ' +
          '(has(object.metadata.annotations) && object.metadata.annotations != oldObject.metadata.annotations)',
      ]);
    }
  });

  it('cause no write while nothing changes', async () => {
    put('first', { ingress: ['web'] });
    await reconcile();
    const { writes } = bench;
    await reconcile();
    expect(bench.writes).toBe(writes);
  });

  it('cannot add to the expression: names that no ProxyGroup can have are left out', async () => {
    put('first', { ingress: ['web"] || true || "x" in ["', 'UPPER', 'ok'] });
    await reconcile();
    expect(expressionOf('ingress')).toContain('in ["ok"]');
  });

  it('leave no admission policy when the last of them goes, or the operator', async () => {
    const path = put('first', { ingress: ['web'] });
    await reconcile();
    expect(left()).toHaveLength(4);
    bench.api.remove(path);
    await reconcile();
    expect(left()).toEqual([]);
    put('again', {});
    await reconcile();
    await reconcile(true);
    expect(left()).toEqual([]);
  });

  it('do not remove an admission policy of somebody else', async () => {
    bench.api.put(`${POLICIES}/ts-ingress-prod`, {
      apiVersion: 'admissionregistration.k8s.io/v1',
      kind: 'ValidatingAdmissionPolicy',
      metadata: { name: 'ts-ingress-prod' },
      spec: {},
    });
    await reconcile();
    expect(left()).toHaveLength(1);
  });
});
