import { describe, expect, it } from 'vitest';
import { judgeCoverage } from '../../src/cli/coverage.ts';
import type { AuditedSession } from '../../src/kube/audit-log.ts';

const session = (overrides: Partial<AuditedSession>): AuditedSession => ({
  auditId: 'a',
  time: '2026-01-01T00:00:00Z',
  user: 'alice',
  impersonatedBy: undefined,
  subresource: 'exec',
  resource: 'pods',
  namespace: 'n',
  name: 'p',
  gatewayId: undefined,
  ...overrides,
});

describe('coverage', () => {
  it.each<[string, Partial<AuditedSession>, string]>([
    ['through a gateway and recorded', { gatewayId: 'r1' }, 'recorded'],
    ['recorded by a gateway without extras', { auditId: 'r1' }, 'recorded'],
    ['through a gateway, without a recording', { gatewayId: 'x' }, 'unrecorded'],
    ['an attach without a recording', { gatewayId: 'x', subresource: 'attach' }, 'unrecorded'],
    ['a port-forward through a gateway', { gatewayId: 'x', subresource: 'portforward' }, 'unrecordable'],
    ['a port-forward at the API server', { subresource: 'portforward' }, 'direct'],
    ['at the API server', {}, 'direct'],
    [
      'with the audit id of a recording and the session of none',
      { auditId: 'r1', gatewayId: 'x' },
      'unrecorded',
    ],
  ])('of a session %s is %s', (_what, overrides, coverage) => {
    expect(judgeCoverage([session(overrides)], new Set(['r1']))).toMatchObject([{ coverage }]);
  });

  it('counts the events of one session once, oldest session first', () => {
    const judged = judgeCoverage(
      [
        session({ auditId: 'b', time: '2026-01-02T00:00:00Z' }),
        session({ auditId: 'a' }),
        session({ auditId: 'b', time: '2026-01-02T00:00:00Z' }),
      ],
      new Set(),
    );
    expect(judged.map(({ auditId }) => auditId)).toEqual(['a', 'b']);
  });
});
