import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { accountRefusal, mayBeAccountRefusal } from '../../src/kube/account-refusal.ts';

interface Attributes {
  readonly user: string;
  readonly verb: string;
  readonly group?: string;
  readonly resource: string;
  readonly name?: string;
  readonly namespace?: string;
  readonly reason?: string;
}

/** Go's `%q`, as far as the names here need it. */
function quote(text: string): string {
  return JSON.stringify(text);
}

/** A 403 as `responsewriters.Forbidden` writes it. */
function forbidden({ user, verb, group = '', resource, name = '', namespace, reason }: Attributes) {
  const scope = namespace === undefined ? 'at the cluster scope' : `in the namespace ${quote(namespace)}`;
  const cannot = `User ${quote(user)} cannot ${verb} resource ${quote(resource)} in API group ${quote(group)} ${scope}`;
  const qualified = group === '' ? resource : `${resource}.${group}`;
  const about = name === '' ? qualified : `${qualified} ${quote(name)}`;
  const message = `${about} is forbidden: ${cannot}${reason === undefined ? '' : `: ${reason}`}`;
  const details = { ...(name === '' ? {} : { name }), ...(group === '' ? {} : { group }), kind: resource };
  return {
    kind: 'Status',
    apiVersion: 'v1',
    status: 'Failure',
    message,
    reason: 'Forbidden',
    details,
    code: 403,
  };
}

const json = (status: unknown): Buffer => Buffer.from(JSON.stringify(status));

function field(number: number, value: Uint8Array | string): Buffer {
  const bytes = Buffer.from(value as string);
  return Buffer.concat([varint(number * 8 + 2), varint(bytes.length), bytes]);
}

function varint(value: number): Buffer {
  return value < 0x80
    ? Buffer.of(value)
    : Buffer.concat([Buffer.of((value % 0x80) + 0x80), varint(Math.floor(value / 0x80))]);
}

/** The same Status in Kubernetes' protobuf form. */
function protobuf(status: ReturnType<typeof forbidden>): Buffer {
  const { name = '', group = '', kind } = status.details;
  const details = Buffer.concat([field(1, name), field(2, group), field(3, kind)]);
  const raw = Buffer.concat([
    field(1, ''),
    field(2, status.status),
    field(3, status.message),
    field(4, status.reason),
    field(5, details),
    Buffer.concat([varint(6 * 8), varint(status.code)]),
  ]);
  const typeMeta = Buffer.concat([field(1, 'v1'), field(2, 'Status')]);
  return Buffer.concat([Buffer.from('k8s\0'), field(1, typeMeta), field(2, raw), field(3, ''), field(4, '')]);
}

const ACCOUNT = 'system:serviceaccount:tailcast:gateway';

describe('accountRefusal', () => {
  const refusals: readonly Attributes[] = [
    { user: ACCOUNT, verb: 'impersonate', resource: 'users', name: 'alice@example.com' },
    { user: ACCOUNT, verb: 'impersonate', resource: 'groups', name: 'team "one"' },
    { user: ACCOUNT, verb: 'impersonate', resource: 'users', name: 'a', reason: 'RBAC: [role not found]' },
    { user: ACCOUNT, verb: 'impersonate', resource: 'serviceaccounts', name: 'a', namespace: 'n' },
    {
      user: ACCOUNT,
      verb: 'impersonate',
      group: 'authentication.k8s.io',
      resource: 'userextras',
      name: 'x',
    },
    {
      user: 'gateway',
      verb: 'impersonate:user-info',
      group: 'authentication.k8s.io',
      resource: 'users',
      name: 'alice@example.com',
    },
    { user: 'gateway', verb: 'impersonate-on:user-info:list', resource: 'pods', namespace: 'default' },
  ];
  it.each(refusals)('recognises $verb of $resource $name', (attributes) => {
    for (const encode of [json, protobuf]) {
      const sentence = accountRefusal(encode(forbidden(attributes)));
      expect(sentence).toMatch(/^User "(?:system:serviceaccount:tailcast:)?gateway" cannot impersonate/);
    }
  });

  it('recognises constrained impersonation of a request without a resource', () => {
    const message = 'forbidden: User "gateway" cannot impersonate-on:user-info:get path "/healthz"';
    const status = { kind: 'Status', message, reason: 'Forbidden', details: {}, code: 403 };
    expect(accountRefusal(json(status))).toBe(message.slice('forbidden: '.length));
  });

  const sentence = `User "${ACCOUNT}" cannot impersonate resource "users" in API group "" at the cluster scope`;
  const ofTheCaller: readonly (readonly [string, Attributes])[] = [
    ['an ordinary refusal', { user: 'alice', verb: 'list', resource: 'pods', namespace: 'n' }],
    [
      'a resource called as the message',
      { user: 'alice', verb: 'list', resource: `users is forbidden: ${sentence}` },
    ],
    [
      'a resource with a name in it',
      { user: 'alice', verb: 'get', resource: `users "a" is forbidden: ${sentence}` },
    ],
    ['a resource called users', { user: 'alice', verb: 'get', resource: 'users', name: 'bob' }],
    [
      'an API group',
      { user: 'alice', verb: 'list', group: `g is forbidden: ${sentence}`, resource: 'users' },
    ],
    ['a name', { user: 'alice', verb: 'get', resource: 'users', name: `a" is forbidden: ${sentence}` }],
    ['a namespace', { user: 'alice', verb: 'get', resource: 'users', namespace: `n": ${sentence}` }],
    ['a reason', { user: 'alice', verb: 'get', resource: 'users', reason: sentence }],
    ['a user', { user: `x" cannot impersonate resource "users"`, verb: 'get', resource: 'users' }],
    ['a name that ends with a backslash', { user: 'alice', verb: 'get', resource: 'users', name: 'a\\' }],
  ];
  it.each(ofTheCaller)('leaves the caller’s own refusal alone: %s', (_name, attributes) => {
    for (const encode of [json, protobuf])
      expect(accountRefusal(encode(forbidden(attributes)))).toBeUndefined();
  });

  it('leaves refusals by admission alone, whatever they say', () => {
    for (const prefix of ['', 'admission webhook "w" denied the request: ', 'pods "a" is forbidden: ']) {
      const status = {
        ...forbidden({ user: 'alice', verb: 'create', resource: 'pods' }),
        message: `${prefix}ValidatingAdmissionPolicy "p" denied request: ${sentence}`,
      };
      expect(accountRefusal(json(status))).toBeUndefined();
    }
  });

  it('never takes a refusal of the caller for one of the account, whatever the request names', () => {
    const piece = fc.oneof(
      fc.constantFrom(
        ' is forbidden: ',
        'forbidden: ',
        '"',
        '\\',
        ' ',
        'users',
        'User "g" cannot impersonate ',
        sentence,
      ),
      fc.string({ maxLength: 5 }),
    );
    const words = fc.array(piece, { maxLength: 6 }).map((parts) => parts.join(''));
    fc.assert(
      fc.property(
        fc.record({
          user: words,
          resource: words,
          group: words,
          name: words,
          namespace: words,
          reason: words,
        }),
        fc.constantFrom(
          'get',
          'list',
          'watch',
          'create',
          'update',
          'patch',
          'delete',
          'deletecollection',
          '',
        ),
        (attributes, verb) => {
          for (const encode of [json, protobuf])
            expect(accountRefusal(encode(forbidden({ ...attributes, verb })))).toBeUndefined();
        },
      ),
      { numRuns: 3000 },
    );
  });

  it('leaves other bodies alone', () => {
    const real = forbidden(refusals[0]!);
    for (const body of [
      Buffer.alloc(0),
      Buffer.from('k8s\0'),
      Buffer.from('k8s\0\u000a\u00ff\u00ff'),
      Buffer.from(real.message),
      json({ ...real, code: 404 }),
      json({ ...real, reason: 'Unauthorized' }),
      json({ ...real, kind: 'Pod' }),
      json({ ...real, details: undefined }),
      json({ ...real, message: `x${real.message}` }),
      protobuf(real).subarray(0, -20),
    ]) {
      expect(accountRefusal(body)).toBeUndefined();
    }
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
        expect(accountRefusal(Buffer.concat([Buffer.from('k8s\0'), bytes]))).toBeUndefined();
      }),
    );
  });
});

describe('mayBeAccountRefusal', () => {
  it.each([
    [403, 300, [], true],
    [403, 0, [], false],
    [403, 8193, [], false],
    [401, 300, [], false],
    [403, 300, ['X-Kubernetes-Pf-Flowschema-Uid', 'a'], false],
  ] as const)('%i with %i bytes and %j: %s', (status, bytes, headers, expected) => {
    expect(mayBeAccountRefusal(status, bytes, headers)).toBe(expected);
  });
});
