import { describe, expect, it } from 'vitest';
import {
  ACCESS_CAPABILITY,
  parseAccessRules,
  parseDuration,
  parseModerationRules,
} from '../../src/tailnet/access-rules.ts';

const parse = (...rules: readonly unknown[]) => parseAccessRules(new Map([[ACCESS_CAPABILITY, rules]]));
const SRE = { request: { groups: ['sre'] } };

describe('a rule', () => {
  it('has defaults', () => {
    expect(parse(SRE)).toEqual([
      {
        groups: ['sre'],
        users: [],
        writes: false,
        clusters: [],
        namespaces: [],
        maxDurationMs: 3_600_000,
        requireReason: false,
        approvers: undefined,
        windows: [],
        enforceRecorder: false,
      },
    ]);
  });

  it('has all fields, in any letter case', () => {
    const [rule] = parse({
      Request: { Groups: ['sre'], users: ['admin'] },
      clusters: ['prod'],
      namespaces: ['payments'],
      maxDuration: '1h30m',
      requireReason: true,
      approvers: { users: ['bob@example.com'], groups: ['leads'], tags: ['tag:pager'], count: 2 },
      windows: [{ days: ['mon', 'Fri'], from: '08:00', to: '18:30', timeZone: 'Europe/Berlin' }],
      enforceRecorder: true,
    });
    expect(rule).toEqual({
      groups: ['sre'],
      users: ['admin'],
      writes: false,
      clusters: ['prod'],
      namespaces: ['payments'],
      maxDurationMs: 5_400_000,
      requireReason: true,
      approvers: { users: ['bob@example.com'], groups: ['leads'], tags: ['tag:pager'], count: 2 },
      windows: [{ days: [1, 5], from: 480, to: 1110, timeZone: 'Europe/Berlin' }],
      enforceRecorder: true,
    });
  });

  it.each<[string, unknown]>([
    ['text', 'sre'],
    ['a list', []],
    ['without a request', {}],
    ['with an empty request', { request: {} }],
    ['with a misspelled field', { ...SRE, aprovers: { users: ['bob@example.com'] } }],
    ['with an unknown field of the request', { request: { groups: ['sre'], uid: '1' } }],
    ['with two spellings of one field', { ...SRE, requireReason: false, RequireReason: true }],
    ['with writes and groups', { request: { groups: ['sre'], writes: true } }],
    ['with a user of Kubernetes', { request: { users: ['system:node:a'] } }],
    ['with a service account', { request: { users: ['System:serviceaccount:a:b'] } }],
    ['with the word for the caller as a user', { request: { users: ['me'] } }],
    ['with a line break in a group', { request: { groups: ['sre\r\nX: y'] } }],
    ['with a group outside ASCII', { request: { groups: ['srе'] } }],
    ['with approvers that name nobody', { ...SRE, approvers: {} }],
    ['with approvers as text', { ...SRE, approvers: 'bob@example.com' }],
    ['with a negative count', { ...SRE, approvers: { users: ['b'], count: -1 } }],
    ['with a count that is no number', { ...SRE, approvers: { users: ['b'], count: '1' } }],
    ['with an invalid tag', { ...SRE, approvers: { tags: ['pager'] } }],
    ['with a duration of zero', { ...SRE, maxDuration: '0h' }],
    ['with a duration without a unit', { ...SRE, maxDuration: '60' }],
    ['with a duration over 30 days', { ...SRE, maxDuration: '31d' }],
    ['with an unknown day', { ...SRE, windows: [{ days: ['monday'] }] }],
    ['with a window over midnight', { ...SRE, windows: [{ from: '22:00', to: '06:00' }] }],
    ['with an unknown time', { ...SRE, windows: [{ from: '8:00' }] }],
    ['with a time after midnight', { ...SRE, windows: [{ to: '24:01' }] }],
    ['with an unknown time zone', { ...SRE, windows: [{ timeZone: 'Mars/Olympus' }] }],
    ['with an invalid namespace', { ...SRE, namespaces: ['Payments'] }],
    ['with a reason as text', { ...SRE, requireReason: 'true' }],
  ])('%s makes the grant invalid', (_name, rule) => {
    expect(() => parse(SRE, rule)).toThrow(expect.objectContaining({ code: 'GRANT_MALFORMED' }));
  });

  it('is one of at most 100', () => {
    expect(parse(...Array.from({ length: 100 }, () => SRE))).toHaveLength(100);
    expect(() => parse(...Array.from({ length: 101 }, () => SRE))).toThrow(/more than 100 rules/);
  });
});

it('parses durations', () => {
  expect(['90s', '30m', '1h30m', '2d', '1.5h', '-1h', 'h', ''].map(parseDuration)).toEqual([
    90_000,
    1_800_000,
    5_400_000,
    172_800_000,
    undefined,
    undefined,
    undefined,
    undefined,
  ]);
});

describe('a rule about moderated sessions', () => {
  const moderators = { users: ['bob@example.com'] };
  const parseModeration = (...rules: readonly unknown[]) =>
    parseModerationRules(new Map([[ACCESS_CAPABILITY, rules]]));

  it('is separate from rules about access', () => {
    const rules = [SRE, { Moderate: ['exec', 'attach', 'portForward'], moderators, namespaces: ['prod'] }];
    expect(parse(...rules)).toHaveLength(1);
    expect(parseModeration(...rules)).toEqual([
      {
        moderate: ['exec', 'attach', 'portForward'],
        moderators: { users: ['bob@example.com'], tags: [] },
        clusters: [],
        namespaces: ['prod'],
      },
    ]);
  });

  it.each([
    [{ moderate: [], moderators }, 'moderate is empty'],
    [{ moderate: ['Exec'], moderators }, 'moderate names Exec instead of exec, attach, portForward'],
    [{ moderate: ['exec'] }, 'moderators is not an object'],
    [{ moderate: ['exec'], moderators: {} }, 'moderators names no users or tags'],
    [{ moderate: ['exec'], moderators: { groups: ['sre'] } }, 'the unknown field groups'],
    [{ moderate: ['exec'], moderators: { tags: ['pager'] } }, 'moderators.tags[0]'],
    [{ moderate: ['exec'], moderators, approvers: {} }, 'the unknown field approvers'],
  ])('%j is refused', (rule, problem) => {
    expect(() => parseModeration(rule)).toThrow(problem);
  });
});
