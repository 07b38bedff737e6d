/** Steps of access requests that recorders have stored, but that did not take effect. */
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { AccessStep } from '../../src/access/requests.ts';
import { as, decider, pendingId, refusalOf, RULE, signal, startRig, user, type Rig } from './rig.ts';

const PODS = '/api/v1/namespaces/default/pods';
const alice = user('alice', [RULE]);
const bob = user('bob');
const carol = user('carol');

let rig: Rig;
beforeEach(async () => {
  rig = await startRig();
});
afterEach(() => rig[Symbol.asyncDispose]());

it('an approval that loses against a denial is logged as failed, without its approver', async () => {
  const second = rig.gateway(bob);
  const steps: AccessStep[] = [];
  const first = rig.gateway(alice, {
    record: async (step) => {
      steps.push(step);
      if (step.step === 'approved') await second.access.decide(id, 'denied', decider(carol, 'no'), signal);
    },
  });
  const id = await pendingId(first.ask('GET', PODS, ...as('sre')));
  const error = await refusalOf(first.access.decide(id, 'approved', decider(bob), signal));
  expect(error.message).toContain('is denied already');
  expect(steps.map(({ step, by }) => [step, by.name])).toEqual([
    ['requested', 'alice@example.com'],
    ['approved', 'bob@example.com'],
    ['approvalFailed', 'bob@example.com'],
  ]);
  expect(steps[2]?.record).toMatchObject({
    state: 'denied',
    decisions: [{ by: { name: 'carol@example.com' } }],
  });
});

it.each([
  [403, ['approved', 'approvalFailed']],
  // the API server may have stored the approval
  [500, ['approved']],
])('an approval that the API server answers with %d is logged as %s', async (status, logged) => {
  const gateway = rig.gateway(alice);
  const id = await pendingId(gateway.ask('GET', PODS, ...as('sre')));
  rig.api.interfere = ({ method }) => (method === 'PATCH' ? { status, body: {} } : undefined);
  const error = await refusalOf(gateway.access.decide(id, 'approved', decider(bob), signal));
  expect(error.code).toBe('ACCESS_REQUEST_UNAVAILABLE');
  expect(gateway.steps.map(({ step }) => step)).toEqual(['requested', ...logged]);
});

it('a request without an approval that cannot be stored is logged as failed', async () => {
  const gateway = rig.gateway(user('alice', [{ request: { groups: ['sre'] } }]));
  rig.api.interfere = ({ method }) => (method === 'PATCH' ? { status: 500, body: {} } : undefined);
  expect((await refusalOf(gateway.ask('GET', PODS, ...as('sre')))).code).toBe('ACCESS_REQUEST_UNAVAILABLE');
  expect(gateway.steps.map(({ step }) => step)).toEqual(['granted', 'requestFailed']);
  expect(rig.api.objects.size).toBe(0);
});
