import { describe, expect, it } from 'vitest';
import { moderate } from '../../../src/proxy/gate/moderation.ts';
import { parseTarget } from '../../../src/kube/canonical-target.ts';
import type { RequestClass } from '../../../src/kube/interactive.ts';
import { parseRequestInfo } from '../../../src/kube/request-info.ts';
import { policyClassOf } from '../../../src/proxy/gate/policy.ts';
import type { RecordingPolicy } from '../../../src/recording/policy.ts';
import type { ModerationRule } from '../../../src/tailnet/access-rules.ts';

const RECORDED: RecordingPolicy = {
  mode: 'failOpen',
  recorders: ['100.64.0.2:80'],
  recorderTags: [],
  events: false,
};
const RULE: ModerationRule = {
  moderate: ['exec', 'portForward'],
  moderators: { users: ['bob@example.com'], tags: [] },
  clusters: [],
  namespaces: [],
};

function decide(
  requestClass: RequestClass,
  {
    rule = {},
    namespace = 'prod',
    cluster,
    recording = RECORDED,
    upgrade = false,
    path = '/version',
  }: {
    readonly rule?: Partial<ModerationRule>;
    readonly namespace?: string;
    readonly cluster?: string;
    readonly recording?: RecordingPolicy;
    readonly upgrade?: boolean;
    readonly path?: string;
  } = {},
) {
  const target = parseTarget(path);
  const info = parseRequestInfo('GET', target);
  const policyClass = policyClassOf({ requestClass, info, target, upgrade });
  return moderate(
    [{ ...RULE, ...rule }],
    { info: { ...info, namespace }, requestClass, policyClass, cluster },
    recording,
  );
}

describe('a rule about moderated sessions', () => {
  it('applies to its classes, and enforces the recording', () => {
    expect(decide('exec')).toEqual({ moderation: [RULE], recording: { ...RECORDED, mode: 'failClosed' } });
    expect(decide('attach')).toEqual({ recording: RECORDED });
    expect(decide('plain')).toEqual({ recording: RECORDED });
  });

  it('applies to its namespaces and clusters', () => {
    expect(decide('exec', { rule: { namespaces: ['prod'] } }).moderation).toHaveLength(1);
    expect(decide('exec', { rule: { namespaces: ['dev'] } }).moderation).toBeUndefined();
    expect(decide('exec', { rule: { clusters: ['eu-*'] }, cluster: 'eu-1' }).moderation).toHaveLength(1);
    expect(decide('exec', { rule: { clusters: ['eu-*'] }, cluster: 'us-1' }).moderation).toBeUndefined();
    expect(decide('exec', { rule: { clusters: ['eu-*'] } }).moderation).toHaveLength(1);
  });

  it.each<RequestClass>(['nodeProxy', 'otherProxy', 'opaqueUpgrade', 'unknownSubresource'])(
    'refuses %s, which could run a command without a recording, in every namespace',
    (requestClass) => {
      expect(() => decide(requestClass, { rule: { namespaces: ['dev'] } })).toThrow(
        'this request has no recording',
      );
      expect(decide(requestClass, { rule: { moderate: ['attach'] } })).toEqual({ recording: RECORDED });
    },
  );

  it.each<RequestClass>(['podProxy', 'serviceProxy', 'customResource', 'workload', 'plain'])(
    'refuses an upgrade of %s, which may be a terminal, and no other request',
    (requestClass) => {
      expect(() => decide(requestClass, { upgrade: true })).toThrow('this request has no recording');
      expect(decide(requestClass)).toEqual({ recording: RECORDED });
    },
  );

  it('refuses ephemeral containers in its namespaces, because they run commands in an existing pod', () => {
    expect(() => decide('ephemeralContainers')).toThrow('this request has no recording');
    expect(decide('ephemeralContainers', { rule: { namespaces: ['dev'] } })).toEqual({ recording: RECORDED });
    expect(decide('ephemeralContainers', { rule: { moderate: ['attach'] } })).toEqual({
      recording: RECORDED,
    });
  });

  it.each([
    'run/ns/p/c',
    'exec/ns/p/c',
    'attach/ns/p/c',
    'portForward/ns/p',
    'cri/exec/token',
    '/run/ns/p/c',
  ])('refuses a request to a program that may be a kubelet: %s', (command) => {
    for (const [requestClass, name] of [
      ['podProxy', 'pods/https:p:10250'],
      ['serviceProxy', 'services/https:kubelet:10250'],
    ] as const) {
      const path = `/api/v1/namespaces/prod/${name}/proxy/${command}`;
      expect(() => decide(requestClass, { path, rule: { namespaces: ['dev'] } })).toThrow(
        'this request has no recording',
      );
      expect(decide(requestClass, { path: path.replace(command, `app/${command}`) })).toEqual({
        recording: RECORDED,
      });
    }
  });

  it('refuses port-forwards, and sessions without a recorder', () => {
    expect(() => decide('portForward')).toThrow('they have no screen');
    const off: RecordingPolicy = { mode: 'off' };
    expect(() => decide('exec', { recording: off })).toThrow('your grants name no recorder');
  });
});
