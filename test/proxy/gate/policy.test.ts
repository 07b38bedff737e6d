import { describe, expect, it } from 'vitest';
import { parseTarget } from '../../../src/kube/canonical-target.ts';
import { classifyRequest } from '../../../src/kube/interactive.ts';
import { parseRequestInfo } from '../../../src/kube/request-info.ts';
import { parsePolicy } from '../../../src/proxy/gate/policy-file.ts';
import {
  decide,
  DEFAULT_POLICY,
  isBodyRequired,
  POLICY_CLASSES,
  policyClassOf,
  refusedPort,
  type PolicyAction,
  type PolicyClass,
} from '../../../src/proxy/gate/policy.ts';

function classOf(method: string, raw: string, upgrade = false): PolicyClass | undefined {
  const target = parseTarget(raw);
  const info = parseRequestInfo(method, target);
  return policyClassOf({ requestClass: classifyRequest(info, { upgrade, method }), info, target, upgrade });
}

const POD = '/api/v1/namespaces/n/pods/p';
const NODE = '/api/v1/nodes/w/proxy';

describe('the policy class', () => {
  it.each<[string, string, PolicyClass | undefined, PolicyClass]>([
    ['GET', `${POD}/exec`, 'exec', 'exec'],
    ['POST', `${POD}/attach`, 'attach', 'attach'],
    ['POST', `${POD}/portforward`, 'portForward', 'portForward'],
    ['GET', `${POD}/proxy/x`, 'podProxyRequest', 'podProxyUpgrade'],
    ['GET', '/api/v1/namespaces/n/services/s/proxy/x', 'serviceProxyRequest', 'serviceProxyUpgrade'],
    ['PATCH', `${POD}/ephemeralcontainers`, 'ephemeralContainers', 'opaqueUpgrade'],
    ['POST', '/api/v1/namespaces/n/serviceaccounts/s/token', 'accessChange', 'opaqueUpgrade'],
    ['POST', '/api/v1/namespaces/n/serviceaccounts', undefined, 'opaqueUpgrade'],
    ['GET', '/apis/rbac.authorization.k8s.io/v1/clusterroles', undefined, 'opaqueUpgrade'],
    ['DELETE', '/apis/rbac.authorization.k8s.io/v1/clusterroles', 'accessChange', 'opaqueUpgrade'],
    ['POST', '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews', undefined, 'opaqueUpgrade'],
    ['GET', '/api/v1/pods?watch=1', undefined, 'streamUpgrade'],
    ['GET', `${POD}/log?follow=1`, undefined, 'streamUpgrade'],
    ['GET', POD, undefined, 'opaqueUpgrade'],
    ['POST', '/apis/apps/v1/namespaces/n/deployments', 'workload', 'opaqueUpgrade'],
    ['POST', '/apis/x/v1/namespaces/n/things', 'customResource', 'opaqueUpgrade'],
    ['GET', '/api/v1/secrets', 'secretRead', 'opaqueUpgrade'],
    ['GET', '/api/v1/secrets?watch=1', 'secretRead', 'secretRead'],
    ['GET', '/clusters/c/api/v1/nodes/w/proxy/metrics', 'kubeletRead', 'kubeletExec'],
    ['GET', '/healthz', undefined, 'opaqueUpgrade'],
    ['GET', `${NODE}/metrics`, 'kubeletRead', 'kubeletExec'],
    ['GET', `${NODE}/metrics/cadvisor`, 'kubeletRead', 'kubeletExec'],
    ['GET', `${NODE}/stats/summary`, 'kubeletRead', 'kubeletExec'],
    ['GET', `${NODE}/logs/`, 'kubeletRead', 'kubeletExec'],
    ['GET', `${NODE}/logs/?query=kubelet`, 'kubeletExec', 'kubeletExec'],
    ['GET', `${NODE}/logs/syslog`, 'kubeletRead', 'kubeletExec'],
    ['GET', `${NODE}/logs/?`, 'kubeletRead', 'kubeletExec'],
    ['GET', `${NODE}/stats/summary?only_cpu_and_memory=true`, 'kubeletRead', 'kubeletExec'],
    ['GET', '/apis/x/v1/clusters/c/proxy/version', 'otherProxy', 'opaqueUpgrade'],
    ['POST', '/apis/x/v1/things/t/connect', 'unknownSubresource', 'opaqueUpgrade'],
    ['GET', '/apis/x/v1/things/t/connect', 'unknownSubresource', 'opaqueUpgrade'],
    ['GET', `${NODE}/containerLogs/n/p/c`, 'kubeletRead', 'kubeletExec'],
    ['POST', `${NODE}/metrics`, 'kubeletExec', 'kubeletExec'],
    ['GET', `${NODE}/`, 'kubeletExec', 'kubeletExec'],
    ['GET', NODE, 'kubeletExec', 'kubeletExec'],
    ['GET', `${NODE}/exec/n/p/c`, 'kubeletExec', 'kubeletExec'],
    ['POST', `${NODE}/run/n/p/c`, 'kubeletExec', 'kubeletExec'],
    ['GET', `${NODE}/debug/pprof/`, 'kubeletExec', 'kubeletExec'],
    ['GET', `${NODE}/checkpoint/n/p/c`, 'kubeletExec', 'kubeletExec'],
    ['GET', `${NODE}/metrics//exec`, 'kubeletExec', 'kubeletExec'],
    ['GET', `${NODE}/%6detrics`, 'kubeletExec', 'kubeletExec'],
    ['GET', `${NODE}/metrics;x`, 'kubeletExec', 'kubeletExec'],
    ['GET', `${NODE}/metricsx`, 'kubeletExec', 'kubeletExec'],
    ['GET', '/api/v1/nodes/https:w:10250/proxy/pods', 'kubeletRead', 'kubeletExec'],
  ])('of %s %s is %s, and %s with an upgrade', (method, target, asRequest, asUpgrade) => {
    expect(classOf(method, target)).toBe(asRequest);
    expect(classOf(method, target, true)).toBe(asUpgrade);
  });

  it('of every upgrade is defined', () => {
    for (const path of [POD, '/', '/x', NODE, `${POD}/exec`, '/apis/a/b/c/d', `${POD}/ephemeralcontainers`])
      for (const method of ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'])
        expect(classOf(method, path, true)).toBeDefined();
  });
});

describe('the default policy', () => {
  const actions = (mode: 'failClosed' | 'failOpen' | 'off'): Record<string, PolicyAction> =>
    Object.fromEntries(POLICY_CLASSES.map((name) => [name, decide(DEFAULT_POLICY, name, { mode }).action]));

  it('refuses with enforced recording what could be a shell and cannot be recorded', () => {
    expect(actions('failClosed')).toEqual({
      exec: 'record',
      attach: 'record',
      portForward: 'event',
      kubeletExec: 'refuse',
      kubeletRead: 'event',
      podProxyUpgrade: 'refuse',
      podProxyRequest: 'event',
      serviceProxyUpgrade: 'refuse',
      serviceProxyRequest: 'event',
      otherProxy: 'refuse',
      ephemeralContainers: 'event',
      accessChange: 'event',
      workload: 'event',
      customResource: 'event',
      secretRead: 'event',
      unknownSubresource: 'event',
      streamUpgrade: 'allow',
      opaqueUpgrade: 'refuse',
    });
  });

  it('records exec and attach for others', () => {
    for (const mode of ['failOpen', 'off'] as const) {
      const found = Object.entries(actions(mode));
      expect(found.filter(([, action]) => action === 'record')).toHaveLength(2);
      const refused = found.filter(([, action]) => action === 'refuse').map(([name]) => name);
      expect(refused).toEqual(mode === 'off' ? [] : ['opaqueUpgrade']);
    }
  });

  it('requires a readable body for requests with commands only if recording is enforced', () => {
    const required = (mode: 'failClosed' | 'failOpen' | 'off', policy = DEFAULT_POLICY) =>
      POLICY_CLASSES.filter((name) => isBodyRequired(policy, name, { mode }));
    expect(required('failClosed')).toEqual(['ephemeralContainers', 'workload']);
    expect(required('failOpen')).toEqual([]);
    expect(required('off')).toEqual([]);
    expect(required('failClosed', { ...DEFAULT_POLICY, unreadableWorkloads: 'event' })).toEqual([]);
  });
});

describe('a policy file', () => {
  const parse = (content: Record<string, unknown>) =>
    parsePolicy(new Map(Object.entries(content)), 'policy.yaml');

  it('that is empty is the default', () => {
    expect(parse({})).toEqual(DEFAULT_POLICY);
    expect(parse({ enforced: null, sessions: {} })).toEqual(DEFAULT_POLICY);
  });

  it('changes only the classes that it names', () => {
    const policy = parse({
      enforced: { portForward: 'refuse', opaqueUpgrade: 'allow' },
      others: { kubeletExec: 'refuse' },
      portForward: { refusePorts: [22, '10250-10259'] },
      workloads: { unreadable: 'event' },
      browsers: { programPages: 'sandbox' },
      sessions: {
        perUser: 3,
        total: 9,
        maxMinutes: 60,
        idleMinutes: 15,
        notice: 'Recorded – é',
        askReason: true,
      },
    });
    expect(policy.enforced).toEqual({
      ...DEFAULT_POLICY.enforced,
      portForward: 'refuse',
      opaqueUpgrade: 'allow',
    });
    expect(policy.others).toEqual({ ...DEFAULT_POLICY.others, kubeletExec: 'refuse' });
    expect(policy.programPages).toBe('sandbox');
    expect(policy.unreadableWorkloads).toBe('event');
    expect(policy.sessions).toEqual({
      perUser: 3,
      total: 9,
      maxDurationMs: 3_600_000,
      idleMs: 900_000,
      notice: 'Recorded – é',
      askReason: true,
    });
    expect([21, 22, 10249, 10250, 10259, 10260].map((port) => refusedPort(policy, [port]))).toEqual([
      undefined,
      22,
      undefined,
      10250,
      10259,
      undefined,
    ]);
  });

  it.each<[Record<string, unknown>, RegExp]>([
    [{ enforce: {} }, /enforce in policy.yaml: no such section/],
    [{ enforced: { shell: 'refuse' } }, /enforced.shell .*no such class/],
    [{ enforced: { exec: 'maybe' } }, /enforced.exec .*one of record/],
    [{ enforced: { exec: true } }, /enforced.exec/],
    [{ enforced: { podProxyUpgrade: 'record' } }, /only exec and attach can be recorded/],
    [{ enforced: [] }, /a mapping is expected/],
    [{ portForward: { ports: [22] } }, /portForward.ports/],
    [{ portForward: { refusePorts: [0] } }, /refusePorts\[0\]/],
    [{ portForward: { refusePorts: ['90-80'] } }, /refusePorts\[0\]/],
    [{ portForward: { refusePorts: [70_000] } }, /refusePorts\[0\]/],
    [{ workloads: { unreadable: 'allow' } }, /workloads.unreadable .*one of refuse, event/],
    [{ workloads: { yaml: 'event' } }, /workloads.yaml .*only unreadable/],
    [{ browsers: { programPages: 'allow' } }, /browsers.programPages .*one of refuse, sandbox/],
    [{ browsers: { pages: 'refuse' } }, /browsers.pages .*only programPages/],
    [{ sessions: { perUser: 0 } }, /sessions.perUser/],
    [{ sessions: { maxHours: 1 } }, /sessions.maxHours/],
    [{ sessions: { idleMinutes: 1.5 } }, /sessions.idleMinutes/],
    [{ sessions: { notice: '' } }, /sessions.notice .*one line/],
    [{ sessions: { notice: 'a\u001b[2J' } }, /sessions.notice .*one line/],
    [{ sessions: { notice: 'a\nb' } }, /sessions.notice .*one line/],
    [{ sessions: { notice: 'a\u202eb' } }, /sessions.notice .*one line/],
    [{ sessions: { notice: 'a'.repeat(201) } }, /sessions.notice .*one line/],
  ])('with %j is refused', (content, problem) => {
    expect(() => parse(content)).toThrow(problem);
  });

  it('with several mistakes is refused with all of them in one error', () => {
    expect(() => parse({ x: 1, enforced: { exec: 'no', y: 'allow' } })).toThrow(
      /x in[^]*enforced.exec[^]*enforced.y/,
    );
  });
});
