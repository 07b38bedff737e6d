import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import { createGate, type Admission, type InboundRequest } from '../../../src/proxy/gate/gate.ts';
import { createRechecks } from '../../../src/proxy/gate/recheck.ts';
import { ACCESS_CAPABILITY } from '../../../src/tailnet/access-rules.ts';
import type { Identity } from '../../../src/tailnet/identity.ts';
import { codeOf } from '../../support/error-code.ts';
import { person } from '../rig.ts';

const PEER = { address: '100.64.0.1', port: 1, source: 'socket' } as const;
const signal = new AbortController().signal;
const recorder = { recorderAddrs: ['100.64.0.9:80'] };

function gateOver(answer: { identity: Identity | TailcastError }, mode: 'auth' | 'noauth' = 'auth') {
  return createGate({
    mode,
    identities: {
      whois: () =>
        answer.identity instanceof TailcastError
          ? Promise.reject(answer.identity)
          : Promise.resolve(answer.identity),
    },
    upstreamHost: 'kubernetes.test',
    authorization: () => Promise.resolve('Bearer token'),
    nowMs: () => 0,
    createId: () => 'id',
  });
}

const WATCH = {
  method: 'GET',
  target: '/api/v1/pods?watch=1',
  rawHeaders: ['Host', 'gateway'],
  peer: PEER,
  upgrade: false,
};

describe('rechecking an admission', () => {
  it.each<[string, Identity | TailcastError, string | undefined]>([
    ['the same answer', person(), undefined],
    ['one group more', person([{ impersonate: { groups: ['devs', 'ops'] } }]), undefined],
    ['a recorder, not enforced', person([{ impersonate: { groups: ['devs'] }, ...recorder }]), undefined],
    ['no grant', person([]), 'ACCESS_ENDED'],
    ['another group', person([{ impersonate: { groups: ['ops'] } }]), 'ACCESS_ENDED'],
    ['another user', { ...person(), login: 'bob@example.com' } as Identity, 'ACCESS_ENDED'],
    ['another node', { ...person(), nodeId: 'nOther' }, 'ACCESS_ENDED'],
    ['enforcement', person([{ impersonate: { groups: ['devs'] }, enforceRecorder: true }]), 'ACCESS_ENDED'],
    ['a grant that is malformed', person([7]), 'GRANT_MALFORMED'],
    ['nobody', new TailcastError('IDENTITY_UNKNOWN'), 'IDENTITY_UNKNOWN'],
  ])('after %s', async (_what, later, code) => {
    const answer: { identity: Identity | TailcastError } = { identity: person() };
    const gate = gateOver(answer);
    const admission = await gate.admit(WATCH, signal);
    answer.identity = later;
    const outcome = await gate.confirm(admission, PEER, signal).then(
      () => undefined,
      (error: unknown) => (error as TailcastError).code,
    );
    expect(outcome).toBe(code);
  });
});

describe('rechecking an admission after a new rule', () => {
  const POD = '/api/v1/namespaces/prod/pods/p';
  const EXEC = { ...WATCH, target: `${POD}/exec?command=sh`, upgrade: true };
  const recorded = { impersonate: { groups: ['devs'] }, ...recorder, enforceRecorder: true };
  const withRules = (rules: readonly unknown[], grant: unknown = recorded): Identity => {
    const identity = person([grant]);
    return { ...identity, capabilities: new Map([...identity.capabilities, [ACCESS_CAPABILITY, rules]]) };
  };
  const moderated = (users: readonly string[], more = {}) => ({
    moderate: ['exec', 'attach'],
    moderators: { users },
    ...more,
  });
  const writes = { request: { writes: true }, approvers: { users: ['bob@example.com'] } };
  const bob = withRules([moderated(['bob'])]);

  it.each<[string, Partial<InboundRequest>, Identity, Identity, string | undefined]>([
    ['an exec, and moderation', EXEC, withRules([]), bob, 'ACCESS_ENDED'],
    [
      'an exec, and moderation of attach',
      EXEC,
      withRules([]),
      withRules([moderated(['bob'], { moderate: ['attach'] })]),
      undefined,
    ],
    [
      'an exec, and moderation in another namespace',
      EXEC,
      withRules([]),
      withRules([moderated(['bob'], { namespaces: ['dev'] })]),
      undefined,
    ],
    ['a moderated exec, and no rule', EXEC, bob, withRules([]), undefined],
    [
      'a moderated exec, and one more moderator',
      EXEC,
      bob,
      withRules([moderated(['bob', 'eve'])]),
      undefined,
    ],
    ['a moderated exec, and another moderator', EXEC, bob, withRules([moderated(['eve'])]), 'ACCESS_ENDED'],
    [
      'a moderated exec, and a second rule',
      EXEC,
      bob,
      withRules([moderated(['bob']), moderated(['eve'])]),
      'ACCESS_ENDED',
    ],
    [
      'a request to a node, and moderation',
      { target: '/api/v1/nodes/n/proxy/logs/' },
      withRules([]),
      bob,
      'POLICY_REFUSED',
    ],
    ['an exec, and a rule about writes', EXEC, withRules([]), withRules([writes]), 'ACCESS_ENDED'],
    [
      'a write, and a rule about writes',
      { method: 'PATCH', target: POD },
      withRules([]),
      withRules([writes]),
      'ACCESS_ENDED',
    ],
    ['a watch, and a rule about writes', WATCH, withRules([]), withRules([writes]), undefined],
    [
      'an unknown upgrade, and a recorder',
      { target: '/healthz', upgrade: true },
      person(),
      person([{ impersonate: { groups: ['devs'] }, ...recorder }]),
      'POLICY_REFUSED',
    ],
  ])('of %s', async (_what, request, first, later, code) => {
    const answer: { identity: Identity } = { identity: first };
    const gate = gateOver(answer);
    const running = await gate.admit({ ...WATCH, ...request }, signal);
    await gate.confirm(running, PEER, signal);
    answer.identity = later;
    expect(await codeOf(gate.confirm(running, PEER, signal))).toBe(code);
  });

  it('in `noauth` mode, of a node that belongs to another user now', async () => {
    const answer: { identity: Identity } = { identity: person() };
    const gate = gateOver(answer, 'noauth');
    const running = await gate.admit(WATCH, signal);
    answer.identity = { ...person(), login: 'bob@example.com' } as Identity;
    expect(await codeOf(gate.confirm(running, PEER, signal))).toBe('ACCESS_ENDED');
  });
});

describe('rechecks', () => {
  let nowMs = 0;
  beforeEach(() => {
    nowMs = 0;
    vi.useFakeTimers();
  });
  afterEach(() => void vi.useRealTimers());

  const admission = {} as Admission;
  const advance = async (ms: number): Promise<void> => {
    for (let passed = 0; passed < ms; passed += 1000) {
      nowMs += 1000;
      await vi.advanceTimersByTimeAsync(1000);
    }
  };

  it('end sessions whose access was removed, once, within the interval of the checks', async () => {
    let fail = false;
    const confirm = () => (fail ? Promise.reject(new TailcastError('ACCESS_ENDED')) : Promise.resolve());
    const rechecks = createRechecks({ gate: { confirm }, monotonicMs: () => nowMs });
    const ends: string[] = [];
    rechecks.watch(admission, PEER, (error) => ends.push(error.code));
    await advance(60_000);
    expect(ends).toEqual([]);
    fail = true;
    await advance(5_000);
    expect(ends).toEqual(['ACCESS_ENDED']);
    await advance(20_000);
    expect(ends).toHaveLength(1);
    rechecks.close();
  });

  it.each(['IDENTITY_UNAVAILABLE', 'ACCESS_REVIEW_FAILED'] as const)(
    'tolerate failed checks for a while (%s), and end all sessions within 15 s',
    async (code) => {
      let down = true;
      const confirm = () => (down ? Promise.reject(new TailcastError(code)) : Promise.resolve());
      const rechecks = createRechecks({ gate: { confirm }, monotonicMs: () => nowMs });
      const ends: string[] = [];
      rechecks.watch(admission, PEER, (error) => ends.push(error.code));
      await advance(7_000);
      down = false;
      await advance(4_000);
      expect(ends).toEqual([]);
      down = true;
      await advance(15_000);
      expect(ends).toEqual([code]);
      rechecks.close();
    },
  );

  it('end all sessions in time although no check ever completes', async () => {
    let answers = true;
    const confirm = () => (answers ? Promise.resolve() : new Promise<void>(() => {}));
    const rechecks = createRechecks({ gate: { confirm }, monotonicMs: () => nowMs });
    const ends: [string, number][] = [];
    rechecks.watch(admission, PEER, (error) => ends.push([error.code, nowMs]));
    await advance(8_000);
    answers = false;
    await advance(60_000);
    expect(ends).toEqual([['IDENTITY_UNAVAILABLE', expect.any(Number)]]);
    // the session ends within 10 s of the moment at which the checks begin to hang
    expect((ends[0]?.[1] ?? 0) - 8_000).toBeLessThanOrEqual(10_000);
    rechecks.close();
  });

  it('end all sessions in time although every check fails late', async () => {
    let down = false;
    const confirm = () =>
      down
        ? new Promise<void>((_resolve, reject) => {
            setTimeout(() => reject(new TailcastError('IDENTITY_UNAVAILABLE')), 5_000);
          })
        : Promise.resolve();
    const rechecks = createRechecks({ gate: { confirm }, monotonicMs: () => nowMs });
    const ends: number[] = [];
    rechecks.watch(admission, PEER, () => ends.push(nowMs));
    await advance(8_000);
    down = true;
    await advance(60_000);
    expect(ends).toHaveLength(1);
    expect((ends[0] ?? 0) - 8_000).toBeLessThanOrEqual(10_000);
    rechecks.close();
  });

  it('ignore sessions that have already ended', async () => {
    const confirm = () => Promise.reject(new TailcastError('ACCESS_ENDED'));
    const rechecks = createRechecks({ gate: { confirm }, monotonicMs: () => nowMs });
    const ends: string[] = [];
    const stop = rechecks.watch(admission, PEER, (error) => ends.push(error.code));
    stop();
    await advance(20_000);
    expect(ends).toEqual([]);
    rechecks.close();
  });

  it('do not run two checks of a session at once', async () => {
    let asked = 0;
    const confirm = () => {
      asked += 1;
      return new Promise<void>(() => {});
    };
    const rechecks = createRechecks({ gate: { confirm }, monotonicMs: () => nowMs });
    rechecks.watch(admission, PEER, () => {});
    await advance(20_000);
    expect(asked).toBe(1);
    rechecks.close();
  });
});
