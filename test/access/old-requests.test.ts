/** Objects of access requests whose access ended long ago. */
import { expect, it, vi } from 'vitest';
import { as, RULE, startRig, user } from './rig.ts';

const PODS = '/api/v1/namespaces/default/pods';
const WEEK_MS = 7 * 86_400_000;

it('are removed a week after the end, although nobody creates another request', async () => {
  await using rig = await startRig();
  const gateway = rig.gateway(user('alice', [{ request: RULE.request, maxDuration: RULE.maxDuration }]), {
    expiryMs: 5,
  });
  await gateway.ask('GET', PODS, ...as('sre'));
  rig.now += 3_600_000 + WEEK_MS - 1;
  await vi.waitFor(() => expect(gateway.steps.at(-1)?.step).toBe('expired'));
  expect(rig.api.objects.size).toBe(1);
  rig.now += 2;
  await vi.waitFor(() => expect(rig.api.objects.size).toBe(0));
});
