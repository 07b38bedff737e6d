import { describe, expect, it } from 'vitest';
import { parseAuditedSession } from '../../src/kube/audit-log.ts';

const event = (overrides: Record<string, unknown> = {}): string =>
  JSON.stringify({
    kind: 'Event',
    apiVersion: 'audit.k8s.io/v1',
    auditID: 'a-1',
    stage: 'ResponseStarted',
    verb: 'get',
    requestReceivedTimestamp: '2026-01-02T03:04:05.000000Z',
    user: { username: 'system:serviceaccount:tailcast:tailcast-gateway' },
    impersonatedUser: {
      username: 'alice',
      extra: { 'tailcast.dev/session': ['s-1'], 'tailcast.dev/node': ['n1'] },
    },
    objectRef: { resource: 'pods', namespace: 'n', name: 'p', subresource: 'exec', apiVersion: 'v1' },
    responseStatus: { code: 101 },
    ...overrides,
  });

describe('a line of an audit log', () => {
  it('that is a session says whose, where, and through which gateway session', () => {
    expect(parseAuditedSession(event())).toEqual({
      auditId: 'a-1',
      time: '2026-01-02T03:04:05.000000Z',
      user: 'alice',
      impersonatedBy: 'system:serviceaccount:tailcast:tailcast-gateway',
      subresource: 'exec',
      resource: 'pods',
      namespace: 'n',
      name: 'p',
      gatewayId: 's-1',
    });
  });

  it('without impersonation is of the user itself', () => {
    expect(parseAuditedSession(event({ impersonatedUser: undefined }))).toMatchObject({
      user: 'system:serviceaccount:tailcast:tailcast-gateway',
      impersonatedBy: undefined,
      gatewayId: undefined,
    });
  });

  it('knows a plain request through a gateway by its node', () => {
    const impersonatedUser = { username: 'alice', extra: { 'tailcast.dev/node': ['n1'] } };
    const objectRef = { resource: 'services', namespace: 'n', name: 's', subresource: 'proxy' };
    const line = event({ impersonatedUser, objectRef, responseStatus: { code: 200 } });
    expect(parseAuditedSession(line)).toMatchObject({ subresource: 'proxy', gatewayId: 'a-1' });
  });

  it.each<[string, Record<string, unknown>, Record<string, unknown>]>([
    [
      'of another API',
      {
        objectRef: {
          resource: 'virtualmachineinstances',
          namespace: 'n',
          name: 'v',
          subresource: 'console',
          apiGroup: 'subresources.kubevirt.io',
        },
      },
      { resource: 'virtualmachineinstances', subresource: 'console', name: 'v' },
    ],
    ['of a resource itself', { objectRef: { resource: 'shells', name: 's' } }, { resource: 'shells' }],
    [
      'of no resource',
      { objectRef: undefined, requestURI: '/terminal?x=y' },
      { resource: '', subresource: '', name: '/terminal' },
    ],
  ])('that is an upgrade %s is a session', (_what, overrides, session) => {
    expect(parseAuditedSession(event(overrides))).toMatchObject(session);
    expect(parseAuditedSession(event({ ...overrides, responseStatus: { code: 200 } }))).toBeUndefined();
  });

  it.each<[string, Record<string, unknown>]>([
    ['a refusal', { responseStatus: { code: 403 } }],
    ['a bad request', { responseStatus: { code: 400 } }],
    ['no answer', { responseStatus: undefined }],
    ['a log over WebSocket', { objectRef: { resource: 'pods', name: 'p', subresource: 'log' } }],
    ['a watch over WebSocket', { verb: 'watch', objectRef: { resource: 'pods' } }],
    [
      'another subresource',
      { objectRef: { resource: 'pods', name: 'p', subresource: 'status' }, responseStatus: { code: 200 } },
    ],
    [
      'a read of ephemeral containers',
      {
        objectRef: { resource: 'pods', name: 'p', subresource: 'ephemeralcontainers' },
        responseStatus: { code: 200 },
      },
    ],
  ])('that is %s is no session', (_what, overrides) => {
    expect(parseAuditedSession(event(overrides))).toBeUndefined();
  });

  it.each(['', 'not json "subresource"', '{"subresource":1}', '[]"subresource"'])(
    'that is %j is no session',
    (line) => {
      expect(parseAuditedSession(line)).toBeUndefined();
    },
  );
});
