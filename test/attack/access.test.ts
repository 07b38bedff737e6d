/** Attack corpus J: access on request. An attacker writes, copies, replays or rolls back objects and approvals. */
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { parseTarget } from '../../src/kube/canonical-target.ts';
import { parseRequestInfo } from '../../src/kube/request-info.ts';
import { encodeStep } from '../../src/access/evidence.ts';
import { createRecordSeal, type AccessRecord } from '../../src/access/record.ts';
import type { NewRequest } from '../../src/access/requests.ts';
import { requestView } from '../../src/access/view.ts';
import { createGate, type Admission, type GateDeps } from '../../src/proxy/gate/gate.ts';
import { createRechecks } from '../../src/proxy/gate/recheck.ts';
import { parseAccessRules } from '../../src/tailnet/access-rules.ts';
import type { Identity } from '../../src/tailnet/identity.ts';
import {
  as,
  COLLECTION,
  decider,
  KEY,
  pendingId,
  refusalOf,
  RULE,
  sent,
  signal,
  startRig,
  user,
  type Rig,
} from '../access/rig.ts';

const PODS = '/api/v1/namespaces/default/pods';
const alice = user('alice', [RULE]);
const bob = user('bob');
const viewer = { identity: alice, groupsIn: () => [] };

let rig: Rig;
beforeEach(async () => {
  rig = await startRig();
});
afterEach(() => rig[Symbol.asyncDispose]());

type Stored = NonNullable<ReturnType<Rig['api']['objects']['get']>>;

/** An object that represents granted access, as a gateway writes it. */
async function granted(): Promise<{ readonly id: string; readonly object: Stored }> {
  const gateway = rig.gateway(alice);
  const id = await pendingId(gateway.ask('GET', PODS, ...as('sre')));
  await gateway.access.decide(id, 'approved', decider(bob), signal);
  const object = structuredClone(rig.api.objects.get(`${COLLECTION}/${id}`));
  if (object === undefined) throw new Error('the gateway wrote no object');
  return { id, object };
}

function recordIn({ status }: Stored): AccessRecord {
  return JSON.parse((status as { record: string }).record) as AccessRecord;
}

const own = createRecordSeal(KEY);
const foreign = createRecordSeal(Buffer.alloc(32, 8));

const FORGED: readonly (readonly [string, (object: Stored, uid: string) => unknown])[] = [
  ['J1 a state without a record', () => ({ state: 'granted' })],
  ['J1 a record without a signature', ({ status }) => ({ ...(status as object), signature: undefined })],
  ['J1 an empty signature', ({ status }) => ({ ...(status as object), signature: '' })],
  ['J2 a signature of another key', (object, uid) => foreign.seal(uid, recordIn(object))],
  [
    'J2 a changed record with the old signature',
    ({ status }) => ({
      ...(status as object),
      record: (status as { record: string }).record.replace('"sre"', '"admins"'),
    }),
  ],
  ['J3 a copy, as from another cluster: it has another uid', ({ status }) => status],
  [
    'J3 a signed record for another name',
    (object, uid) => own.seal(uid, { ...recordIn(object), id: 'zzzzzzzzzz' }),
  ],
  [
    'J4 a signed text that is not a record',
    (object, uid) => own.seal(uid, { ...recordIn(object), approved: true } as AccessRecord),
  ],
];

describe('objects', () => {
  it.each(FORGED)('%s', async (_what, statusOf) => {
    const { id, object } = await granted();
    const path = `${COLLECTION}/${id}`;
    rig.api.remove(path);
    rig.api.put(path, {
      ...object,
      metadata: { name: id, uid: 'forged' },
      status: statusOf(object, 'forged'),
    });
    const gateway = rig.gateway(alice);
    expect(await gateway.access.list(viewer, signal)).toEqual([]);
    expect(await pendingId(gateway.ask('GET', PODS, ...as('sre')))).not.toBe(id);
    expect((await refusalOf(gateway.access.decide(id, 'approved', decider(bob), signal))).code).toBe(
      'ACCESS_REQUEST_UNKNOWN',
    );
  });

  it('J5 a signed record from before a revocation', async () => {
    const { id, object } = await granted();
    const gateway = rig.gateway(alice);
    await gateway.access.decide(id, 'revoked', decider(bob), signal);
    rig.api.put(`${COLLECTION}/${id}`, { ...object });
    expect(await pendingId(gateway.ask('GET', PODS, ...as('sre')))).not.toBe(id);
  });
});

describe('an older version of an object', () => {
  it('J5 from before a revocation stays invalid after all gateways restart', async () => {
    const { id, object } = await granted();
    await rig.gateway(alice).access.decide(id, 'revoked', decider(bob), signal);
    const path = `${COLLECTION}/${id}`;
    rig.api.put(path, { ...object, metadata: { name: id } });
    const restarted = rig.gateway(alice);
    expect(await restarted.access.list(viewer, signal)).toMatchObject([{ id, state: 'revoked' }]);
    expect(await pendingId(restarted.ask('GET', PODS, ...as('sre')))).not.toBe(id);
  });

  it('J5 from before a denial stays invalid after all gateways restart', async () => {
    const first = rig.gateway(alice);
    const id = await pendingId(first.ask('GET', PODS, ...as('sre')));
    const path = `${COLLECTION}/${id}`;
    const object = structuredClone(rig.api.objects.get(path));
    await first.access.decide(id, 'denied', decider(bob), signal);
    rig.api.put(path, { ...object, metadata: { name: id } });
    expect(
      (await refusalOf(rig.gateway(alice).access.decide(id, 'approved', decider(bob), signal))).code,
    ).toBe('ACCESS_REQUEST_UNKNOWN');
  });

  it('J5 with a finalizer, which keeps the uid, stays invalid after all gateways restart', async () => {
    const { id, object } = await granted();
    const path = `${COLLECTION}/${id}`;
    const metadata = { name: id, finalizers: ['x.example/stay'] };
    rig.api.put(path, { ...rig.api.objects.get(path), metadata });
    await rig.gateway(alice).access.decide(id, 'revoked', decider(bob), signal);
    const deletionTimestamp = rig.api.objects.get(path)?.metadata.deletionTimestamp;
    expect(deletionTimestamp).toBeDefined();
    rig.api.put(path, { ...object, metadata: { ...metadata, deletionTimestamp } });
    const restarted = rig.gateway(alice);
    expect(await restarted.access.list(viewer, signal)).toMatchObject([{ id, state: 'revoked' }]);
    expect(await pendingId(restarted.ask('GET', PODS, ...as('sre')))).not.toBe(id);
  });
});

describe('identities', () => {
  it.each([
    ['J6 the same login at another node', user('alice', [RULE], 'nSTOLEN')],
    ['J6 the same login with another user id', { ...alice, userId: 99n }],
    ['J6 another login at the same node', user('mallory', [RULE], alice.nodeId)],
  ])('%s', async (_what, identity) => {
    const { id } = await granted();
    const gateway = rig.gateway(identity);
    const error = await refusalOf(gateway.ask('GET', PODS, ...as('sre')));
    expect(['ACCESS_REQUEST_PENDING', 'ACCESS_REQUEST_REFUSED']).toContain(error.code);
    expect(error.message).not.toContain(`${id} needs`);
  });

  it('J7 an approval for another cluster', async () => {
    const { id } = await granted();
    const gateway = rig.gateway(alice);
    const petition = { identity: alice, own: { user: alice.login, groups: [], extra: [] }, rules: [] };
    const rules = [{ groups: ['sre'], users: [], writes: false, clusters: [], namespaces: [], windows: [] }];
    const asked = gateway.access.elevate(
      {
        ...petition,
        rules: rules.map((rule) => ({
          ...rule,
          maxDurationMs: 1000,
          requireReason: false,
          enforceRecorder: false,
          approvers: { users: ['bob@example.com'], groups: [], tags: [], count: 1 },
        })),
        recording: { mode: 'off' },
        cluster: 'staging',
        ask: { groups: ['sre'], user: undefined, writes: false },
        groups: ['sre'],
        info: parseRequestInfo('GET', parseTarget(PODS)),
        command: [],
        host: 'gateway.ts.net',
      },
      signal,
    );
    expect(await pendingId(asked)).not.toBe(id);
  });

  it('J8 a decision that is repeated after the request has ended', async () => {
    const { id } = await granted();
    const gateway = rig.gateway(alice);
    rig.now += 3_600_000;
    for (const verdict of ['approved', 'denied', 'revoked'] as const)
      expect((await refusalOf(gateway.access.decide(id, verdict, decider(bob), signal))).message).toContain(
        'is expired already',
      );
  });
});

describe('one person', () => {
  const free = { request: { groups: ['sre', 'dba'] }, approvers: { users: ['bob@example.com'], count: 0 } };
  const mallory = user('mallory', [free, RULE, { request: { writes: true } }]);
  const wish = (groups: readonly string[], more: Partial<NewRequest> = {}): NewRequest => ({
    identity: mallory,
    own: { user: mallory.login, groups: ['devs'], extra: [] },
    rules: parseAccessRules(mallory.capabilities),
    recording: { mode: 'off' },
    cluster: undefined,
    groups,
    user: undefined,
    writes: false,
    reason: '',
    durationMs: 1000,
    ...more,
  });

  it('J9 cannot fill the store, also from two nodes and with requests that are over', async () => {
    const { access } = rig.gateway(mallory);
    const phone = { ...mallory, nodeId: 'nphone' };
    let sent = 0;
    const send = async (): Promise<void> => {
      for (; sent < 1000; sent += 1) {
        await access.request(wish(['sre'], sent % 2 === 0 ? {} : { identity: phone }), signal);
        rig.now += 1000;
      }
    };
    expect((await refusalOf(send())).message).toContain('you sent 500 requests');
    expect(sent).toBe(500);
    await access.request(wish(['sre'], { identity: alice }), signal);
  });

  it('J9 has at most 20 pending requests, also if all are sent at the same time', async () => {
    const { access, steps } = rig.gateway(mallory);
    const rules = parseAccessRules(user('mallory', [RULE]).capabilities);
    const all = await Promise.allSettled(
      Array.from({ length: 30 }, () => access.request(wish(['sre'], { rules }), signal)),
    );
    expect(all.filter(({ status }) => status === 'fulfilled')).toHaveLength(20);
    expect([steps.length, rig.api.objects.size]).toEqual([20, 20]);
  });

  it.each([
    ['for one more group', ['sre', 'dba'], mallory],
    ['at another node', ['sre'], { ...mallory, nodeId: 'nphone' }],
  ])('J10 does not get revoked access again %s', async (_how, groups, identity) => {
    const gateway = rig.gateway(identity);
    const { id } = await gateway.access.request(wish(['sre'], { durationMs: undefined }), signal);
    await gateway.access.decide(id, 'revoked', decider(bob), signal);
    const refusals = [
      await refusalOf(gateway.ask('GET', PODS, ...as(...groups))),
      await refusalOf(gateway.access.request(wish(groups, { identity }), signal)),
    ];
    for (const { message } of refusals) expect(message).toContain('was revoked by bob');
    expect((await gateway.ask('GET', PODS, ...as('dba'))).elevation).toBeDefined();
  });

  it.each([
    ['the same access', ['sre'], {}],
    ['one more group', ['sre', 'dba'], {}],
    ['another node', ['sre'], { nodeId: 'nphone' }],
  ])('J10 does not keep revoked access with a second request for %s', async (_what, groups, node) => {
    const gateway = rig.gateway(mallory);
    const identity = { ...mallory, ...node };
    const { id } = await gateway.access.request(wish(['sre'], { durationMs: 3_600_000 }), signal);
    rig.now += 1;
    await gateway.access.request(wish(groups, { identity, durationMs: 3_600_000 }), signal);
    gateway.caller = identity;
    const session = await gateway.ask('GET', PODS, ...as(...groups));
    await gateway.access.decide(id, 'revoked', decider(bob), signal);
    const peer = { address: '100.64.0.1', port: 1, source: 'socket' } as const;
    const end = await refusalOf(gateway.gate.confirm(session, peer, signal));
    expect(end.code).toBe('ACCESS_ENDED');
    expect(end.message).toContain('was revoked by bob');
    const { message } = await refusalOf(gateway.ask('GET', PODS, ...as(...groups)));
    expect(message).toContain('was revoked by bob');
    expect((await gateway.ask('GET', PODS, ...as('dba'))).elevation).toBeDefined();
    rig.now += 86_400_000;
    expect((await gateway.ask('GET', PODS, ...as(...groups))).elevation).toBeDefined();
  });

  it('J10 does not get revoked access again after the short time of its own request', async () => {
    const gateway = rig.gateway(mallory);
    const long = await gateway.access.request(wish(['sre'], { durationMs: 3_600_000 }), signal);
    for (let minute = 0; minute < 3; minute += 1) {
      const short = await gateway.access
        .request(wish(['sre', 'dba'], { durationMs: 60_000 }), signal)
        .catch(() => undefined);
      if (short !== undefined) await gateway.access.decide(short.id, 'revoked', decider(bob), signal);
      expect((await refusalOf(gateway.ask('GET', PODS, ...as('sre')))).message).toContain(
        'was revoked by bob',
      );
      rig.now += 61_000;
    }
    expect((await refusalOf(gateway.ask('GET', PODS, ...as('sre')))).message).toContain('was revoked by bob');
    rig.now += 86_400_000;
    expect((await gateway.ask('GET', PODS, ...as('sre'))).elevation?.id).not.toBe(long.id);
  });

  it('J10 does not keep approved access after a revocation of overlapping access', async () => {
    const rule = { ...RULE, request: { groups: ['sre', 'dba'] } };
    const caller = user('alice', [rule]);
    let aheadMs = 60_000;
    const gateway = rig.gateway(caller, { unixMs: () => rig.now + aheadMs });
    const approve = async (...groups: readonly string[]): Promise<string> => {
      const id = await pendingId(gateway.ask('GET', PODS, ...as(...groups)));
      await gateway.access.decide(id, 'approved', decider(bob), signal);
      return id;
    };
    const both = await approve('sre', 'dba');
    const dba = await approve('dba');
    const sre = await approve('sre');
    const session = await gateway.ask('GET', PODS, ...as('sre', 'dba'));
    // the clock of the gateway that revokes the access is behind
    aheadMs = 0;
    const end = Promise.withResolvers<Error>();
    gateway.access.watch(both, end.resolve);
    gateway.access.watch(dba, () => end.reject(new Error('dba has ended')));
    await gateway.access.decide(sre, 'revoked', decider(bob, 'incident'), signal);
    expect((await end.promise).message).toContain(`request ${sre} was revoked by bob@example.com: incident`);
    const peer = { address: '100.64.0.1', port: 1, source: 'socket' } as const;
    expect((await refusalOf(gateway.gate.confirm(session, peer, signal))).message).toContain('was revoked');
    rig.now += 60_001;
    const again = await approve('sre', 'dba');
    expect(again).not.toBe(both);
    expect((await gateway.ask('GET', PODS, ...as('sre', 'dba'))).elevation?.id).toBe(again);
    expect((await gateway.ask('GET', PODS, ...as('dba'))).elevation?.id).toBe(dba);
  });

  it('J15 does not imitate the description of the first call with its reason', async () => {
    const writes = { request: { writes: true }, approvers: { users: ['bob@example.com'] } };
    const ci = user('ci', [writes]);
    const gateway = rig.gateway(ci);
    const id = await pendingId(gateway.ask('PATCH', '/apis/apps/v1/namespaces/dev/deployments/web'));
    const [real] = await gateway.access.list({ ...viewer, identity: bob }, signal);
    const text = 'patch deployments web in dev';
    expect(requestView(real!, viewer, rig.now)).toMatchObject({ id, call: text, reason: '' });
    const rules = parseAccessRules(ci.capabilities);
    const more = { identity: mallory, rules, writes: true, reason: text };
    const forged = await gateway.access.request(wish([], more), signal);
    expect(requestView(forged, viewer, rig.now)).toMatchObject({ call: '', reason: text });
    const event = (record: AccessRecord): unknown =>
      JSON.parse(encodeStep({ step: 'requested', record, by: record.requester }, rig.now));
    expect(event(real!)).toMatchObject({ access: { call: text, reason: '' } });
    expect(event(forged)).toMatchObject({ access: { call: '', reason: text } });
    expect(rig.api.objects.get(`${COLLECTION}/${id}`)).toMatchObject({ spec: { call: text, reason: '' } });
  });

  it('keeps granted access when it withdraws a pending request', async () => {
    const rule = { ...RULE, request: { groups: ['sre', 'dba'] } };
    const caller = user('alice', [rule]);
    const gateway = rig.gateway(caller);
    const id = await pendingId(gateway.ask('GET', PODS, ...as('sre')));
    await gateway.access.decide(id, 'approved', decider(bob), signal);
    const pending = await pendingId(gateway.ask('GET', PODS, ...as('sre', 'dba')));
    await gateway.access.decide(pending, 'revoked', decider(caller), signal);
    expect((await gateway.ask('GET', PODS, ...as('sre'))).elevation?.id).toBe(id);
  });

  it.each(['approved', 'denied', 'revoked'] as const)(
    'J14 is %s by somebody with very many groups',
    async (verdict) => {
      const many = Array.from({ length: 4000 }, (_, index) => `group-with-a-long-name-${index}`);
      const rule = { ...RULE, approvers: { groups: ['leads'] } };
      const gateway = rig.gateway(user('alice', [rule]));
      const id = await pendingId(gateway.ask('GET', PODS, ...as('sre')));
      const lead = (name: string) => ({ ...decider(user(name)), groupsIn: () => [...many, 'leads'] });
      if (verdict === 'revoked') await gateway.access.decide(id, 'approved', lead('carol'), signal);
      await gateway.access.decide(id, verdict, lead('bob'), signal);
      const name = verdict === 'approved' ? id : `${id}-refused`;
      const object = rig.api.objects.get(`${COLLECTION}/${name}`);
      expect(object?.['status']).toMatchObject({ state: verdict === 'approved' ? 'granted' : verdict });
      // the limit is `maxLength` in deploy/access/accessrequest.yaml
      expect(JSON.stringify(object?.['status']).length).toBeLessThan(65_536);
      if (verdict === 'approved')
        expect((await gateway.ask('GET', PODS, ...as('sre'))).elevation?.id).toBe(id);
    },
  );

  it('J14 cannot send a request that is too large for a revocation', async () => {
    const names = Array.from({ length: 400 }, (_, index) => `${'x'.repeat(120)}-${index}`);
    const gateway = rig.gateway(user('alice', [{ request: { groups: names } }]));
    const error = await refusalOf(gateway.ask('GET', PODS, ...as(...names)));
    expect(error.message).toContain('too many groups');
    expect(rig.api.objects.size).toBe(0);
  });

  it('J10 keeps access that another user has approved after a revocation', async () => {
    const gateway = rig.gateway(mallory);
    const { id } = await gateway.access.request(wish(['sre'], { durationMs: 3_600_000 }), signal);
    gateway.caller = user('mallory', [RULE]);
    await gateway.access.decide(id, 'revoked', decider(bob), signal);
    rig.now += 1;
    const approved = await pendingId(gateway.ask('GET', PODS, ...as('sre')));
    await gateway.access.decide(approved, 'approved', decider(bob), signal);
    gateway.caller = mallory;
    expect((await gateway.ask('GET', PODS, ...as('sre'))).elevation?.id).toBe(approved);
  });

  it.each([
    ['a shorter duration', { maxDuration: '15m' }],
    ['a reason', { maxDuration: '8h', requireReason: true }],
  ])('J13 cannot use access under another rule that demands %s', async (_what, limits) => {
    const request = { groups: ['sre'] };
    const day = { request, maxDuration: '8h', windows: [{ from: '08:00', to: '18:00' }] };
    const identity = user('alice', [day, { request, ...limits }]);
    const gateway = rig.gateway(identity);
    rig.now += 5.9 * 3_600_000; // 17:54
    const rules = parseAccessRules(identity.capabilities);
    const { id } = await gateway.access.request(
      wish(['sre'], { identity, rules, durationMs: 8 * 3_600_000 }),
      signal,
    );
    const used = await gateway.ask('GET', PODS, ...as('sre'));
    expect(used.elevation?.id).toBe(id);
    rig.now += 3_600_000;
    const peer = { address: '100.64.0.1', port: 1, source: 'socket' } as const;
    expect((await refusalOf(gateway.gate.confirm(used, peer, signal))).code).toBe('ACCESS_ENDED');
    if ('requireReason' in limits) {
      const { message } = await refusalOf(gateway.ask('GET', PODS, ...as('sre')));
      return expect(message).toContain('a reason is required');
    }
    const { elevation } = await gateway.ask('GET', PODS, ...as('sre'));
    expect(elevation?.id).not.toBe(id);
    expect(elevation?.warning).toContain('until 2026-11-27T19:09:00.000Z');
    // a repeated request uses the access that is already granted
    expect((await gateway.ask('GET', PODS, ...as('sre'))).elevation?.id).toBe(elevation?.id);
  });

  it('J13 has a request that waits for an approval, also while an unusable one exists', async () => {
    const rule = { ...RULE, maxDuration: '15m' };
    const gateway = rig.gateway(alice);
    const first = await pendingId(gateway.ask('GET', PODS, ...as('sre')));
    gateway.caller = user('alice', [rule]);
    const second = await pendingId(gateway.ask('GET', PODS, ...as('sre')));
    expect(second).not.toBe(first);
    await gateway.access.decide(first, 'approved', decider(bob), signal);
    expect(await pendingId(gateway.ask('GET', PODS, ...as('sre')))).toBe(second);
    expect(rig.api.objects.size).toBe(2);
  });

  it.each([
    ['nothing', wish([])],
    ['writes together with groups', wish(['\x1b[2Jadmins'], { writes: true })],
    ['writes together with a user', wish([], { writes: true, user: 'root' })],
  ])('J11 cannot request %s', async (_what, wanted) => {
    const { access, steps } = rig.gateway(mallory);
    expect((await refusalOf(access.request(wanted, signal))).code).toBe('ACCESS_REQUEST_REFUSED');
    expect(steps).toEqual([]);
  });
});

/** Sends a request to a new gate with these dependencies. */
function admit(
  caller: Identity,
  deps: Partial<GateDeps>,
  method: string,
  target: string,
  headers: readonly string[] = [],
): Promise<Admission> {
  const gate = createGate({
    mode: 'auth',
    identities: { whois: async () => caller },
    upstreamHost: 'kubernetes.test',
    authorization: async () => 'Bearer gateway',
    nowMs: () => 0,
    createId: () => 'id',
    ...deps,
  });
  const peer = { address: '100.64.0.1', port: 1, source: 'socket' } as const;
  const rawHeaders = ['Host', 'gateway.ts.net', ...headers];
  return gate.admit({ method, target, rawHeaders, peer, upgrade: target.includes('/exec') }, signal);
}

it('J15 a requested user gets no uid of the caller in request headers', async () => {
  const caller = user('alice', [{ request: { users: ['breakglass'], groups: ['sre'] } }]);
  const deps = { elevations: rig.gateway(caller).access, requestHeader: true };
  const other = await admit(caller, deps, 'GET', PODS, ['Impersonate-User', 'breakglass']);
  expect(sent(other, 'x-remote-user')).toEqual(['breakglass']);
  expect(sent(other, 'x-remote-uid')).toEqual([]);
  const own = await admit(caller, deps, 'GET', PODS, as('sre'));
  expect(sent(own, 'x-remote-uid')).toEqual([String(caller.userId)]);
});

it.each([true, false])(
  'J15 a requested user is refused if claimableGroups limits grants (request headers: %s)',
  async (requestHeader) => {
    const caller = user('alice', [{ request: { users: ['cluster-admin@example.com'] } }]);
    const { access } = rig.gateway(caller);
    const deps = { elevations: access, requestHeader };
    const headers = ['Impersonate-User', 'cluster-admin@example.com'];
    expect((await admit(caller, deps, 'GET', PODS, headers)).elevation).toBeDefined();
    const limited = { ...deps, claimableGroups: ['devs'] };
    const { code } = await refusalOf(admit(caller, limited, 'GET', PODS, headers));
    expect(code).toBe('POLICY_REFUSED');
  },
);

describe('a rule about writes', () => {
  const rules = [{ request: { writes: true }, approvers: RULE.approvers }, RULE];
  const agent = user('agent', rules);
  const self = ['Impersonate-User', agent.login, 'Impersonate-Group', 'devs'];
  const login = 'jörg@example.com';

  it.each([
    ['itself', self, agent],
    ['itself and the group of all users', [...self, 'Impersonate-Group', 'system:authenticated'], agent],
    [
      'itself in UTF-8',
      ['Impersonate-User', Buffer.from(login).toString('latin1'), 'Impersonate-Group', 'devs'],
      { ...agent, login },
    ],
  ])('J12 applies to a caller who names %s', async (_whom, headers, identity) => {
    const gateway = rig.gateway(identity);
    const id = await pendingId(gateway.ask('DELETE', `${PODS}/p`, ...headers));
    expect(await pendingId(gateway.ask('GET', `${PODS}/p/exec?command=sh&stdout=1`, ...headers))).toBe(id);
    expect((await gateway.ask('GET', PODS, ...headers)).elevation).toBeUndefined();
    await gateway.access.decide(id, 'approved', decider(bob), signal);
    expect((await gateway.ask('DELETE', `${PODS}/p`, ...headers)).elevation?.id).toBe(id);
  });

  it.each([
    ['its own groups and a requested group', as('devs', 'log-readers')],
    ['a requested group', as('log-readers')],
    ['a requested user', ['Impersonate-User', 'deployer']],
  ])('J12 applies to a caller who names %s', async (_whom, headers) => {
    const free = { request: { groups: ['log-readers'], users: ['deployer'] } };
    const gateway = rig.gateway(user('agent', [...rules, free]));
    const id = await pendingId(gateway.ask('DELETE', `${PODS}/p`, ...headers));
    expect(await pendingId(gateway.ask('GET', `${PODS}/p/exec?command=sh&stdout=1`, ...headers))).toBe(id);
    expect((await gateway.ask('GET', PODS, ...headers)).elevation?.writes).toBeUndefined();
    await gateway.access.decide(id, 'approved', decider(bob), signal);
    const admission = await gateway.ask('DELETE', `${PODS}/p`, ...headers);
    expect(admission.elevation?.writes?.id).toBe(id);
    const peer = { address: '100.64.0.1', port: 1, source: 'socket' } as const;
    await gateway.gate.confirm(admission, peer, signal);
    const ends: string[] = [];
    const rechecks = createRechecks({ gate: gateway.gate, elevations: gateway.access, monotonicMs: () => 0 });
    rechecks.watch(admission, peer, ({ code }) => ends.push(code));
    await gateway.access.decide(id, 'revoked', decider(bob), signal);
    expect(ends).toEqual(['ACCESS_ENDED']);
    expect((await refusalOf(gateway.gate.confirm(admission, peer, signal))).code).toBe('ACCESS_ENDED');
    rechecks.close();
  });

  it.each([
    ['a write', 'DELETE', []],
    ['an exec', 'GET', []],
    ['a requested group', 'GET', as('sre')],
  ])('J12 refuses %s at a gateway that stores no access requests', async (_what, method, headers) => {
    const { code } = await refusalOf(admit(agent, {}, method, `${PODS}/p/exec?command=sh&stdout=1`, headers));
    expect(code).toBe('ACCESS_REQUEST_UNAVAILABLE');
    expect((await admit(agent, {}, 'GET', PODS)).elevation).toBeUndefined();
  });

  it('J12 refuses writes at a gateway without impersonation', async () => {
    const { code } = await refusalOf(admit(agent, { mode: 'noauth' }, 'DELETE', `${PODS}/p`));
    expect(code).toBe('ACCESS_REQUEST_UNAVAILABLE');
    const named = ['Impersonate-User', 'me', 'Impersonate-Group', 'sre'];
    expect((await admit(agent, { mode: 'noauth' }, 'GET', PODS, named)).elevation).toBeUndefined();
    const other = user('alice', [RULE]);
    expect((await admit(other, { mode: 'noauth' }, 'DELETE', `${PODS}/p`)).elevation).toBeUndefined();
  });

  it.each([
    ['some of its groups', ['Impersonate-User', agent.login]],
    ['a user without a rule', ['Impersonate-User', 'root', 'Impersonate-Group', 'devs']],
  ])('J12 causes no request of a caller who names %s', async (_whom, headers) => {
    const gateway = rig.gateway(agent);
    const error = await refusalOf(gateway.ask('DELETE', `${PODS}/p`, ...headers));
    expect(error.code).toBe('IMPERSONATION_REFUSED');
    expect(rig.api.objects.size).toBe(0);
  });
});
