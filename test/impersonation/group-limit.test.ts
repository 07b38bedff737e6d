import { describe, expect, it } from 'vitest';
import { requireClaimable, reservedGroups } from '../../src/impersonation/group-limit.ts';

describe('groups that Kubernetes itself gives rights to', () => {
  it.each([
    [['system:masters'], ['system:masters']],
    [
      ['devs', 'system:nodes', 'system:serviceaccounts:kube-system'],
      ['system:nodes', 'system:serviceaccounts:kube-system'],
    ],
    [['system:authenticated', 'system:unauthenticated'], []],
    [['devs', 'tag:ci', 'my-system:masters', 'System:masters'], []],
  ])('among %j are %j', (groups, reserved) => {
    expect(reservedGroups(groups)).toEqual(reserved);
  });
});

describe('the limit of a gateway', () => {
  it.each<[string[], string[]]>([
    [[], ['system:masters']],
    [['devs'], ['devs']],
    [['devs'], []],
    [
      ['team-*', 'ops'],
      ['team-a', 'ops', 'team-'],
    ],
    [['*'], ['system:masters']],
  ])('%j lets %j be claimed', (claimable, groups) => {
    expect(() => requireClaimable(claimable, groups)).not.toThrow();
  });

  it('allows requested users only if it is empty', () => {
    const rules = [{ users: [] }, { users: ['admin@example.com'] }];
    expect(() => requireClaimable([], [], rules)).not.toThrow();
    expect(() => requireClaimable(['*'], [], rules.slice(0, 1))).not.toThrow();
    expect(() => requireClaimable(['*'], [], rules)).toThrow('names the user admin@example.com');
  });

  it.each<[string[], string[], string]>([
    [['devs'], ['devs', 'system:masters'], 'system:masters'],
    [['devs'], ['devs2'], 'devs2'],
    [['devs'], ['Devs'], 'Devs'],
    [['team-*'], ['team'], 'team'],
    [['a*b'], ['ab'], 'ab'],
  ])('%j refuses %j', (claimable, groups, beyond) => {
    expect(() => requireClaimable(claimable, groups)).toThrow(
      expect.objectContaining({
        code: 'POLICY_REFUSED',
        detail: expect.stringContaining(`group ${beyond},`) as unknown,
      }),
    );
  });
});
