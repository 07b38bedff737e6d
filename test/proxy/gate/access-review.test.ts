import { describe, expect, it } from 'vitest';
import { openAccessReviews } from '../../../src/compose/access-review.ts';
import { parseTarget } from '../../../src/kube/canonical-target.ts';
import { classifyRequest } from '../../../src/kube/interactive.ts';
import { parseRequestInfo } from '../../../src/kube/request-info.ts';
import {
  createAccessReviews,
  MAX_REVIEWS,
  questionOf,
  REVIEW_TTL_MS,
  type AccessQuestion,
  type AskAccess,
} from '../../../src/proxy/gate/access-review.ts';
import { createGate, type Gate } from '../../../src/proxy/gate/gate.ts';
import { policyClassOf } from '../../../src/proxy/gate/policy.ts';
import { startApiServerDouble } from '../../support/api-server-double.ts';
import { person } from '../rig.ts';
import { codeOf } from '../../support/error-code.ts';

const signal = new AbortController().signal;
const ALICE = { user: 'alice@example.com', groups: ['devs'], extra: [] };
const EXEC = '/api/v1/namespaces/n/pods/p/exec?command=sh&stdout=1';

function questionFor(method: string, path: string, upgrade: boolean): AccessQuestion | undefined {
  const target = parseTarget(path);
  const info = parseRequestInfo(method, target);
  const requestClass = classifyRequest(info, { upgrade, method });
  return questionOf(policyClassOf({ requestClass, info, target, upgrade }), info);
}

const question = (name: string): AccessQuestion => ({ verb: 'get', path: `/${name}` });

describe('the access review', () => {
  const pod = { group: '', version: 'v1', namespace: 'n', resource: 'pods', name: 'p' };
  it.each<[string, string, boolean, object | undefined]>([
    // every HTTP method that starts a session needs the verb `create`
    ['GET', EXEC, true, { ...pod, verb: 'create', subresource: 'exec' }],
    ['POST', EXEC, true, { ...pod, verb: 'create', subresource: 'exec' }],
    ['GET', '/api/v1/namespaces/n/pods/p/attach', true, { ...pod, verb: 'create', subresource: 'attach' }],
    ['GET', '/api/v1/namespaces/n/pods/p/proxy/x', true, { ...pod, verb: 'create', subresource: 'proxy' }],
    ['GET', '/api/v1/namespaces/n/pods/p/proxy/x', false, { ...pod, verb: 'get', subresource: 'proxy' }],
    ['GET', '/api/v1/nodes/a/proxy/run/n/p/c', false, { verb: 'create', resource: 'nodes', name: 'a' }],
    ['GET', '/api/v1/nodes/a/proxy/metrics', false, { verb: 'get', resource: 'nodes', subresource: 'proxy' }],
    [
      'GET',
      '/apis/x.io/v1/namespaces/n/vms/a/console',
      true,
      { verb: 'create', group: 'x.io', resource: 'vms' },
    ],
    ['GET', '/odd/path', true, { verb: 'get', path: '/odd/path' }],
    ['GET', '/api/v1/namespaces/n/pods', false, undefined],
    ['GET', '/api/v1/namespaces/n/pods/p/log', false, undefined],
    ['POST', '/api/v1/namespaces/n/pods', false, undefined],
    [
      'GET',
      '/clusters/root:a/api/v1/namespaces/n/pods/p/exec',
      true,
      { clusterPrefix: '/clusters/root:a', verb: 'create' },
    ],
  ])('about %s %s, upgrade %s', (method, path, upgrade, expected) => {
    const asked = questionFor(method, path, upgrade);
    if (expected === undefined) expect(asked).toBeUndefined();
    else expect(asked).toMatchObject(expected);
  });
});

describe('the cache of reviews', () => {
  it('asks once within its duration, for each caller and each action', async () => {
    let now = 0;
    const asked: string[] = [];
    const ask: AskAccess = async (about, { user, groups, extra }) => {
      asked.push(JSON.stringify([about, user, groups, extra]));
      return true;
    };
    const reviews = createAccessReviews(ask, () => now);
    const callers = [
      ALICE,
      { ...ALICE, groups: [] },
      { ...ALICE, user: 'bob@example.com' },
      { ...ALICE, extra: [['node', 'n1'] as const] },
    ];
    for (let round = 0; round < 2; round += 1) {
      for (const caller of callers) await reviews.assertAllowed(question('a'), caller, signal);
      await reviews.assertAllowed(question('b'), ALICE, signal);
    }
    expect(new Set(asked).size).toBe(5);
    expect(asked).toHaveLength(5);
    now = REVIEW_TTL_MS - 1;
    await reviews.assertAllowed(question('a'), ALICE, signal);
    expect(asked).toHaveLength(5);
    now = REVIEW_TTL_MS;
    await reviews.assertAllowed(question('a'), ALICE, signal);
    expect(asked).toHaveLength(6);
  });

  it('refuses denied actions, and actions whose review failed, which are asked again', async () => {
    let answer: () => Promise<boolean> = async () => false;
    const reviews = createAccessReviews(
      () => answer(),
      () => 0,
    );
    expect(await codeOf(reviews.assertAllowed(question('a'), ALICE, signal))).toBe('ACCESS_REVIEW_REFUSED');
    answer = () => Promise.reject(new Error('no route'));
    expect(await codeOf(reviews.assertAllowed(question('b'), ALICE, signal))).toBe('ACCESS_REVIEW_FAILED');
    answer = async () => true;
    expect(await codeOf(reviews.assertAllowed(question('b'), ALICE, signal))).toBeUndefined();
  });

  it('has a limited size', async () => {
    let count = 0;
    const reviews = createAccessReviews(
      async () => {
        count += 1;
        return true;
      },
      () => 0,
    );
    for (let name = 0; name < MAX_REVIEWS; name += 1) {
      await reviews.assertAllowed(question(String(name)), ALICE, signal);
    }
    await reviews.assertAllowed(question('0'), ALICE, signal);
    expect(count).toBe(MAX_REVIEWS);
    await reviews.assertAllowed(question('one more'), ALICE, signal);
    await reviews.assertAllowed(question('0'), ALICE, signal);
    expect(count).toBe(MAX_REVIEWS + 2);
  });
});

describe('the gate', () => {
  function gateOver(answers: { allowed: boolean | Error; asked: number }): Gate {
    let now = 0;
    return createGate({
      mode: 'auth',
      identities: { whois: async () => person() },
      upstreamHost: 'kubernetes.test:6443',
      authorization: async () => 'Bearer token',
      reviews: createAccessReviews(
        async () => {
          answers.asked += 1;
          if (answers.allowed instanceof Error) throw answers.allowed;
          return answers.allowed;
        },
        () => (now += REVIEW_TTL_MS),
      ),
      nowMs: () => 0,
      createId: () => 'id-1',
    });
  }
  const peer = { address: '100.64.0.1', port: 1, source: 'socket' } as const;
  const exec = { method: 'GET', target: EXEC, rawHeaders: ['Host', 'gateway'], peer, upgrade: true };

  it('requests a review before a session, and again during the session', async () => {
    const answers: { allowed: boolean | Error; asked: number } = { allowed: true, asked: 0 };
    const gate = gateOver(answers);
    const admission = await gate.admit(exec, signal);
    await gate.confirm(admission, peer, signal);
    expect(answers.asked).toBe(2);
    answers.allowed = false;
    expect(await codeOf(gate.confirm(admission, peer, signal))).toBe('ACCESS_REVIEW_REFUSED');
    answers.allowed = new Error('no route');
    expect(await codeOf(gate.confirm(admission, peer, signal))).toBe('ACCESS_REVIEW_FAILED');
    expect(await codeOf(gate.admit(exec, signal))).toBe('ACCESS_REVIEW_FAILED');
  });

  it('requests no review for ordinary requests', async () => {
    const answers = { allowed: false, asked: 0 };
    await gateOver(answers).admit({ ...exec, target: '/api/v1/pods', upgrade: false }, signal);
    expect(answers.asked).toBe(0);
  });
});

describe('the review request to the API server', () => {
  it('is sent as the caller, and the status of the response decides', async () => {
    const double = await startApiServerDouble();
    try {
      const reviews = openAccessReviews({ accessReview: true, mode: 'auth' }, double.apiServer)!;
      double.allowed = ({ verb, resource, subresource }) =>
        verb === 'create' && resource === 'pods' && subresource === 'exec';
      double.created = true;
      await reviews.assertAllowed(questionFor('GET', EXEC, true)!, ALICE, signal);
      expect(double.impersonated).toEqual(['alice@example.com', 'devs']);
      const attach = questionFor('GET', '/api/v1/namespaces/n/pods/p/attach', true)!;
      expect(await codeOf(reviews.assertAllowed(attach, ALICE, signal))).toBe('ACCESS_REVIEW_REFUSED');
      for (const failure of [401, 403, 500, 200]) {
        double.failure = failure;
        const bob = { ...ALICE, user: `bob-${failure}@example.com` };
        expect(await codeOf(reviews.assertAllowed(attach, bob, signal))).toBe('ACCESS_REVIEW_FAILED');
      }
    } finally {
      await double.close();
    }
  });

  it("that is refused because of the gateway's credential makes the gateway read the credential again", async () => {
    const double = await startApiServerDouble();
    let refusals = 0;
    const apiServer = { ...double.apiServer, refused: () => void (refusals += 1) };
    try {
      const reviews = openAccessReviews({ accessReview: true, mode: 'auth' }, apiServer)!;
      for (const [failure, times] of [
        [403, 0],
        [401, 1],
      ] as const) {
        double.failure = failure;
        expect(await codeOf(reviews.assertAllowed(questionFor('GET', EXEC, true)!, ALICE, signal))).toBe(
          'ACCESS_REVIEW_FAILED',
        );
        expect(refusals).toBe(times);
      }
    } finally {
      await double.close();
    }
  });

  it('is sent only in auth mode, and is off by default', async () => {
    const double = await startApiServerDouble();
    try {
      expect(openAccessReviews({ accessReview: false, mode: 'noauth' }, double.apiServer)).toBeUndefined();
      expect(() => openAccessReviews({ accessReview: true, mode: 'noauth' }, double.apiServer)).toThrow(
        'accessReview needs mode=auth',
      );
    } finally {
      await double.close();
    }
  });
});
