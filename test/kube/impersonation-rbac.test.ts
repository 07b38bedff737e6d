import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parseAllDocuments } from 'yaml';
import { impersonationRbac, type ImpersonationRights } from '../../src/kube/impersonation-rbac.ts';

const ANYBODY: ImpersonationRights = {
  users: [],
  groups: [],
  constrained: false,
  auditExtras: true,
  namespace: 'tailcast',
  account: 'tailcast-gateway',
};

interface Rule {
  readonly apiGroups?: readonly string[];
  readonly resources?: readonly string[];
  readonly nonResourceURLs?: readonly string[];
  readonly verbs: readonly string[];
  readonly resourceNames?: readonly string[];
}
const rulesOf = (objects: readonly unknown[]): readonly Rule[] =>
  (objects[1] as { readonly rules: readonly Rule[] }).rules;

/** Returns one line per right, so that the grouping of rules does not affect the comparison. */
const rights = (objects: readonly unknown[]): readonly string[] =>
  rulesOf(objects)
    .flatMap(({ apiGroups = [''], resources, nonResourceURLs = [], verbs, resourceNames = ['*'] }) =>
      apiGroups.flatMap((group) =>
        (resources ?? nonResourceURLs).flatMap((resource) =>
          verbs.flatMap((verb) => resourceNames.map((name) => `${verb} ${resource}.${group} ${name}`)),
        ),
      ),
    )
    .toSorted();

describe('the rights of a gateway', () => {
  it.each([
    ['rbac/gateway.yaml', false],
    ['rbac/gateway-constrained.yaml', true],
  ])('are those of deploy/%s', (file, constrained) => {
    const text = readFileSync(new URL(`../../deploy/${file}`, import.meta.url), 'utf8');
    const written = parseAllDocuments(text).map((document) => document.toJS() as Record<string, unknown>);
    const made = impersonationRbac({ ...ANYBODY, constrained });
    const withoutRules = (objects: readonly Readonly<Record<string, unknown>>[]) =>
      objects.map(({ rules: _rules, ...rest }) => rest);
    expect(withoutRules(made)).toEqual(withoutRules(written));
    expect(rights(made)).toEqual(rights(written));
  });

  it.each([false, true])('are limited to names (constrained: %s)', (constrained) => {
    const some = { users: ['bob', 'alice', 'bob'], groups: ['devs'], constrained, auditExtras: false };
    const rules = rulesOf(impersonationRbac({ ...ANYBODY, ...some }));
    const verbs = [constrained ? 'impersonate:user-info' : 'impersonate'];
    expect(rules[0]).toMatchObject({ resources: ['users'], verbs, resourceNames: ['alice', 'bob'] });
    expect(rules[1]).toMatchObject({ resources: ['groups'], verbs, resourceNames: ['devs'] });
    expect(JSON.stringify(rules)).not.toContain('userextras');
  });

  it('are never a right in the name of the account itself', () => {
    for (const constrained of [false, true]) {
      for (const { verbs } of rulesOf(impersonationRbac({ ...ANYBODY, constrained }))) {
        for (const verb of verbs) expect(verb).toMatch(/^impersonate/);
      }
    }
  });
});
