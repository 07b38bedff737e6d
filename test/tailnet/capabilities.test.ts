import { describe, expect, it } from 'vitest';
import type { TailcastError } from '../../src/errors.ts';
import {
  KUBERNETES_CAPABILITY,
  LEGACY_KUBERNETES_CAPABILITY,
  parseClusterRules,
  parseKubernetesRules,
} from '../../src/tailnet/capabilities.ts';

const A1 = '[fd7a:115c:a1e0:ab12:4843:cd96:626b:628b]:80';
const A2 = '100.99.99.99:80';
const EMPTY = {
  groups: [],
  recorderTags: [],
  recorderAddresses: [],
  enforceRecorder: false,
  enableEvents: false,
};

function parse(
  rules: readonly unknown[],
  name = KUBERNETES_CAPABILITY,
): ReturnType<typeof parseKubernetesRules> {
  return parseKubernetesRules(new Map([[name, rules]]));
}

function codeOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    return (error as TailcastError).code;
  }
  return 'accepted';
}

describe('Kubernetes grants', () => {
  it('are read in full', () => {
    const rule = {
      impersonate: { groups: ['system:masters', 'readers'] },
      recorder: ['tag:tsrecorder'],
      recorderAddrs: [A2, A1],
      enforceRecorder: true,
      enableEvents: true,
    };
    const expected = {
      groups: ['system:masters', 'readers'],
      recorderTags: ['tag:tsrecorder'],
      recorderAddresses: [A2, A1],
      enforceRecorder: true,
      enableEvents: true,
    };
    expect(parse([rule])).toEqual({ impersonation: [expected], recording: [expected] });
  });

  // Cases from the reference's tests of the recorder configuration.
  it.each([
    [
      'two addresses, enforced',
      [{ recorderAddrs: [A1, A2], enforceRecorder: true }],
      [{ recorderAddresses: [A1, A2], enforceRecorder: true }],
    ],
    ['two addresses', [{ recorderAddrs: [A1, A2] }], [{ recorderAddresses: [A1, A2] }]],
    [
      'an odd combination',
      [
        { recorderAddrs: [A2], enforceRecorder: false },
        { recorderAddrs: [A1] },
        { enforceRecorder: true, impersonate: { groups: ['system:masters'] } },
      ],
      [
        { recorderAddresses: [A2] },
        { recorderAddresses: [A1] },
        { enforceRecorder: true, groups: ['system:masters'] },
      ],
    ],
    ['no rules', [], []],
    ['groups only', [{ impersonate: { groups: ['g'] } }], [{ groups: ['g'] }]],
  ])('keep order and strictness: %s', (_name, rules, expected) => {
    expect(parse(rules).recording).toEqual(expected.map((rule) => ({ ...EMPTY, ...rule })));
  });

  it('are empty without the capability', () => {
    expect(parse([{}], 'foo')).toEqual({ impersonation: [], recording: [] });
  });

  it('take empty and null members as absent, and ignore unknown ones', () => {
    const rules = [
      {},
      { impersonate: {} },
      { impersonate: { groups: [] } },
      { impersonate: null, recorder: null, recorderAddrs: null, enforceRecorder: null, enableEvents: null },
      { future: { anything: [1] } },
    ];
    expect(parse(rules).impersonation).toEqual(rules.map(() => EMPTY));
  });

  it('match member names in any letter case, so that enforcement cannot get lost in spelling', () => {
    expect(parse([{ EnforceRecorder: true, RECORDERADDRS: [A2] }]).recording[0]).toMatchObject({
      enforceRecorder: true,
      recorderAddresses: [A2],
    });
  });

  it('use the older name for impersonation only, and only without newer rules', () => {
    const legacy = [{ impersonate: { groups: ['old'] }, recorderAddrs: [A2] }];
    const both = parseKubernetesRules(
      new Map<string, unknown[]>([
        [KUBERNETES_CAPABILITY, [{}]],
        [LEGACY_KUBERNETES_CAPABILITY, legacy],
      ]),
    );
    expect(both.impersonation).toEqual([EMPTY]);
    const alone = parse(legacy, LEGACY_KUBERNETES_CAPABILITY);
    expect(alone.impersonation[0]?.groups).toEqual(['old']);
    expect(alone.recording).toEqual([]);
  });

  const bad: [string, unknown][] = [
    ['a list', []],
    ['null', null],
    ['a text', 'x'],
    ['impersonate a list', { impersonate: [] }],
    ['groups a text', { impersonate: { groups: 'system:masters' } }],
    ['a group a number', { impersonate: { groups: [1] } }],
    ['a group null', { impersonate: { groups: [null] } }],
    ['a group empty', { impersonate: { groups: [''] } }],
    ['recorder a text', { recorder: 'tag:rec' }],
    ['recorder not a tag', { recorder: ['rec'] }],
    ['addresses a text', { recorderAddrs: A2 }],
    ['an address without a port', { recorderAddrs: ['100.64.0.1'] }],
    ['an address with port 0', { recorderAddrs: ['100.64.0.1:0'] }],
    ['an address with port 65536', { recorderAddrs: ['100.64.0.1:65536'] }],
    ['an address that is a name', { recorderAddrs: ['recorder.example.com:80'] }],
    ['IPv6 without brackets', { recorderAddrs: ['fd7a::1:80'] }],
    ['IPv6 with a zone', { recorderAddrs: ['[fe80::1%eth0]:80'] }],
    ['IPv4 in brackets', { recorderAddrs: ['[100.64.0.1]:80'] }],
    ['an empty address', { recorderAddrs: [''] }],
    ['enforce a text', { enforceRecorder: 'true' }],
    ['enforce a number', { enforceRecorder: 1 }],
    ['events a list', { enableEvents: [] }],
    ['two spellings of one member', { enforceRecorder: false, EnforceRecorder: true }],
    ['a huge list', { impersonate: { groups: Array(1001).fill('g') } }],
    ['a huge text', { impersonate: { groups: ['g'.repeat(1025)] } }],
    ['very many members', Object.fromEntries(Array.from({ length: 101 }, (_, index) => [`k${index}`, 1]))],
  ];

  it.each(bad)('are refused as a whole when one rule is bad: %s', (_name, rule) => {
    const good = { impersonate: { groups: ['g'] } };
    expect(codeOf(() => parse([good, rule]))).toBe('GRANT_MALFORMED');
    expect(codeOf(() => parse([rule], LEGACY_KUBERNETES_CAPABILITY))).toBe('GRANT_MALFORMED');
  });

  it('are refused when there are too many rules', () => {
    expect(codeOf(() => parse(Array(1001).fill({})))).toBe('GRANT_MALFORMED');
    expect(codeOf(() => parse(Array(1000).fill({})))).toBe('accepted');
  });
});

describe('rules of one cluster', () => {
  const groupsOn = (name: string, rules: readonly unknown[]): readonly string[] =>
    parseClusterRules(new Map([[KUBERNETES_CAPABILITY, rules]]), {
      name,
      isDefault: false,
    }).impersonation.flatMap(({ groups }) => groups);

  it.each([
    [['prod'], ['g']],
    [['*'], ['g']],
    [['pr*'], ['g']],
    [['prod*'], ['g']],
    [['pro'], []],
    [['prod-*'], []],
    [[], []],
    [undefined, []],
    [null, []],
  ])('clusters: %j applies to prod: %j', (clusters, groups) => {
    expect(groupsOn('prod', [{ clusters, impersonate: { groups: ['g'] } }])).toEqual(groups);
  });

  it.each([
    [{ clusters: 'prod' }],
    [{ clusters: [7] }],
    [{ clusters: [''] }],
    [{ clusters: ['Prod'] }],
    [{ clusters: ['p*d'] }],
    [{ clusters: ['prod'], Clusters: ['dev'] }],
  ])('refuses all rules if one is %j', (rule) => {
    const good = { clusters: ['prod'], impersonate: { groups: ['g'] } };
    expect(() => groupsOn('prod', [good, rule])).toThrow('invalid');
  });

  it('ignores the older name of the capability', () => {
    const capabilities = new Map([[LEGACY_KUBERNETES_CAPABILITY, [{ impersonate: { groups: ['g'] } }]]]);
    expect(parseClusterRules(capabilities, { name: 'prod', isDefault: true }).impersonation).toEqual([]);
  });
});
