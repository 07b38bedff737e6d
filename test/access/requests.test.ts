import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { AccessRequestsDeps, AccessStep } from '../../src/access/requests.ts';
import { TailcastError } from '../../src/errors.ts';
import { responseWarnings } from '../../src/kube/warning.ts';
import {
  as,
  COLLECTION,
  decider,
  pendingId,
  refusalOf,
  RULE,
  sent,
  signal,
  startRig,
  user,
  type Rig,
} from './rig.ts';

const PODS = '/api/v1/namespaces/default/pods';
const alice = user('alice', [RULE]);
const bob = user('bob');
const carol = user('carol');
const mallory = user('mallory');

let rig: Rig;
beforeEach(async () => {
  rig = await startRig();
});
afterEach(() => rig[Symbol.asyncDispose]());

/** Requests the group `sre` as the gateway's caller, and approves the request as another user. */
async function approved(gateway: ReturnType<Rig['gateway']>): Promise<string> {
  const id = await pendingId(gateway.ask('GET', PODS, ...as('sre')));
  await gateway.access.decide(id, 'approved', decider(bob), signal);
  return id;
}

describe('access without an approval', () => {
  it('is granted with exactly the named groups, names itself in the audit log, and warns', async () => {
    const gateway = rig.gateway(user('alice', [{ request: { groups: ['sre'] }, maxDuration: '30m' }]));
    const admission = await gateway.ask('GET', PODS, ...as('sre', 'devs'));
    expect(sent(admission, 'impersonate-user')).toEqual(['alice@example.com']);
    expect(sent(admission, 'impersonate-group')).toEqual(['sre', 'devs']);
    const id = admission.elevation?.id ?? '';
    expect(sent(admission, 'impersonate-extra-tailcast.dev%2faccess-request')).toEqual([id]);
    expect(sent(admission, 'impersonate-extra-tailcast.dev%2frequester')).toEqual(['alice@example.com']);
    expect(responseWarnings(admission, 200)).toEqual([
      `access to group sre until 2026-11-27T12:30:00.000Z (request ${id})`,
    ]);
    expect(gateway.steps.map(({ step }) => step)).toEqual(['granted']);
    expect((await gateway.ask('GET', PODS, ...as('sre'))).elevation?.id).toBe(id);
  });

  it('of a user replaces the user', async () => {
    const gateway = rig.gateway(user('alice', [{ request: { users: ['breakglass'] } }]));
    const admission = await gateway.ask('GET', PODS, 'Impersonate-User', 'breakglass');
    expect(sent(admission, 'impersonate-user')).toEqual(['breakglass']);
    expect(sent(admission, 'impersonate-group')).toEqual([]);
    expect(admission.headers.join('\n')).toContain('requester\nalice@example.com');
  });

  it('is not used for discovery, which runs as the caller', async () => {
    const gateway = rig.gateway(alice);
    const admission = await gateway.ask('GET', '/apis', ...as('sre'));
    expect(sent(admission, 'impersonate-group')).toEqual(['devs']);
    expect(rig.api.objects.size).toBe(0);
  });

  it('outside any rule stays refused', async () => {
    const gateway = rig.gateway(alice);
    for (const headers of [
      as('masters'),
      as('sre', 'masters'),
      ['Impersonate-User', 'root'],
      ['Impersonate-User', 'root', 'Impersonate-Group', 'sre'],
      [...as('sre'), 'Impersonate-Uid', '1'],
      [...as('sre'), 'Impersonate-Extra-x', '1'],
      [...as('sre'), 'Impersonate-User', 'root'],
      ['Impersonate-Group', ''],
    ])
      expect((await refusalOf(gateway.ask('GET', PODS, ...headers))).code).toBe('IMPERSONATION_REFUSED');
    expect((await refusalOf(gateway.ask('GET', PODS, ...as('sre'), 'Impersonate-Foo', 'x'))).code).toBe(
      'HEADER_REFUSED',
    );
    expect(rig.api.objects.size).toBe(0);
  });

  it('does not touch the API server without a rule', async () => {
    const gateway = rig.gateway(bob);
    await gateway.ask('GET', PODS);
    expect((await refusalOf(gateway.ask('GET', PODS, ...as('sre')))).code).toBe('IMPERSONATION_REFUSED');
    expect(rig.api.requests).toEqual([]);
  });

  it('needs a reason if the rule says so', async () => {
    const gateway = rig.gateway(user('alice', [{ request: { groups: ['sre'] }, requireReason: true }]));
    const error = await refusalOf(gateway.ask('GET', PODS, ...as('sre')));
    expect(error.message).toContain('kubectl tailcast request --group sre --reason');
  });
});

describe('access with an approval', () => {
  it('waits, is granted by another user, and expires', async () => {
    const gateway = rig.gateway(alice);
    const error = await refusalOf(gateway.ask('GET', PODS, ...as('sre')));
    expect(error.message).toMatch(
      /request (\w{10}) needs 1 more approval; page: https:.*\.html#\1; wait for it with: kubectl .* --wait \1/,
    );
    const id = await approved(gateway);
    const admission = await gateway.ask('GET', PODS, ...as('sre'));
    expect(admission.elevation?.id).toBe(id);
    expect(admission.headers.join('\n')).toContain('approver\nbob@example.com');
    expect(gateway.steps.map(({ step, by }) => [step, by.name])).toEqual([
      ['requested', 'alice@example.com'],
      ['approved', 'bob@example.com'],
      ['granted', 'bob@example.com'],
    ]);
    rig.now += 3_600_000;
    expect(await pendingId(gateway.ask('GET', PODS, ...as('sre')))).not.toBe(id);
  });

  it('is not approved by oneself, by a stranger, or twice by one person', async () => {
    const twice = { ...RULE, approvers: { ...RULE.approvers, count: 2 } };
    const gateway = rig.gateway(user('alice', [twice]));
    const id = await pendingId(gateway.ask('GET', PODS, ...as('sre')));
    const decide = (who: Parameters<typeof decider>[0]) =>
      gateway.access.decide(id, 'approved', decider(who), signal);
    for (const [who, text] of [
      [alice, 'a requester cannot decide about the own request'],
      [user('alice', [], 'nOTHER'), 'a requester cannot decide about the own request'],
      [{ ...bob, userId: alice.userId }, 'a requester cannot decide about the own request'],
      [{ ...bob, nodeId: alice.nodeId }, 'a requester cannot decide about the own request'],
      [mallory, 'you may not decide'],
    ] as const)
      expect((await refusalOf(decide(who))).message).toContain(text);
    expect((await decide(bob)).state).toBe('pending');
    expect((await refusalOf(decide(bob))).message).toContain('you have approved request');
    expect((await refusalOf(decide(user('bob', [], 'nTABLET')))).message).toContain(
      'you have approved request',
    );
    expect((await decide(carol)).state).toBe('granted');
    expect((await gateway.ask('GET', PODS, ...as('sre'))).elevation?.approvers).toEqual([
      'bob@example.com',
      'carol@example.com',
    ]);
  });

  it('can be denied, and a plain call then creates no other request', async () => {
    const gateway = rig.gateway(alice);
    const id = await pendingId(gateway.ask('GET', PODS, ...as('sre')));
    await gateway.access.decide(id, 'denied', decider(bob, 'not during the freeze'), signal);
    const error = await refusalOf(gateway.ask('GET', PODS, ...as('sre')));
    expect(error.message).toContain(`request ${id} was denied by bob@example.com: not during the freeze`);
    expect(rig.api.objects.size).toBe(1);
    expect(
      (await refusalOf(gateway.access.decide(id, 'approved', decider(carol), signal))).message,
    ).toContain('is denied already');
    rig.now += 600_000;
    expect(await pendingId(gateway.ask('GET', PODS, ...as('sre')))).not.toBe(id);
  });

  it('is approved by groups and tags', async () => {
    const gateway = rig.gateway(
      user('alice', [{ ...RULE, approvers: { groups: ['leads'], tags: ['tag:pager'] } }]),
    );
    const id = await pendingId(gateway.ask('GET', PODS, ...as('sre')));
    const { userId: _u, login: _l, displayName: _d, ...node } = user('pager');
    const pager = { ...node, kind: 'tagged', tags: ['tag:pager'] } as const;
    expect((await refusalOf(gateway.access.decide(id, 'approved', decider(bob), signal))).code).toBe(
      'ACCESS_REQUEST_REFUSED',
    );
    const byTag = await gateway.access.decide(id, 'approved', decider(pager), signal);
    expect(byTag.state).toBe('granted');
    rig.now += 3_600_000;
    const other = await pendingId(gateway.ask('GET', PODS, ...as('sre')));
    const lead = { identity: bob, groupsIn: () => ['leads'], reason: '' };
    expect((await gateway.access.decide(other, 'approved', lead, signal)).state).toBe('granted');
  });

  it('covers only the namespaces of the rule', async () => {
    const gateway = rig.gateway(user('alice', [{ ...RULE, namespaces: ['payments'] }]));
    const inside = '/api/v1/namespaces/payments/pods';
    const id = await pendingId(gateway.ask('GET', inside, ...as('sre')));
    await gateway.access.decide(id, 'approved', decider(bob), signal);
    await gateway.ask('GET', inside, ...as('sre'));
    for (const outside of [PODS, '/api/v1/pods', '/api/v1/nodes'])
      expect((await refusalOf(gateway.ask('GET', outside, ...as('sre')))).message).toContain(
        'group sre is only for requests in payments',
      );
    // an approval covers only the namespaces that the rule named at that time, even if the rule later names more
    gateway.caller = alice;
    expect(await pendingId(gateway.ask('GET', PODS, ...as('sre')))).not.toBe(id);
  });

  it('can be used only in the windows of the rule', async () => {
    const windows = [{ days: ['fri'], from: '12:00', to: '14:00', timeZone: 'Europe/Berlin' }];
    const gateway = rig.gateway(user('alice', [{ ...RULE, windows }]));
    await approved(gateway);
    const admission = await gateway.ask('GET', PODS, ...as('sre'));
    rig.now += 3_599_000; // 13:59:59 in Berlin
    await gateway.ask('GET', PODS, ...as('sre'));
    rig.now += 1000;
    expect((await refusalOf(gateway.ask('GET', PODS, ...as('sre')))).message).toContain(
      'group sre can be used fri 12:00-14:00 Europe/Berlin',
    );
    await refusalOf(gateway.gate.confirm(admission, { address: '', port: 1, source: 'socket' }, signal));
  });
});

describe('rules about writes', () => {
  const agent = user('agent', [{ request: { writes: true }, approvers: RULE.approvers }]);

  it('let reads pass, and hold back writes and sessions until an approval', async () => {
    const gateway = rig.gateway(agent);
    const exec = `${PODS}/p/exec?command=sh&stdout=1`;
    for (const target of [PODS, `${PODS}/p/log`, '/api/v1/secrets', '/version', `${PODS}?watch=1`])
      await gateway.ask('GET', target);
    await gateway.ask('POST', '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews');
    const id = await pendingId(gateway.ask('POST', PODS));
    for (const [method, target] of [
      ['DELETE', `${PODS}/p`],
      ['PATCH', `${PODS}/p`],
      ['GET', exec],
      ['POST', exec],
      ['GET', `${PODS}/p/proxy/x`],
      ['GET', '/api/v1/nodes/n/proxy/run/x'],
      ['POST', '/apis/authorization.k8s.io/v1/subjectaccessreviews'],
    ] as const)
      expect(await pendingId(gateway.ask(method, target))).toBe(id);
    await gateway.access.decide(id, 'approved', decider(bob), signal);
    const admission = await gateway.ask('DELETE', `${PODS}/p`);
    expect(sent(admission, 'impersonate-group')).toEqual(['devs']);
    expect(admission.elevation?.id).toBe(id);
  });

  it.each([
    ['a create', 'POST', PODS, 'create pods in default'],
    [
      'an exec, without its secrets',
      'GET',
      `${PODS}/web/exec?command=mysql&command=-psecret123&command=-e&command=drop+table+a&stdout=1`,
      'get pods/exec web in default: mysql -p[secret] -e drop table a',
    ],
    [
      'a forged text',
      'GET',
      `${PODS}/web/exec?command=a%0A%1b[2Jb%E2%80%AEc&stdout=1`,
      'get pods/exec web in default: a\ufffd\ufffd[2Jb\ufffdc',
    ],
    [
      'a long command, with a mark',
      'GET',
      `${PODS}/web/exec?command=${'x'.repeat(2000)}&stdout=1`,
      /x{200,300}… \(1\d{3} more characters\)$/,
    ],
    [
      'a command within a secret, with a mark',
      'GET',
      `${PODS}/web/exec?command=sh&command=-c&command=${encodeURIComponent("eval TOKEN='none;reboot'")}&stdout=1`,
      "(a hidden part may be a command) get pods/exec web in default: sh -c eval TOKEN='[secret]'",
    ],
  ] as const)(
    'of a tagged node name the command in the notification: %s',
    async (_what, method, target, call) => {
      const { userId: _u, login: _l, displayName: _d, ...node } = agent;
      const gateway = rig.gateway({ ...node, kind: 'tagged', tags: ['tag:agent'] });
      await gateway.ask('GET', PODS);
      expect(gateway.steps).toEqual([]);
      const id = await pendingId(gateway.ask(method, target));
      expect(gateway.steps).toMatchObject([
        {
          step: 'requested',
          record: { id, reason: '', call: expect.stringMatching(call instanceof RegExp ? call : /^/) },
        },
      ]);
      if (typeof call === 'string') expect(gateway.steps[0]?.record.call).toBe(call);
      await gateway.access.decide(id, 'approved', decider(bob), signal);
      expect((await gateway.ask(method, target)).elevation?.id).toBe(id);
    },
  );
});

it('a command with too many secrets for a notification creates no access request', async () => {
  const gateway = rig.gateway(user('agent', [{ request: { writes: true }, approvers: RULE.approvers }]));
  const words = 'command=password%3D12345678&'.repeat(4000);
  const error = await refusalOf(gateway.ask('GET', `${PODS}/web/exec?${words}stdout=1`));
  expect(error.code).toBe('ACCESS_REQUEST_REFUSED');
  expect(error.message).toContain('kubectl tailcast request --writes');
  expect(gateway.steps).toEqual([]);
});

describe('the end of access', () => {
  const peer = { address: '100.64.0.1', port: 1, source: 'socket' } as const;

  it('by revocation ends sessions at every gateway at once, and a new request needs a new approval', async () => {
    const first = rig.gateway(alice);
    const second = rig.gateway(alice);
    const id = await approved(first);
    const admission = await vi.waitFor(() => second.ask('GET', PODS, ...as('sre')));
    const end = Promise.withResolvers<TailcastError>();
    second.access.watch(id, end.resolve);
    await first.access.decide(id, 'revoked', decider(carol, 'incident is over'), signal);
    expect((await end.promise).message).toContain(
      `access request ${id} was revoked by carol@example.com: incident is over`,
    );
    expect((await refusalOf(second.gate.confirm(admission, peer, signal))).code).toBe('ACCESS_ENDED');
    expect(await pendingId(second.ask('GET', PODS, ...as('sre')))).not.toBe(id);
  });

  it('by revocation of access without an approval lasts until its expiry', async () => {
    const rule = { request: { groups: ['sre'] }, approvers: { users: ['bob@example.com'], count: 0 } };
    const gateway = rig.gateway(user('alice', [rule]));
    const id = (await gateway.ask('GET', PODS, ...as('sre'))).elevation?.id ?? '';
    await gateway.access.decide(id, 'revoked', decider(bob), signal);
    expect((await refusalOf(gateway.ask('GET', PODS, ...as('sre')))).message).toContain('was revoked by bob');
    rig.now += 3_600_000;
    expect((await gateway.ask('GET', PODS, ...as('sre'))).elevation?.id).not.toBe(id);
  });

  it.each(['POST', 'PATCH', 'DELETE', 'stop'])(
    'by revocation holds at all gateways if the move to a new object fails at %s, and the move is repeated',
    async (failed) => {
      const stop = new AbortController();
      const caller = user('alice', [{ request: { groups: ['sre'] } }]);
      const gateway = rig.gateway(caller, { signal: stop.signal });
      const other = rig.gateway(caller);
      const id = (await gateway.ask('GET', PODS, ...as('sre'))).elevation?.id ?? '';
      const methods: string[] = [];
      rig.api.interfere = ({ method }) => {
        if (method === 'GET') return undefined;
        methods.push(method);
        // the first write stores the revocation
        if (methods.length === 1 || (method !== failed && failed !== 'stop')) return undefined;
        if (failed === 'stop') {
          stop.abort();
          if (method === 'DELETE') return undefined;
        }
        return { status: 500, body: { kind: 'Status', code: 500, message: 'no' } };
      };
      const { state } = await gateway.access.decide(id, 'revoked', decider(alice), signal);
      expect(state).toBe('revoked');
      for (const each of [...(failed === 'stop' ? [] : [gateway]), other, rig.gateway(caller)])
        await vi.waitFor(async () =>
          expect((await refusalOf(each.ask('GET', PODS, ...as('sre')))).message).toContain(
            'was revoked by alice',
          ),
        );
      rig.api.interfere = undefined;
      await rig.gateway(caller, { expiryMs: 5 }).access.list(decider(alice), signal);
      await vi.waitFor(() => expect([...rig.api.objects.keys()]).toEqual([`${COLLECTION}/${id}-refused`]));
      const restarted = rig.gateway(caller);
      expect((await refusalOf(restarted.ask('GET', PODS, ...as('sre')))).message).toContain(
        'was revoked by alice',
      );
      expect((await refusalOf(other.access.decide(id, 'approved', decider(bob), signal))).message).toContain(
        'is revoked already',
      );
    },
  );

  it('by revocation holds if its object is deleted, and the object is created again', async () => {
    const caller = user('alice', [{ request: { groups: ['sre'] } }]);
    const gateway = rig.gateway(caller, { expiryMs: 5 });
    const id = (await gateway.ask('GET', PODS, ...as('sre'))).elevation?.id ?? '';
    await gateway.access.decide(id, 'revoked', decider(alice), signal);
    const path = `${COLLECTION}/${id}-refused`;
    const uid = rig.api.objects.get(path)?.metadata.uid;
    rig.api.remove(path);
    await vi.waitFor(() => {
      const object = rig.api.objects.get(path);
      expect(object).toMatchObject({ status: { state: 'revoked' } });
      expect(object?.metadata.uid).not.toBe(uid);
    });
    expect((await refusalOf(gateway.ask('GET', PODS, ...as('sre')))).message).toContain(
      'was revoked by alice',
    );
  });

  it('by revocation holds against a restored status of the old object', async () => {
    const caller = user('alice', [{ request: { groups: ['sre'] } }]);
    const gateway = rig.gateway(caller);
    const id = (await gateway.ask('GET', PODS, ...as('sre'))).elevation?.id ?? '';
    const old = structuredClone(rig.api.objects.get(`${COLLECTION}/${id}`) ?? {});
    rig.api.interfere = ({ method }) =>
      method === 'DELETE' ? { status: 500, body: { kind: 'Status', code: 500, message: 'no' } } : undefined;
    await gateway.access.decide(id, 'revoked', decider(alice), signal);
    rig.api.put(`${COLLECTION}/${id}`, old);
    const restarted = rig.gateway(caller);
    expect((await refusalOf(restarted.ask('GET', PODS, ...as('sre')))).message).toContain(
      'was revoked by alice',
    );
  });

  it('by expiry ends sessions', async () => {
    const gateway = rig.gateway(user('alice', [{ ...RULE, maxDuration: '1s' }]));
    const id = await approved(gateway);
    const admission = await gateway.ask('GET', PODS, ...as('sre'));
    rig.now += 999;
    const end = Promise.withResolvers<TailcastError>();
    gateway.access.watch(id, end.resolve);
    await gateway.gate.confirm(admission, peer, signal);
    expect((await end.promise).message).toContain(`access request ${id} has expired`);
    rig.now += 1;
    expect((await refusalOf(gateway.gate.confirm(admission, peer, signal))).code).toBe('ACCESS_ENDED');
  });

  it('by expiry comes after 30 days, although a timer of Node lasts at most 24 days', async () => {
    const gateway = rig.gateway(user('alice', [{ request: { groups: ['sre'] }, maxDuration: '30d' }]));
    const wanted = {
      groups: ['sre'],
      user: undefined,
      writes: false,
      reason: '',
      durationMs: 30 * 86_400_000,
    };
    const {
      identity,
      impersonation: own,
      access: rules = [],
      recording,
    } = await gateway.gate.recognise(
      { method: 'GET', target: '/', rawHeaders: ['Host', 'gateway.ts.net'], peer, upgrade: false },
      false,
      signal,
    );
    if (own === undefined) throw new Error('nobody is impersonated');
    const petitioner = { identity, own, rules, recording, cluster: undefined };
    const { id } = await gateway.access.request({ ...petitioner, ...wanted }, signal);
    const end = vi.fn();
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    gateway.access.watch(id, end);
    vi.advanceTimersByTime(30 * 86_400_000 - 1);
    expect(end).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    expect(end).toHaveBeenCalledOnce();
  });

  it('by a rule that enforces recording from now on', async () => {
    const gateway = rig.gateway(alice);
    await approved(gateway);
    const admission = await gateway.ask('GET', PODS, ...as('sre'));
    gateway.caller = user('alice', [{ ...RULE, enforceRecorder: true }]);
    const refusal = await refusalOf(gateway.gate.confirm(admission, peer, signal));
    expect(refusal.message).toContain('must be recorded now');
    // the check passes for a session that is already recorded with enforcement, for example because it is moderated
    const recorded = {
      ...admission,
      recording: { mode: 'failClosed', named: { recorders: [], recorderTags: [] } },
    };
    await gateway.gate.confirm(recorded as unknown as typeof admission, peer, signal);
  });

  it('by a changed grant: an approver or the rule is gone, or the node has another owner', async () => {
    const gateway = rig.gateway(alice);
    const id = await approved(gateway);
    const admission = await gateway.ask('GET', PODS, ...as('sre'));
    for (const identity of [
      user('alice', [{ ...RULE, approvers: { users: ['carol@example.com'] } }]),
      user('alice', [{ ...RULE, approvers: { ...RULE.approvers, count: 2 } }]),
      user('alice'),
      user('alicia', [RULE], alice.nodeId),
    ]) {
      gateway.caller = identity;
      await refusalOf(gateway.gate.confirm(admission, peer, signal));
      await refusalOf(gateway.ask('GET', PODS, ...as('sre')));
    }
    gateway.caller = alice;
    expect((await gateway.ask('GET', PODS, ...as('sre'))).elevation?.id).toBe(id);
  });

  it('by a renamed requester says so', async () => {
    const gateway = rig.gateway(alice);
    await approved(gateway);
    gateway.caller = { ...alice, login: 'alicia@example.com', capabilities: alice.capabilities };
    expect((await refusalOf(gateway.ask('GET', PODS, ...as('sre')))).message).toContain(
      'belongs to alice@example.com; this node belongs to alicia@example.com now',
    );
  });

  it('by removal of the object', async () => {
    const gateway = rig.gateway(alice);
    const id = await approved(gateway);
    const admission = await gateway.ask('GET', PODS, ...as('sre'));
    const end = Promise.withResolvers<TailcastError>();
    gateway.access.watch(id, end.resolve);
    rig.api.remove(`${COLLECTION}/${id}`);
    expect((await end.promise).message).toContain('was removed');
    expect((await refusalOf(gateway.gate.confirm(admission, peer, signal))).code).toBe('ACCESS_ENDED');
  });
});

describe('faults', () => {
  it('a gateway that restarts, or a second one, knows the approval', async () => {
    const id = await approved(rig.gateway(alice));
    expect((await rig.gateway(alice).ask('GET', PODS, ...as('sre'))).elevation?.id).toBe(id);
  });

  it('two approvers at once both count', async () => {
    const rule = { ...RULE, approvers: { ...RULE.approvers, count: 2 } };
    const first = rig.gateway(user('alice', [rule]));
    const second = rig.gateway(bob);
    const id = await pendingId(first.ask('GET', PODS, ...as('sre')));
    await Promise.all([
      first.access.decide(id, 'approved', decider(bob), signal),
      second.access.decide(id, 'approved', decider(carol), signal),
    ]);
    const admission = await vi.waitFor(() => first.ask('GET', PODS, ...as('sre')));
    expect(admission.elevation?.approvers.toSorted()).toEqual(['bob@example.com', 'carol@example.com']);
  });

  it('an approval and a denial at once: one of them wins everywhere', async () => {
    const first = rig.gateway(alice);
    const second = rig.gateway(bob);
    const id = await pendingId(first.ask('GET', PODS, ...as('sre')));
    const results = await Promise.allSettled([
      first.access.decide(id, 'approved', decider(bob), signal),
      second.access.decide(id, 'denied', decider(carol), signal),
    ]);
    expect(results.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
  });

  it('an approver who lost the right between the list and the click cannot approve', async () => {
    const gateway = rig.gateway(user('alice', [{ ...RULE, approvers: { groups: ['leads'] } }]));
    const id = await pendingId(gateway.ask('GET', PODS, ...as('sre')));
    const lead = { identity: bob, groupsIn: () => ['leads'], reason: '' };
    expect(await gateway.access.list(lead, signal)).toHaveLength(1);
    const former = { ...lead, groupsIn: () => ['devs'] };
    expect(await gateway.access.list(former, signal)).toEqual([]);
    expect((await refusalOf(gateway.access.decide(id, 'approved', former, signal))).message).toContain(
      `you may not decide about request ${id}`,
    );
    expect(await pendingId(gateway.ask('GET', PODS, ...as('sre')))).toBe(id);
  });

  it('a CRD that is removed while access is used ends the access', async () => {
    const gateway = rig.gateway(alice);
    const id = await approved(gateway);
    const end = Promise.withResolvers<TailcastError>();
    gateway.access.watch(id, end.resolve);
    rig.api.remove(`${COLLECTION}/${id}`);
    rig.api.endWatches('end');
    rig.api.interfere = () => ({ status: 404, body: { kind: 'Status', code: 404, message: 'not found' } });
    expect((await end.promise).message).toContain('was removed');
    const error = await vi.waitFor(async () => {
      const refusal = await refusalOf(gateway.ask('GET', PODS, ...as('sre')));
      expect(refusal.code).toBe('ACCESS_REQUEST_UNAVAILABLE');
      return refusal;
    });
    expect(error.message).toContain('the cluster has no AccessRequest resource; apply deploy/access');
  });

  it('an API server that does not respond: a decision and a new request fail, and nothing is granted', async () => {
    const gateway = rig.gateway(alice, { callMs: 2000 });
    const id = await pendingId(gateway.ask('GET', PODS, ...as('sre')));
    rig.api.interfere = () => 'silent';
    for (const call of [
      gateway.access.decide(id, 'approved', decider(bob), signal),
      rig.gateway(alice, { callMs: 2000 }).ask('GET', PODS, ...as('sre')),
    ])
      expect((await refusalOf(call)).code).toBe('ACCESS_REQUEST_UNAVAILABLE');
    rig.api.interfere = undefined;
    expect(await pendingId(gateway.ask('GET', PODS, ...as('sre')))).toBe(id);
  });

  it('an expiry is written once by several gateways, with evidence', async () => {
    let checks = 0;
    const steps: AccessStep[] = [];
    const deps = {
      expiryMs: 5,
      unixMs: () => {
        checks += 1;
        return rig.now;
      },
      record: async (step: AccessStep) => {
        steps.push(step);
        const others = checks + 20;
        // the second gateway checks for expired requests while the first one stores the evidence
        if (step.step === 'expired') await vi.waitFor(() => expect(checks).toBeGreaterThan(others));
      },
    };
    const first = rig.gateway(alice, deps);
    const second = rig.gateway(alice, deps);
    const id = await approved(first);
    await vi.waitFor(() => second.ask('GET', PODS, ...as('sre')));
    const stateOf = (): unknown => rig.api.objects.get(`${COLLECTION}/${id}`)?.['status'];
    rig.now += 3_600_000;
    await vi.waitFor(() => expect(stateOf()).toMatchObject({ state: 'expired' }));
    const expired = steps.filter(({ step }) => step === 'expired');
    expect(expired.map(({ record, by }) => [record.id, record.state, by.name])).toEqual([
      [id, 'expired', 'alice@example.com'],
    ]);
    expect(stateOf()).toMatchObject({
      conditions: expect.arrayContaining([
        expect.objectContaining({ type: 'Expired', status: 'True', reason: 'Expired' }),
      ]),
    });
    // a clock that is set back does not restore the access
    rig.now -= 3_600_000;
    await vi.waitFor(async () => expect(await pendingId(first.ask('GET', PODS, ...as('sre')))).not.toBe(id));
  });

  it('an expiry is stored once, also if the API server does not take its record at first', async () => {
    const gateway = rig.gateway(alice, { expiryMs: 5 });
    const id = await approved(gateway);
    const stateOf = (): unknown => rig.api.objects.get(`${COLLECTION}/${id}`)?.['status'];
    const isStored = (): boolean => gateway.steps.some(({ step }) => step === 'expired');
    let refused = 0;
    rig.api.interfere = ({ method }) => {
      if (method !== 'PATCH' || !isStored() || refused === 3) return undefined;
      refused += 1;
      return { status: 500, body: {} };
    };
    rig.now += 3_600_000;
    await vi.waitFor(() => expect(stateOf()).toMatchObject({ state: 'expired' }));
    expect(refused).toBe(3);
    expect(gateway.steps.filter(({ step }) => step === 'expired')).toHaveLength(1);
  });

  it('the expiry of a gateway that stopped is written by another one', async () => {
    const stopped = new AbortController();
    const first = rig.gateway(alice, {
      expiryMs: 5,
      signal: stopped.signal,
      record: async ({ step }) => {
        if (step !== 'expired') return;
        stopped.abort();
        throw new TailcastError('RECORDING_REQUIRED', 'stopped');
      },
    });
    const id = await approved(first);
    const stateOf = (): unknown => rig.api.objects.get(`${COLLECTION}/${id}`)?.['status'];
    rig.now += 3_600_000;
    await vi.waitFor(() => expect(stopped.signal.aborted).toBe(true));
    const second = rig.gateway(alice, { expiryMs: 5 });
    await second.access.list(decider(bob), signal);
    expect(stateOf()).toMatchObject({ state: 'granted' });
    rig.now += 360_001;
    await vi.waitFor(() => expect(stateOf()).toMatchObject({ state: 'expired' }));
    expect(second.steps.map(({ step }) => step)).toEqual(['expired']);
  });

  it('an expiry waits for a recorder, but not for ever', async () => {
    let attempts = 0;
    const record: AccessRequestsDeps['record'] = async ({ step }) => {
      if (step !== 'expired') return;
      attempts += 1;
      throw new TailcastError('RECORDING_REQUIRED', 'no recorder');
    };
    const gateway = rig.gateway(alice, { expiryMs: 5, record });
    const id = await approved(gateway);
    const stateOf = (): unknown => rig.api.objects.get(`${COLLECTION}/${id}`)?.['status'];
    rig.now += 3_600_000;
    await vi.waitFor(() => expect(attempts).toBeGreaterThan(2));
    expect(stateOf()).toMatchObject({ state: 'granted' });
    expect(await pendingId(gateway.ask('GET', PODS, ...as('sre')))).not.toBe(id);
    rig.now += 600_001;
    await vi.waitFor(() => expect(stateOf()).toMatchObject({ state: 'expired' }));
  });

  it('a recorder away: no request and no approval; a denial counts', async () => {
    let isAway = true;
    const record = async (): Promise<void> => {
      if (isAway) throw new TailcastError('RECORDING_REQUIRED', 'no recorder');
    };
    const gateway = rig.gateway(alice, { record });
    expect((await refusalOf(gateway.ask('GET', PODS, ...as('sre')))).code).toBe('RECORDING_REQUIRED');
    isAway = false;
    const id = await pendingId(gateway.ask('GET', PODS, ...as('sre')));
    isAway = true;
    expect((await refusalOf(gateway.access.decide(id, 'approved', decider(bob), signal))).code).toBe(
      'RECORDING_REQUIRED',
    );
    expect(await pendingId(gateway.ask('GET', PODS, ...as('sre')))).toBe(id);
    expect((await gateway.access.decide(id, 'denied', decider(bob), signal)).state).toBe('denied');
  });

  it('no CRD, or no rights: says what to install', async () => {
    rig.api.interfere = () => ({ status: 404, body: { kind: 'Status', code: 404, message: 'not found' } });
    expect((await refusalOf(rig.gateway(alice).ask('GET', PODS, ...as('sre')))).message).toContain(
      'the cluster has no AccessRequest resource; apply deploy/access',
    );
    rig.api.interfere = () => ({ status: 403, body: { kind: 'Status', code: 403, message: 'no' } });
    expect((await refusalOf(rig.gateway(alice).ask('GET', PODS, ...as('sre')))).message).toContain(
      "the gateway's account has no rights on accessrequests",
    );
  });

  it('a silent API server: access counts only while the API server confirms it', async () => {
    const gateway = rig.gateway(alice);
    await approved(gateway);
    rig.api.interfere = () => ({ status: 503, body: { kind: 'Status', code: 503, message: 'slow' } });
    rig.monotonic += 29_000;
    await gateway.ask('GET', PODS, ...as('sre'));
    rig.monotonic += 2_000;
    expect((await refusalOf(gateway.ask('GET', PODS, ...as('sre')))).code).toBe('ACCESS_REQUEST_UNAVAILABLE');
    rig.api.interfere = undefined;
    await gateway.ask('GET', PODS, ...as('sre'));
  });

  it('a record from the future is refused', async () => {
    const gateway = rig.gateway(alice);
    await approved(gateway);
    rig.now -= 301_000;
    expect((await refusalOf(gateway.ask('GET', PODS, ...as('sre')))).message).toContain('compare the clocks');
  });

  it('a person has at most 20 pending requests', async () => {
    const groups = Array.from({ length: 21 }, (_, index) => `g${index}`);
    const gateway = rig.gateway(user('alice', [{ ...RULE, request: { groups } }]));
    for (const group of groups.slice(0, 20)) await pendingId(gateway.ask('GET', PODS, ...as(group)));
    expect((await refusalOf(gateway.ask('GET', PODS, ...as('g20')))).message).toContain(
      '20 of your requests',
    );
  });
});
