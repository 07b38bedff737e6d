import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../src/errors.ts';
import { MAX_GROUPS, resolveTarget, type ImpersonationTarget } from '../../src/impersonation/target.ts';
import type { TaggedIdentity, UserIdentity } from '../../src/tailnet/identity.ts';

const node = {
  nodeId: 'stable-id',
  nodeName: 'node.ts.net',
  addresses: ['100.64.0.1'],
  capabilities: new Map<string, readonly unknown[]>(),
};

function person(login: string): UserIdentity {
  return { ...node, kind: 'user', userId: 1n, login, displayName: 'Foo' };
}

function machine(tags: readonly string[], nodeName = 'node.ts.net'): TaggedIdentity {
  return { ...node, nodeName, kind: 'tagged', tags };
}

function rules(...groups: readonly (readonly string[])[]) {
  return groups.map((names) => ({ groups: names }));
}

const MALFORMED = expect.objectContaining({ code: 'IDENTITY_MALFORMED' });

describe('resolveTarget in the conformance cases', () => {
  it('user', () => {
    expect(resolveTarget(person('foo@example.com'), [])).toEqual({
      user: 'foo@example.com',
      groups: [],
      extra: [],
    });
  });

  it('tagged', () => {
    expect(resolveTarget(machine(['tag:foo', 'tag:bar']), [])).toEqual({
      user: 'node.ts.net',
      groups: ['tag:foo', 'tag:bar'],
      extra: [],
    });
  });

  it('user-with-cap', () => {
    const seven = rules(['group1', 'group2'], ['group1', 'group3'], ['group4'], ['group2'], [], [], []);
    expect(resolveTarget(person('foo@example.com'), seven)).toMatchObject({
      user: 'foo@example.com',
      groups: ['group1', 'group2', 'group3', 'group4'],
    });
  });

  it('tagged-with-cap', () => {
    expect(resolveTarget(machine(['tag:foo', 'tag:bar']), rules(['group1']))).toMatchObject({
      user: 'node.ts.net',
      groups: ['group1'],
    });
  });

  it('drops the dot at the end of a node name', () => {
    expect(resolveTarget(machine(['tag:a'], 'node.ts.net.'), []).user).toBe('node.ts.net');
  });

  it('lets an admin grant groups that Kubernetes reserves', () => {
    expect(resolveTarget(person('a@b'), rules(['system:masters'])).groups).toEqual(['system:masters']);
  });
});

const BAD_NAMES: readonly (readonly [what: string, name: string])[] = [
  ['empty', ''],
  ['a space', ' '],
  ['a no-break space', '\u00a0'],
  ['a leading space', ' a@b'],
  ['a trailing space', 'a@b '],
  ['CR', 'a\r@b'],
  ['LF', 'a@b\nImpersonate-Group: system:masters'],
  ['NUL', 'a\0b'],
  ['tab', 'a\tb'],
  ['delete', 'a\x7fb'],
  ['a C1 control', 'a\x85b'],
  ['a line separator', 'a\u2028b'],
  ['a direction override', 'a\u202eb'],
  ['a zero-width space', 'a\u200bb'],
  ['half a surrogate pair', 'a\ud800b'],
  ['257 bytes', 'a'.repeat(257)],
  ['257 bytes in fewer characters', `${'é'.repeat(128)}a`],
];

describe('resolveTarget refuses', () => {
  it.each(BAD_NAMES)('A2, A3 a login with %s', (_what, name) => {
    expect(() => resolveTarget(person(name), rules(['g']))).toThrow(MALFORMED);
  });

  it.each(BAD_NAMES)('A3 a group with %s', (_what, name) => {
    expect(() => resolveTarget(person('a@b'), rules(['g'], [name]))).toThrow(
      expect.objectContaining({ code: 'GRANT_MALFORMED' }),
    );
  });

  it.each(BAD_NAMES)('a tag with %s', (_what, name) => {
    expect(() => resolveTarget(machine(['tag:a', name]), [])).toThrow(MALFORMED);
  });

  it.each(['tagged-devices', 'Tagged-Devices'])('A2 the login %s', (login) => {
    expect(() => resolveTarget(person(login), [])).toThrow(MALFORMED);
  });

  it.each([
    'system:masters',
    'system:serviceaccount:kube-system:x',
    'system:',
    'SYSTEM:node:x',
    'system:anonymous',
  ])('A4 the user %s', (name) => {
    expect(() => resolveTarget(person(name), [])).toThrow(MALFORMED);
    expect(() => resolveTarget(machine(['tag:a'], name), [])).toThrow(MALFORMED);
  });

  it('a node name that is only a dot', () => {
    expect(() => resolveTarget(machine(['tag:a'], '.'), [])).toThrow(MALFORMED);
  });

  it('too many groups', () => {
    const many = (count: number) => rules(Array.from({ length: count }, (_, index) => `g${index}`));
    expect(resolveTarget(person('a@b'), many(MAX_GROUPS)).groups).toHaveLength(MAX_GROUPS);
    expect(() => resolveTarget(person('a@b'), many(MAX_GROUPS + 1))).toThrow(
      expect.objectContaining({ code: 'GRANT_MALFORMED' }),
    );
  });
});

describe('resolveTarget', () => {
  it('accepts names of 256 bytes and of any script', () => {
    expect(resolveTarget(person('a'.repeat(256)), []).user).toHaveLength(256);
    expect(resolveTarget(person('jürgen@例え.テスト'), []).user).toBe('jürgen@例え.テスト');
  });

  it('names a user who is neither empty nor reserved, or throws', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.array(fc.string()), (login, groups) => {
        const target = resolvedOrRefused(login, groups);
        if (target === undefined) return true;
        const reserved = target.user.trim() === '' || target.user.toLowerCase().startsWith('system:');
        return (
          target.user === login &&
          !reserved &&
          ![login, ...target.groups].some((name) => /\p{Cc}/u.test(name))
        );
      }),
    );
    expect(resolvedOrRefused('', [])).toBeUndefined();
    expect(resolvedOrRefused('a@b', ['g'])).toBeDefined();
  });
});

function resolvedOrRefused(login: string, groups: readonly string[]): ImpersonationTarget | undefined {
  try {
    return resolveTarget(person(login), rules(groups));
  } catch (error) {
    if (error instanceof TailcastError) return undefined;
    throw error;
  }
}
