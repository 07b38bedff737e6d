import { describe, expect, it } from 'vitest';
import { buildUpstreamHeaders } from '../../src/impersonation/apply.ts';
import type { RawHeaders } from '../../src/kube/headers.ts';
import type { ImpersonationTarget } from '../../src/impersonation/target.ts';

const TARGET: ImpersonationTarget = { user: 'foo@example.com', groups: ['g1', 'g2'], extra: [] };
const HOST = 'kubernetes:6443';

function auth(rawHeaders: readonly string[], target: Partial<ImpersonationTarget> = {}): RawHeaders {
  return buildUpstreamHeaders({
    rawHeaders,
    host: HOST,
    identity: { mode: 'auth', target: { ...TARGET, ...target }, authorization: 'Bearer ours' },
  });
}

function noauth(rawHeaders: readonly string[]): RawHeaders {
  return buildUpstreamHeaders({ rawHeaders, host: HOST, identity: { mode: 'noauth' } });
}

const OURS = [
  'Authorization',
  'Bearer ours',
  'Impersonate-User',
  'foo@example.com',
  'Impersonate-Group',
  'g1',
  'Impersonate-Group',
  'g2',
];
const REFUSED = expect.objectContaining({ code: 'HEADER_REFUSED' });
const IMPERSONATION_REFUSED = expect.objectContaining({ code: 'IMPERSONATION_REFUSED' });

describe('auth mode', () => {
  it('adds ours to what is ordinary, in order, repeats kept', () => {
    const raw = [
      'Host',
      'gw.ts.net',
      'Accept',
      'a',
      'User-Agent',
      'kubectl',
      'accept',
      'b',
      'X-Stream-Protocol-Version',
      'v4',
    ];
    expect(auth(raw)).toEqual([
      'Host',
      HOST,
      'Accept',
      'a',
      'User-Agent',
      'kubectl',
      'accept',
      'b',
      'X-Stream-Protocol-Version',
      'v4',
      ...OURS,
    ]);
  });

  it('sends one line per group, never joined, and only the user without groups', () => {
    expect(auth([], { groups: ['a, b'] }).slice(-2)).toEqual(['Impersonate-Group', 'a, b']);
    expect(auth([], { groups: [] })).toEqual([
      'Host',
      HOST,
      'Authorization',
      'Bearer ours',
      'Impersonate-User',
      'foo@example.com',
    ]);
  });

  it('works with a client certificate instead of a token', () => {
    const headers = buildUpstreamHeaders({
      rawHeaders: ['Authorization', 'Bearer theirs'],
      host: HOST,
      identity: { mode: 'auth', target: TARGET, authorization: undefined },
    });
    expect(headers).toEqual(['Host', HOST, ...OURS.slice(2)]);
  });

  it('writes names outside ASCII as UTF-8 bytes', () => {
    const headers = auth([], { user: 'jürgen@例え', groups: ['é'] });
    expect(Buffer.from(headers.at(-3) ?? '', 'latin1').toString('utf8')).toBe('jürgen@例え');
    expect(Buffer.from(headers.at(-1) ?? '', 'latin1').toString('utf8')).toBe('é');
  });

  it('escapes extra keys as client-go does', () => {
    const headers = auth([], {
      extra: [
        ['gw.example.net/session id%é', 's1'],
        ['plain', 'ü'],
      ],
    });
    expect(headers.slice(-4)).toEqual([
      'Impersonate-Extra-gw.example.net%2Fsession%20id%25%C3%A9',
      's1',
      'Impersonate-Extra-plain',
      '\u00c3\u00bc',
    ]);
    for (const key of ['', 'Upper']) {
      expect(() => auth([], { extra: [[key, 'x']] })).toThrow(expect.objectContaining({ code: 'INTERNAL' }));
    }
  });

  it('never sends a target that slipped through unchecked', () => {
    for (const user of ['', 'a\r\nb', 'é\nb', 'a\0b']) {
      expect(() => auth([], { user })).toThrow(expect.objectContaining({ code: 'INTERNAL' }));
    }
    expect(() => auth([], { groups: ['a\nb'] })).toThrow(expect.objectContaining({ code: 'INTERNAL' }));
  });

  it("sets our Audit-ID and drops the client's", () => {
    const headers = buildUpstreamHeaders({
      rawHeaders: ['Audit-ID', 'theirs'],
      host: HOST,
      identity: { mode: 'auth', target: TARGET, authorization: undefined },
      auditId: 'ours',
    });
    expect(headers).toEqual(['Host', HOST, 'Audit-ID', 'ours', ...OURS.slice(2)]);
    expect(auth(['Audit-ID', 'theirs'])).not.toContain('theirs');
  });

  it.each([
    {
      own: 'the own user twice and all groups',
      raw: ['impersonate-user', 'foo@example.com', 'IMPERSONATE-USER', 'foo@example.com'].concat(
        ['Impersonate-Group', 'g1'],
        ['Impersonate-Group', 'g2'],
      ),
    },
    {
      own: 'the own user and all groups',
      raw: ['Impersonate-Group', 'g2', 'Impersonate-User', 'foo@example.com', 'Impersonate-Group', 'g1'],
    },
    {
      own: 'the own user, all groups and the group of every user',
      raw: ['Impersonate-User', 'foo@example.com', 'Impersonate-Group', 'g1'].concat(
        ['Impersonate-Group', 'g2'],
        ['Impersonate-Group', 'system:authenticated'],
      ),
    },
  ])('accepts $own, and adds nothing to the request', ({ raw }) => {
    expect(auth(['Accept', 'a', ...raw])).toEqual(['Host', HOST, 'Accept', 'a', ...OURS]);
  });

  it.each([[[]], [['system:authenticated']]])('accepts the own user if its groups are %j', (groups) => {
    const target = { user: 'foo@example.com', groups };
    expect(auth(['Impersonate-User', 'foo@example.com'], target)).toContain('foo@example.com');
  });

  it('names the option to leave out in the refusal of the own user without its groups', () => {
    expect(() => auth(['Impersonate-User', 'foo@example.com'])).toThrow(/Leave out --as/);
  });

  it('compares names outside ASCII as the bytes of the header', () => {
    const user = 'jürgen@例え';
    const bytes = Buffer.from(user).toString('latin1');
    expect(auth(['Impersonate-User', bytes], { user, groups: [] })).toContain(bytes);
    expect(() => auth(['Impersonate-User', user], { user })).toThrow(REFUSED);
    expect(() => auth(['Impersonate-User', Buffer.from('jurgen@例え').toString('latin1')], { user })).toThrow(
      IMPERSONATION_REFUSED,
    );
  });

  it.each([
    { other: 'the group of every user without the user', raw: ['Impersonate-Group', 'system:authenticated'] },
    {
      other: 'only the group of every user',
      raw: ['Impersonate-User', 'foo@example.com', 'Impersonate-Group', 'system:authenticated'],
    },
    { other: 'an empty group', raw: ['Impersonate-User', 'foo@example.com', 'Impersonate-Group', ''] },
  ])('refuses $other', ({ raw }) => {
    expect(() => auth(raw)).toThrow(IMPERSONATION_REFUSED);
  });

  it('B12 refuses two Host headers', () => {
    expect(() => auth(['Host', 'a', 'host', 'a'])).toThrow(REFUSED);
    expect(() => noauth(['Host', 'a', 'HOST', 'b'])).toThrow(REFUSED);
  });

  it('refuses values that no line can hold', () => {
    for (const value of ['a\r\nImpersonate-User: admin', 'a\0', '\u010a']) {
      expect(() => auth(['Accept', value])).toThrow(REFUSED);
      expect(() => noauth(['Accept', value])).toThrow(REFUSED);
    }
  });
});

describe('noauth mode', () => {
  it("passes the client's own credential on and adds nothing", () => {
    const raw = [
      'Host',
      'gw',
      'Authorization',
      'Bearer theirs',
      'Impersonate-User',
      'x',
      'Impersonate-Extra-a%2fb',
      'c',
      'Cookie',
      'd',
      'Sec-WebSocket-Protocol',
      'base64url.bearer.authorization.k8s.io.dG9r, v5.channel.k8s.io',
      'Audit-ID',
      'e',
    ];
    expect(noauth(raw)).toEqual(['Host', HOST, ...raw.slice(2)]);
  });
});

describe('request headers', () => {
  const extra = [['tailcast.dev/node', 'n1']] as const;
  const build = (rawHeaders: readonly string[], passImpersonation = true, judged = false): RawHeaders =>
    buildUpstreamHeaders({
      rawHeaders,
      host: HOST,
      identity: { mode: 'requestHeader', target: { ...TARGET, extra }, uid: '7', passImpersonation },
      judged,
    });
  const REMOTE = [
    'Host',
    HOST,
    'X-Remote-Uid',
    '7',
    'X-Remote-User',
    'foo@example.com',
    'X-Remote-Group',
    'g1',
    'X-Remote-Group',
    'g2',
    'X-Remote-Extra-tailcast.dev%2Fnode',
    'n1',
  ];

  it('replace those of the client, and the credential', () => {
    const forged = [
      'X-Remote-User',
      'root',
      'x-remote-group',
      'system:masters',
      'X-Remote-Uid',
      '0',
      'X-Remote-Extra-Authorization.kcp.io%2fwarrant',
      'w',
      'X-REMOTE-EXTRA-a',
      'b',
      'X-Remote-Foo',
      'c',
      'Connection',
      'X-Remote-User',
      'Authorization',
      'Bearer theirs',
    ];
    expect(build(forged)).toEqual(REMOTE);
  });

  it.each(['X_Remote_User', 'X.Remote.User', 'x-remote_group'])('refuse %s or drop it', (name) => {
    let sent: RawHeaders = REMOTE;
    try {
      sent = build([name, 'root']);
    } catch (error) {
      expect(error).toEqual(REFUSED);
    }
    expect(sent).toEqual(REMOTE);
  });

  it('leave --as to the API server, except when it is judged or must not pass', () => {
    const as = ['Impersonate-User', 'bob', 'Impersonate-Group', 'g', 'Impersonate-Uid', '1'];
    expect(build(as)).toEqual(['Host', HOST, ...as, ...REMOTE.slice(2)]);
    expect(build(as, true, true)).toEqual(REMOTE);
    expect(() => build(as, false)).toThrow(IMPERSONATION_REFUSED);
    expect(() => build(['Impersonate-Other', 'x'])).toThrow(REFUSED);
  });
});
