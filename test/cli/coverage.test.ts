import { describe, expect, it } from 'vitest';
import { judgeCoverage, type RecordedSession } from '../../src/cli/coverage.ts';
import type { AuditedSession } from '../../src/kube/audit-log.ts';

const session = (overrides: Partial<AuditedSession>): AuditedSession => ({
  auditId: 'a',
  time: '2026-01-01T00:00:00Z',
  user: 'alice',
  impersonatedBy: 'system:serviceaccount:tailcast:tailcast-gateway',
  subresource: 'exec',
  resource: 'pods',
  namespace: 'n',
  name: 'p',
  gatewayId: undefined,
  ...overrides,
});

const R1: RecordedSession = { id: 'r1', user: 'alice', subresource: 'exec', namespace: 'n', name: 'p' };

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
    ['that took the audit id of a recording', { auditId: 'r1', impersonatedBy: undefined }, 'direct'],
    ['of somebody else under the id of a recording', { auditId: 'r1', user: 'eve' }, 'direct'],
    ['in another pod under the id of a recording', { gatewayId: 'r1', name: 'q' }, 'unrecorded'],
    ['in another namespace under that id', { gatewayId: 'r1', namespace: 'm' }, 'unrecorded'],
    ['on something else of that name', { gatewayId: 'r1', resource: 'machines' }, 'unrecorded'],
    ['of another kind under that id', { gatewayId: 'r1', subresource: 'attach' }, 'unrecorded'],
    ['that is an upgrade of another kind', { gatewayId: 'x', subresource: '' }, 'unrecordable'],
  ])('of a session %s is %s', (_what, overrides, coverage) => {
    expect(judgeCoverage([session(overrides)], [R1])).toMatchObject([{ coverage }]);
  });

  it('lets a recording cover one session, the first with its id', () => {
    const later = session({ auditId: 'r1', time: '2026-01-01T00:00:01Z' });
    const first = session({ auditId: 'r1', time: '2026-01-01T00:00:00Z' });
    expect(judgeCoverage([later, first, first], [R1])).toMatchObject([
      { time: first.time, coverage: 'recorded' },
      { time: later.time, coverage: 'direct' },
    ]);
  });

  it('counts the events of one session once, oldest session first', () => {
    const judged = judgeCoverage(
      [
        session({ auditId: 'b', time: '2026-01-02T00:00:00Z' }),
        session({ auditId: 'a' }),
        session({ auditId: 'b', time: '2026-01-02T00:00:00Z' }),
      ],
      [],
    );
    expect(judged.map(({ auditId }) => auditId)).toEqual(['a', 'b']);
  });
});
