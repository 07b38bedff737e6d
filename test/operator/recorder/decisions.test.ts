import { describe, expect, it } from 'vitest';
import { parseObject } from '../../../src/operator/kube-object.ts';
import { mustRecreate } from '../../../src/operator/workload/deploy.ts';
import { decideKey, ReissueLimiter, type KeyFacts } from '../../../src/operator/workload/keys.ts';
import { readNodeState } from '../../../src/operator/workload/node-state.ts';
import { statefulSet } from '../../../src/operator/recorder/stateful-set-specs.ts';
import { devicesOf, withConditions, type Condition } from '../../../src/operator/workload/status.ts';
import { OPTIONS, recorder, S3 } from './recorders.ts';
import { referenceObjects, referenceState } from './reference-objects.ts';
import { adoptedFields } from '../../../src/operator/workload/apply.ts';

const NOW = 1_000_000_000;
const STORED = { key: 'tskey', id: 'k1', expiresAtMs: NOW + 3_600_000, tags: ['tag:k8s'] };
const FACTS: KeyFacts = {
  stored: STORED,
  deviceId: undefined,
  brokenKey: undefined,
  tags: ['tag:k8s'],
  spent: false,
  nowMs: NOW,
};

describe('the key of a replica', () => {
  it.each<[string, Partial<KeyFacts>, object]>([
    ['is made when there is none', { stored: undefined }, { kind: 'create' }],
    ['is made when the stored one is empty', { stored: { ...STORED, key: '' } }, { kind: 'create' }],
    ['is not made for a node that has joined', { stored: undefined, deviceId: 'n' }, { kind: 'none' }],
    ['stays', {}, { kind: 'keep' }],
    [
      'stays after the node has joined, though it is over',
      { deviceId: 'n', nowMs: NOW + 1e9, spent: true },
      { kind: 'keep' },
    ],
    [
      'stays when nothing is known about it',
      { stored: { key: 'x', id: undefined, expiresAtMs: undefined, tags: undefined } },
      { kind: 'keep' },
    ],
    [
      'is replaced when the pod names it as broken',
      { brokenKey: 'tskey' },
      { kind: 'replace', reason: 'requested' },
    ],
    [
      'is replaced together with the node',
      { brokenKey: 'tskey', deviceId: 'n' },
      { kind: 'replace', reason: 'requested' },
    ],
    [
      'is replaced when the pod has none and none is stored',
      { brokenKey: 'no-authkey', stored: undefined },
      { kind: 'replace', reason: 'requested' },
    ],
    ['stays when the pod names an older one', { brokenKey: 'older' }, { kind: 'keep' }],
    [
      'stays when it is the new one and the request is still there',
      { brokenKey: 'tskey', stored: { ...STORED, key: 'newer' } },
      { kind: 'keep' },
    ],
    ['is replaced when it is spent', { spent: true }, { kind: 'replace', reason: 'spent' }],
    [
      'is replaced a minute before its end',
      { nowMs: NOW + 3_540_000 },
      { kind: 'replace', reason: 'expired' },
    ],
    ['stays until then', { nowMs: NOW + 3_539_999 }, { kind: 'keep' }],
    ['is replaced when other tags are wanted', { tags: ['tag:other'] }, { kind: 'replace', reason: 'tags' }],
  ])('%s', (_name, facts, expected) => {
    expect(decideKey({ ...FACTS, ...facts })).toEqual(expected);
  });

  it('is made anew once in thirty seconds, and at first as often as there are replicas', () => {
    let now = 0;
    const limiter = new ReissueLimiter(3, () => now);
    expect([1, 2, 3, 4].map(() => limiter.take())).toEqual([true, true, true, false]);
    now = 29_999;
    expect(limiter.take()).toBe(false);
    now = 30_000;
    expect([limiter.take(), limiter.take()]).toEqual([true, false]);
    now = 10_000_000;
    expect([1, 2, 3, 4].map(() => limiter.take())).toEqual([true, true, true, false]);
    expect(new ReissueLimiter(0, () => now).take()).toBe(true);
  });
});

const secret = (data: Record<string, string>) =>
  parseObject({
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: 'test-0' },
    data: Object.fromEntries(
      Object.entries(data).map(([key, value]) => [key, Buffer.from(value).toString('base64')]),
    ),
  });

describe('the state of a node', () => {
  it('is read from the reference’s profile', () => {
    const state = readNodeState(
      parseObject({
        apiVersion: 'v1',
        kind: 'Secret',
        metadata: { name: 'x' },
        data: referenceState('n1', 'rec-0.example.ts.net'),
      }),
    );
    expect(state).toMatchObject({
      deviceId: 'n1',
      dnsName: 'rec-0.example.ts.net',
      https: true,
      brokenKey: undefined,
    });
  });

  it('is read from what containerboot writes', () => {
    expect(
      readNodeState(
        secret({
          device_id: 'n2',
          device_fqdn: 'rec-0.example.ts.net.',
          device_ips: '["100.64.0.1"]',
          https_endpoint: 'no-https',
          reissue_authkey: 'k',
          pod_uid: 'pod-1',
          '_current-profile': 'profile-1',
          'profile-1': '{"AdvertiseServices":["svc:prod"],"Config":null}',
        }),
      ),
    ).toEqual({
      deviceId: 'n2',
      dnsName: 'rec-0.example.ts.net',
      addresses: ['100.64.0.1'],
      https: false,
      advertised: ['svc:prod'],
      routes: [],
      podUid: 'pod-1',
      brokenKey: 'k',
    });
  });

  it.each([
    {},
    { '_current-profile': 'p' },
    { '_current-profile': 'p', p: 'not JSON' },
    { '_current-profile': 'p', p: '{"Config":null}' },
    { '_current-profile': 'p', p: '{"Config":{"NodeID":""}}' },
    { '_current-profile': 'p', p: '{"Config":{"NodeID":7}}' },
    { device_id: '', device_ips: 'nonsense' },
  ])('is that of a node that has not joined: %o', (data) => {
    expect(readNodeState(secret(data as Record<string, string>))).toMatchObject({
      deviceId: undefined,
      addresses: [],
    });
  });

  it('takes no login name for a host name', () => {
    for (const login of ['tagged-devices', 'alice@example.com']) {
      expect(
        readNodeState(
          parseObject({
            apiVersion: 'v1',
            kind: 'Secret',
            metadata: { name: 'x' },
            data: referenceState('n', login),
          }),
        ).dnsName,
      ).toBeUndefined();
    }
  });
});

describe('devices', () => {
  const state = (deviceId: string | undefined, dnsName: string | undefined, https = true) => ({
    deviceId,
    dnsName,
    addresses: ['100.64.0.9'],
    https,
    advertised: [],
    routes: [],
    podUid: undefined,
    brokenKey: undefined,
  });

  it('have a URL only where there is a player', () => {
    const nodes = [
      {
        state: state('n', 'rec-0.example.ts.net'),
        control: { hostname: 'rec-0', addresses: ['100.64.0.1'] },
      },
    ];
    expect(devicesOf(nodes, true)).toEqual([
      { hostname: 'rec-0', tailnetIPs: ['100.64.0.1'], url: 'https://rec-0.example.ts.net' },
    ]);
    expect(devicesOf(nodes, false)).toEqual([{ hostname: 'rec-0', tailnetIPs: ['100.64.0.1'] }]);
    expect(devicesOf([{ state: state('n', 'rec-0.lab', false), control: undefined }], true)).toEqual([
      { hostname: 'rec-0', tailnetIPs: ['100.64.0.9'], url: 'http://rec-0.lab' },
    ]);
  });

  it('are listed once they have joined, under different names', () => {
    const same = { hostname: 'rec', addresses: [] };
    const nodes = [
      { state: state('n0', 'rec.example.ts.net'), control: same },
      { state: state(undefined, undefined), control: undefined },
      { state: state('n2', 'rec-1.example.ts.net'), control: same },
      { state: state('n3', undefined), control: same },
    ];
    expect(devicesOf(nodes, false).map(({ hostname }) => hostname)).toEqual(['rec', 'rec-1', 'n3']);
  });
});

describe('a condition', () => {
  const ready = { ready: true, reason: 'RecorderCreated', message: 'RecorderCreated' };
  const [early, late] = ['2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z'];
  const other: Condition = {
    type: 'Other',
    status: 'True',
    reason: 'X',
    message: '',
    lastTransitionTime: early,
  };

  it('has a new time only if its status changes, and keeps the conditions of other controllers', () => {
    const first = withConditions([other], { RecorderReady: ready, Other: undefined }, 1, early);
    const condition = {
      type: 'RecorderReady',
      status: 'True',
      reason: 'RecorderCreated',
      message: 'RecorderCreated',
      observedGeneration: 1,
      lastTransitionTime: early,
    };
    expect(first).toEqual([other, condition]);
    expect(withConditions(first, { RecorderReady: ready }, 2, late)).toEqual([
      other,
      { ...condition, observedGeneration: 2 },
    ]);
    const failed = { ready: false, reason: 'RecorderCreationFailed', message: 'no' };
    expect(withConditions(first, { RecorderReady: failed, Other: null }, 1, late)).toMatchObject([
      { type: 'RecorderReady', status: 'False', lastTransitionTime: late },
    ]);
  });
});

describe('validation', () => {
  it.each([
    ['example.com/role', true],
    ['role', true],
    ['Example.COM/Role_1.x', true],
    [`${'a'.repeat(63)}`, true],
    [`${'a'.repeat(64)}`, false],
    ['a/b/c', false],
    ['/role', false],
    ['example.com/', false],
    ['has space', false],
    ['-role', false],
  ])('knows an annotation key: %s', (key, valid) => {
    const one = recorder({
      enableUI: true,
      statefulSet: { pod: { serviceAccount: { annotations: { [key]: '' } } } },
    });
    expect(one.problem === undefined).toBe(valid);
  });

  it.each([
    ['TAILCAST_OPS_LISTEN', ':0', false],
    ['TAILCAST_OPS_LISTEN', '127.0.0.1:70000', false],
    ['TAILCAST_READ_LISTEN', '127.0.0.1:00', false],
    ['TAILCAST_LISTEN', '127.0.0.1:0', false],
    ['TAILCAST_PROXY_PROTOCOL', '127.0.0.77:0', false],
    ['TAILCAST_PROXY_PROTOCOL', '127.0.0.77:8080', true],
    ['TAILCAST_OPS_LISTEN', ':65535', true],
    ['TAILCAST_OPS_LISTEN', 'off', true],
    ['TAILCAST_OPS_LISTEN', '$(POD_IP):9003', true],
    ['TAILCAST_HOSTS', 'example.com:0', true],
  ])('requires a port that peers can use: %s=%s', (name, value, valid) => {
    const { problem } = recorder({
      enableUI: true,
      statefulSet: { pod: { container: { env: [{ name, value }] } } },
    });
    if (valid) expect(problem).toBeUndefined();
    else
      expect(problem).toBe(
        `spec.statefulSet.pod.container.env: ${name}: Invalid value: "${value}": a port from 1 to 65535 is required`,
      );
  });

  it('takes a volume for a place where recordings stay', () => {
    expect(recorder({}, { annotations: { 'tailcast.dev/volume-size': '1Gi' } }).problem).toBeUndefined();
    expect(recorder({ storage: S3, replicas: 9 }).problem).toBeUndefined();
    expect(recorder({ enableUI: true }).problem).toBeUndefined();
  });
});

describe('an OpenSearch of a Recorder', () => {
  it.each([
    [{ 'tailcast.dev/search-url': 'https://opensearch.example.com:9200' }, undefined],
    [{ 'tailcast.dev/search-url': '', 'tailcast.dev/search-ca': '' }, undefined],
    [{ 'tailcast.dev/search-credentials': 'user' }, /need tailcast\.dev\/search-url/],
    [{ 'tailcast.dev/search-ca': 'ca' }, /need tailcast\.dev\/search-url/],
    [{ 'tailcast.dev/search-url': 'opensearch:9200' }, /URL of a server is expected/],
    [{ 'tailcast.dev/search-url': 'https://opensearch/?x=1' }, /URL of a server is expected/],
    [{ 'tailcast.dev/search-url': 'https://u:p@opensearch' }, /has a user or a password/],
    [
      { 'tailcast.dev/search-url': 'http://opensearch', 'tailcast.dev/search-credentials': 'user' },
      /must begin with https/,
    ],
  ])('is refused as its recorder would refuse it: %j', (annotations, problem) => {
    const found = recorder({ storage: S3 }, { annotations }).problem;
    if (problem === undefined) expect(found).toBeUndefined();
    else expect(found).toMatch(problem);
  });
});

describe('taking over from another operator', () => {
  const owned = (managedFields: object[]) =>
    parseObject({ apiVersion: 'apps/v1', kind: 'StatefulSet', metadata: { name: 'x', managedFields } });
  const fields = (spec: object) => ({ 'f:spec': spec });

  it('makes its fields ours, so that what we do not state goes', () => {
    const theirs = {
      manager: 'operator',
      operation: 'Update',
      apiVersion: 'apps/v1',
      time: 't',
      fieldsType: 'FieldsV1',
    };
    const status = {
      manager: 'kube-controller-manager',
      operation: 'Update',
      subresource: 'status',
      fieldsV1: {},
    };
    const person = { manager: 'kubectl-edit', operation: 'Update', fieldsV1: fields({ 'f:paused': {} }) };
    const taken = adoptedFields(
      owned([
        { ...theirs, fieldsV1: fields({ 'f:replicas': {}, 'f:template': { 'f:a': {} } }) },
        status,
        { ...theirs, manager: 'older', fieldsV1: fields({ 'f:template': { 'f:b': {} } }) },
        person,
      ]),
      'us',
    );
    expect(taken).toEqual([
      {
        ...theirs,
        manager: 'us',
        operation: 'Apply',
        fieldsV1: fields({ 'f:replicas': {}, 'f:template': { 'f:a': {}, 'f:b': {} } }),
      },
      status,
      person,
    ]);
  });

  it('happens once, and not where there is nothing to take', () => {
    const theirs = { manager: 'operator', operation: 'Update', fieldsV1: {} };
    expect(adoptedFields(owned([theirs, { manager: 'us', operation: 'Apply' }]), 'us')).toBeUndefined();
    expect(adoptedFields(owned([{ ...theirs, subresource: 'status' }]), 'us')).toBeUndefined();
    expect(adoptedFields(owned([]), 'us')).toBeUndefined();
  });

  const reference = (podLabels?: Record<string, string>) =>
    parseObject(
      referenceObjects(
        { name: 'test', uid: 'uid-1' },
        { command: ['/tsrecorder'], state: {}, ...(podLabels === undefined ? {} : { podLabels }) },
      ).at(-1),
    );

  it('recreates a StatefulSet only if the selector or the volumes differ', () => {
    const desired = statefulSet(recorder({ enableUI: true }), OPTIONS);
    expect(mustRecreate(reference(), desired)).toBe(false);
    expect(mustRecreate(reference({ team: 'a' }), desired)).toBe(true);
    const withVolume = statefulSet(
      recorder({}, { annotations: { 'tailcast.dev/volume-size': '1Gi' } }),
      OPTIONS,
    );
    expect(mustRecreate(reference(), withVolume)).toBe(true);
    expect(mustRecreate(parseObject(withVolume), withVolume)).toBe(false);
  });
});
