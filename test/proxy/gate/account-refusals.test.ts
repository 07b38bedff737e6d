import { describe, expect, it } from 'vitest';
import type { ImpersonationTarget } from '../../../src/impersonation/target.ts';
import { parseTarget } from '../../../src/kube/canonical-target.ts';
import { parseRequestInfo } from '../../../src/kube/request-info.ts';
import { createAccountRefusals } from '../../../src/proxy/gate/account-refusals.ts';

const info = parseRequestInfo('GET', parseTarget('/api/v1/pods'));
const caller = (user: string): ImpersonationTarget => ({ user, groups: [], extra: [] });
const admission = (user: string) => ({ info, impersonation: caller(user) });

/** Creates `AccountRefusals` whose API server responds with `refusal`, and counts the requests to that server. */
function counting(refusal: string | undefined, marks = false) {
  let nowMs = 0;
  const asked: string[] = [];
  const refusals = createAccountRefusals(
    ({ user }) => {
      asked.push(user);
      return Promise.resolve({ refusal, marks });
    },
    () => nowMs,
  );
  return { asked, refusals, pass: (ms: number) => (nowMs += ms) };
}

describe('account refusals', () => {
  it('are checked once per second for each caller', async () => {
    const { asked, refusals, pass } = counting('users "a" is forbidden');
    await expect(refusals.find(admission('a'), 403, [])).resolves.toMatchObject({
      code: 'UPSTREAM_REFUSED_ACCOUNT',
      detail: 'users "a" is forbidden',
    });
    await refusals.find(admission('a'), 403, []);
    await refusals.find(admission('b'), 403, []);
    expect(asked).toEqual(['a', 'b']);
    pass(1_000);
    await refusals.find(admission('a'), 403, []);
    expect(asked).toEqual(['a', 'b', 'a']);
  });

  it.each([
    ['another status', admission('a'), 401],
    ['noauth mode', { info, impersonation: undefined }, 403],
    [
      'another cluster',
      { ...admission('a'), info: parseRequestInfo('GET', parseTarget('/clusters/c/api/v1/pods')) },
      403,
    ],
  ])('are not checked in %s', (_name, admitted, status) => {
    const { asked, refusals } = counting('x');
    expect(refusals.find(admitted, status, [])).toBeUndefined();
    expect(asked).toEqual([]);
  });

  it.each([
    ['a list', '/api/v1/pods', true, 'UPSTREAM_REFUSED_ACCOUNT'],
    ['an API server without priority and fairness', '/api/v1/pods', false, undefined],
    ['a pod', '/api/v1/namespaces/n/pods/p/proxy/x', true, undefined],
    ['a pod, in the old form', '/api/v1/proxy/namespaces/n/pods/p', true, undefined],
    ['a log', '/api/v1/namespaces/n/pods/p/log', true, undefined],
  ])('are confirmed without a mark in the response of %s', async (_name, path, marks, code) => {
    const { refusals } = counting(undefined, marks);
    const admitted = { ...admission('a'), info: parseRequestInfo('GET', parseTarget(path)) };
    expect((await refusals.find(admitted, 403, ['Content-Type', 'text/plain']))?.code).toBe(code);
    expect(refusals.find(admitted, 403, ['X-Kubernetes-Pf-Flowschema-Uid', '1'])).toBeUndefined();
  });

  it('are not confirmed by a request that fails', async () => {
    const refusals = createAccountRefusals(
      () => Promise.reject(new Error('no')),
      () => 0,
    );
    await expect(refusals.find(admission('a'), 403, [])).resolves.toBeUndefined();
  });

  it('are checked by at most 64 concurrent requests', () => {
    const refusals = createAccountRefusals(
      () => new Promise(() => {}),
      () => 0,
    );
    const found = Array.from({ length: 70 }, (_, index) => refusals.find(admission(`u${index}`), 403, []));
    expect(found.filter((promise) => promise !== undefined)).toHaveLength(64);
  });
});
