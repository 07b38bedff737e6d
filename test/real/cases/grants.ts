/** Grants, each with its result at the reference's API-server proxy and its result at tailcast's gateway. */

/**
 * Capability in the test policy that stands for `https://tailscale.com/cap/kubernetes`, because headscale rejects that
 * name. The tests replace this name in whois responses with the real name, which has the same length.
 */
export const LEGACY_NAME = 'lab.ts.net/cap/legacy-of-kubernetes1';

/** Reasons for intended differences from the reference, as listed in `docs/migration.md`. */
export const REASONS = {
  readable: 'clients cannot show an empty response',
  ownRights: "no caller gets the gateway's rights",
  groups: 'a typing error must not change groups',
  recorder: 'a typing error must not disable recording',
  owner: 'the address may have a new owner',
  resolved: 'some control servers do not resolve tags',
  shells: 'only sessions must be recorded',
  status: 'kubectl shows the reason',
} as const;

/** The result of both proxies if they agree; otherwise both results, and the reason of the intended difference. */
export type Seen =
  | string
  | {
      readonly reference: string;
      readonly ours: string;
      readonly because: (typeof REASONS)[keyof typeof REASONS];
    };

/** `ip:port` of a recorder. */
export type RecorderAddresses = readonly [ipv4: string, ipv6: string];

/** Field `app` of one grant. */
type App = Readonly<Record<string, readonly unknown[]>>;

/** Recorders with `tag:recorder`; `first` has the lowest address. */
export interface Recorders {
  readonly first: RecorderAddresses;
  readonly second: RecorderAddresses;
}

export interface GrantCase {
  readonly name: string;
  /** Node of the caller: a user, or a node with `tag:ci` and `tag:web`. Default: `alice`. */
  readonly caller?: 'alice' | 'ci';
  /** Address family of the caller's connection. Default: 4. */
  readonly family?: 4 | 6;
  readonly grants: (recorders: Recorders) => readonly App[];
  /** User and groups that the API server sees, or the refusal. */
  readonly request: Seen;
  /** Recorder of the session, or `unrecorded` or `refused`. Undefined if the case opens no session. */
  readonly session?: Seen;
  /** True if the first recorder receives an API request event. */
  readonly event?: true;
}

const CAPABILITY = 'tailscale.com/cap/kubernetes';
const UNREACHABLE = '100.64.0.99:80';

const rules =
  (...list: readonly unknown[]) =>
  (): readonly App[] => [{ [CAPABILITY]: list }];
const older =
  (...list: readonly unknown[]) =>
  (): readonly App[] => [{ [LEGACY_NAME]: list }];
const groups = (...list: readonly string[]): object => ({ impersonate: { groups: list } });
const closed = ([ipv4]: RecorderAddresses): string => ipv4.replace(/80$/, '81');

const MASTERS = groups('system:masters');
const ENFORCED = { ...MASTERS, enforceRecorder: true };
const ALICE = 'alice@example.com | system:authenticated';
const ALICE_A = 'alice@example.com | a | system:authenticated';
const ADMIN = 'alice@example.com | system:masters | system:authenticated';
/** Kubernetes user and groups of the ServiceAccount that both proxies use. */
const PROXY = [
  'system:serviceaccount:tailcast:gateway',
  'system:serviceaccounts',
  'system:serviceaccounts:tailcast',
  'system:authenticated',
].join(' | ');
const CI = 'ci.lab.ts.net | tag:ci | tag:web | system:authenticated';

const IDENTITIES: readonly GrantCase[] = [
  { name: 'no grant', grants: () => [], request: ALICE },
  { name: 'no grant for a tagged node', caller: 'ci', grants: () => [], request: CI },
  {
    name: 'a grant of another capability',
    grants: () => [{ 'example.com/cap/other': [MASTERS] }],
    request: ALICE,
  },
  {
    name: 'groups in their order',
    grants: rules(groups('b', 'a')),
    request: 'alice@example.com | b | a | system:authenticated',
  },
  {
    name: 'rules with a common group',
    grants: rules(groups('b', 'a'), groups('c', 'b'), {}),
    request: 'alice@example.com | b | a | c | system:authenticated',
  },
  {
    name: 'two grants',
    grants: () => [{ [CAPABILITY]: [groups('a')] }, { [CAPABILITY]: [groups('b')] }],
    request: 'alice@example.com | a | b | system:authenticated',
  },
  {
    name: 'a group for a tagged node',
    caller: 'ci',
    grants: rules(groups('a')),
    request: 'ci.lab.ts.net | a | system:authenticated',
  },
  { name: 'system:masters', grants: rules(MASTERS), request: ADMIN },
  { name: 'system:authenticated', grants: rules(groups('system:authenticated')), request: ALICE },
  {
    name: 'groups with spaces, commas and letters outside of ASCII',
    grants: rules(groups('the team', 'équipe', 'a,b')),
    request: 'alice@example.com | the team | équipe | a,b | system:authenticated',
  },
  { name: 'a caller over IPv6', family: 6, grants: rules(groups('a')), request: ALICE_A },
  { name: 'a tagged caller over IPv6', caller: 'ci', family: 6, grants: () => [], request: CI },
];

const NOTHING = {
  impersonate: null,
  recorder: null,
  recorderAddrs: null,
  enforceRecorder: null,
  enableEvents: null,
};

const EMPTY: readonly GrantCase[] = [
  { name: 'no rule', grants: rules(), request: ALICE },
  { name: 'empty objects and lists', grants: rules({}, { impersonate: {} }, groups()), request: ALICE },
  {
    name: 'empty objects and lists for a tagged node',
    caller: 'ci',
    grants: rules({}, { impersonate: {} }, groups()),
    request: CI,
  },
  { name: 'null for each field', grants: rules(NOTHING), request: ALICE },
  {
    name: 'empty lists of recorders',
    grants: rules({ ...MASTERS, recorder: [], recorderAddrs: [] }),
    request: ADMIN,
    session: 'unrecorded',
  },
  {
    name: 'unknown fields',
    grants: rules({ impersonate: { groups: ['a'], users: ['root'] }, namespaces: ['x'] }),
    request: ALICE_A,
  },
  {
    name: 'fields in other letter case',
    grants: rules({ Impersonate: { GROUPS: ['a'] } }),
    request: ALICE_A,
  },
];

const OLDER_NAME: readonly GrantCase[] = [
  { name: 'the older name', grants: older(groups('a')), request: ALICE_A },
  {
    name: 'the older name for a tagged node',
    caller: 'ci',
    grants: older(groups('a')),
    request: 'ci.lab.ts.net | a | system:authenticated',
  },
  {
    name: 'the older name next to groups',
    grants: () => [{ [CAPABILITY]: [groups('a')], [LEGACY_NAME]: [groups('b')] }],
    request: ALICE_A,
  },
  {
    name: 'the older name next to a rule without groups',
    grants: () => [{ [CAPABILITY]: [{}], [LEGACY_NAME]: [groups('b')] }],
    request: ALICE,
  },
  {
    name: 'the older name next to an empty list',
    grants: () => [{ [CAPABILITY]: [], [LEGACY_NAME]: [groups('a')] }],
    request: ALICE_A,
  },
  {
    name: 'the older name with a recorder',
    grants: ({ first }) => [{ [LEGACY_NAME]: [{ ...ENFORCED, recorderAddrs: first }] }],
    request: ADMIN,
    session: 'unrecorded',
  },
  {
    name: 'the older name with an invalid rule',
    grants: older(MASTERS, []),
    request: {
      reference: PROXY,
      ours: '403 GRANT_MALFORMED',
      because: REASONS.ownRights,
    },
  },
];

/** Rules of grants that neither the reference nor tailcast accepts. */
const INVALID: readonly (readonly [name: string, rule: unknown])[] = [
  ['a list as a rule', []],
  ['a text as a rule', 'a'],
  ['a list as impersonate', { impersonate: ['a'] }],
  ['a text as groups', { impersonate: { groups: 'a' } }],
  ['a number as a group', { impersonate: { groups: [1] } }],
  ['a text as enforceRecorder', { enforceRecorder: 'true' }],
  ['a number as enableEvents', { enableEvents: 1 }],
  ['a text as recorder', { recorder: 'tag:recorder' }],
  ['a recorder address without a port', { recorderAddrs: ['100.64.0.1'] }],
  ['a recorder address with a name', { recorderAddrs: ['recorder:80'] }],
  ['a recorder address with IPv4 in brackets', { recorderAddrs: ['[100.64.0.1]:80'] }],
];

const REFUSED_BY_BOTH: readonly GrantCase[] = INVALID.map(([name, rule]) => ({
  name,
  grants: rules(MASTERS, rule),
  request: { reference: '200', ours: '403 GRANT_MALFORMED', because: REASONS.readable },
  session: 'refused',
}));

/** Rules of grants that the reference accepts and tailcast rejects. */
const STRICTER: readonly GrantCase[] = (
  [
    ['null as a rule', null, ALICE_A, REASONS.groups],
    [
      'null as a group',
      { impersonate: { groups: [null] } },
      'alice@example.com |  | a | system:authenticated',
      REASONS.groups,
    ],
    ['an empty group', groups(''), 'alice@example.com |  | a | system:authenticated', REASONS.groups],
    [
      'a group that starts with a space',
      groups(' system:masters'),
      'alice@example.com | system:masters | a | system:authenticated',
      REASONS.groups,
    ],
    ['a group with a line break', groups('b\nc'), '502', REASONS.groups],
    [
      'two spellings of one field',
      { impersonate: { groups: ['b'] }, Impersonate: { groups: ['c'] } },
      'alice@example.com | c | a | system:authenticated',
      REASONS.groups,
    ],
    ['a recorder without tag:', { recorder: ['recorder'] }, ALICE_A, REASONS.recorder],
    ['an empty recorder address', { recorderAddrs: [''] }, ALICE_A, REASONS.recorder],
    ['a recorder address with port 0', { recorderAddrs: ['100.64.0.1:0'] }, ALICE_A, REASONS.recorder],
    ['a recorder address with a zone', { recorderAddrs: ['[fe80::1%eth0]:80'] }, ALICE_A, REASONS.recorder],
  ] as const
).map(([name, rule, reference, because]) => ({
  name,
  grants: rules(rule, groups('a')),
  request: { reference, ours: '403 GRANT_MALFORMED', because },
}));

const RECORDERS: readonly GrantCase[] = [
  {
    name: 'a recorder over IPv4',
    grants: ({ first: [ipv4] }) => rules({ ...ENFORCED, recorderAddrs: [ipv4] })(),
    request: ADMIN,
    session: 'first',
  },
  {
    name: 'a recorder over IPv6',
    grants: ({ first: [, ipv6] }) => rules({ ...ENFORCED, recorderAddrs: [ipv6] })(),
    request: ADMIN,
    session: 'first',
  },
  {
    name: 'a recorder of a tagged caller',
    caller: 'ci',
    grants: ({ first }) => rules({ ...ENFORCED, recorderAddrs: first })(),
    request: 'ci.lab.ts.net | system:masters | system:authenticated',
    session: 'first',
  },
  {
    name: 'a recorder without enforcement',
    grants: ({ first }) => rules({ ...MASTERS, recorderAddrs: first, enforceRecorder: false })(),
    request: ADMIN,
    session: 'first',
  },
  {
    name: 'a tag with two nodes, resolved by the control server',
    grants: ({ first, second }) =>
      rules({ ...ENFORCED, recorder: ['tag:recorder'], recorderAddrs: [...second, ...first] })(),
    request: ADMIN,
    session: 'second',
  },
  {
    name: 'a tag with two nodes, the first of which does not respond',
    grants: ({ second }) => rules({ ...ENFORCED, recorderAddrs: [UNREACHABLE, ...second] })(),
    request: ADMIN,
    session: 'second',
  },
  {
    name: 'a tag with two nodes that the control server does not resolve',
    grants: rules({ ...MASTERS, recorder: ['tag:recorder'] }),
    request: ADMIN,
    session: { reference: 'unrecorded', ours: 'first', because: REASONS.resolved },
  },
  {
    name: 'an enforced tag that the control server does not resolve',
    grants: rules({ ...ENFORCED, recorder: ['tag:recorder'] }),
    request: { reference: '403 forbidden', ours: ADMIN, because: REASONS.resolved },
    session: { reference: 'refused', ours: 'first', because: REASONS.resolved },
  },
  {
    name: 'two rules with recorders',
    grants: ({ first: [one], second: [two] }) =>
      rules({ ...MASTERS, recorderAddrs: [two] }, { recorderAddrs: [one] })(),
    request: ADMIN,
    session: 'second',
  },
  {
    name: 'groups, recorder and enforcement in three rules of two grants',
    grants: ({ second }) => [
      { [CAPABILITY]: [{ recorderAddrs: second, enforceRecorder: false }, { enforceRecorder: true }] },
      { [CAPABILITY]: [MASTERS] },
    ],
    request: ADMIN,
    session: 'second',
  },
  {
    name: 'a recorder address of a node without the tag',
    grants: ({ first: [ipv4] }) => rules({ ...ENFORCED, recorder: ['tag:web'], recorderAddrs: [ipv4] })(),
    request: ADMIN,
    session: { reference: 'first', ours: 'refused', because: REASONS.owner },
  },
  {
    name: 'a recorder that refuses connections, without enforcement',
    grants: ({ first }) => rules({ ...MASTERS, recorderAddrs: [closed(first)] })(),
    request: ADMIN,
    session: 'unrecorded',
  },
  {
    name: 'a recorder that refuses connections, with enforcement',
    grants: ({ first }) => rules({ ...ENFORCED, recorderAddrs: [closed(first)] })(),
    request: ADMIN,
    session: 'refused',
  },
  {
    name: 'enforcement without a recorder',
    grants: rules(ENFORCED),
    request: { reference: '403 forbidden', ours: ADMIN, because: REASONS.shells },
    session: 'refused',
  },
];

const EVENTS: readonly GrantCase[] = [
  {
    name: 'events, with the recorder in another rule',
    grants: ({ first }) => rules({ recorderAddrs: first }, { ...ENFORCED, enableEvents: true })(),
    request: ADMIN,
    event: true,
  },
  { name: 'events without a recorder', grants: rules({ ...MASTERS, enableEvents: true }), request: ADMIN },
  {
    name: 'enforced events without a responding recorder',
    grants: ({ first }) => rules({ ...ENFORCED, recorderAddrs: [closed(first)], enableEvents: true })(),
    request: {
      reference: '502 error recording Kubernetes API request',
      ours: '403 RECORDING_REQUIRED',
      because: REASONS.status,
    },
  },
];

export const GRANT_CASES: readonly GrantCase[] = [
  ...IDENTITIES,
  ...EMPTY,
  ...OLDER_NAME,
  ...REFUSED_BY_BOTH,
  ...STRICTER,
  ...RECORDERS,
  ...EVENTS,
];
