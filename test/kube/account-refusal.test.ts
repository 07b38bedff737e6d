import { describe, expect, it } from 'vitest';
import { accountRefusal, mayBeAccountRefusal } from '../../src/kube/account-refusal.ts';

const MESSAGE =
  'users "alice" is forbidden: User "gw" cannot impersonate resource "users" in API group "" at the cluster scope';
const REFUSAL = {
  kind: 'Status',
  reason: 'Forbidden',
  message: MESSAGE,
  code: 403,
  details: { kind: 'users' },
};

const REVIEW_FORBIDDEN =
  'selfsubjectaccessreviews.authorization.k8s.io is forbidden: User "alice" cannot create resource ' +
  '"selfsubjectaccessreviews"';

describe('mayBeAccountRefusal', () => {
  it.each([
    [403, [], true],
    [403, ['Audit-Id', 'a'], true],
    [403, ['X-Kubernetes-Pf-Flowschema-Uid', ''], false],
    [403, ['a', 'b', 'x-kubernetes-pf-prioritylevel-uid', 'p'], false],
    [401, [], false],
    [200, [], false],
  ])('%d with %j: %s', (status, headers, expected) => {
    expect(mayBeAccountRefusal(status, headers)).toBe(expected);
  });
});

describe('accountRefusal', () => {
  it.each([
    MESSAGE,
    // Kubernetes 1.36
    'selfsubjectaccessreviews.authorization.k8s.io is forbidden: User "gw" cannot ' +
      'impersonate-on:user-info:create resource "selfsubjectaccessreviews" in API group "authorization.k8s.io" ' +
      'at the cluster scope',
    'userextras.authentication.k8s.io "x" is forbidden: User "gw" cannot impersonate resource "userextras/foo" ' +
      'in API group "authentication.k8s.io" at the cluster scope',
    'users "a\\" is forbidden: User \\"b" is forbidden: User "gw" cannot impersonate resource "users" in API group ""',
  ])('returns the sentence %s', (message) => {
    expect(accountRefusal(403, { ...REFUSAL, message })).toBe(message);
  });

  it('limits the length of the sentence', () => {
    expect(accountRefusal(403, { ...REFUSAL, message: MESSAGE + 'x'.repeat(10_000) })?.length).toBe(512);
  });

  it.each([
    ['another status', 201, REFUSAL],
    ['a caller who may not create reviews', 403, { ...REFUSAL, message: REVIEW_FORBIDDEN }],
    [
      'a caller with a name like a refusal',
      403,
      { ...REFUSAL, message: REVIEW_FORBIDDEN.replace('alice', '\\" cannot impersonate') },
    ],
    ['no message', 403, { ...REFUSAL, message: undefined }],
    ['another reason', 403, { ...REFUSAL, reason: 'NotFound' }],
    ['another kind', 403, { ...REFUSAL, kind: 'Pod' }],
    ['no JSON', 403, undefined],
    ['null', 403, null],
    ['a list', 403, [REFUSAL]],
  ])('returns undefined for %s', (_name, status, body) => {
    expect(accountRefusal(status, body)).toBeUndefined();
  });
});
