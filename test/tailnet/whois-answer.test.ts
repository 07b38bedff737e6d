import { describe, expect, it } from 'vitest';
import type { TailcastError } from '../../src/errors.ts';
import { parseWhoisAnswer } from '../../src/tailnet/whois-answer.ts';
import { taggedNode, userNode } from '../support/local-api-double.ts';

const strict = { allowShared: false };

function parse(body: unknown): ReturnType<typeof parseWhoisAnswer> {
  return parseWhoisAnswer(typeof body === 'string' ? body : JSON.stringify(body), strict);
}

function codeOf(body: unknown): string {
  try {
    parse(body);
  } catch (error) {
    return (error as TailcastError).code;
  }
  return 'accepted';
}

const withLogin = (LoginName: unknown): unknown => ({ ...userNode(), UserProfile: { ID: 1, LoginName } });

describe('a whois answer', () => {
  it('keeps user IDs beyond 2^53 exact', () => {
    const text = JSON.stringify(userNode()).replace('"User":1', '"User":9007199254740993');
    expect(parse(text)).toMatchObject({ kind: 'user', userId: 9_007_199_254_740_993n });
  });

  it('makes a tagged node an identity of its own, not the placeholder user', () => {
    const identity = parse(taggedNode(['tag:foo', 'tag:bar']));
    expect(identity).toMatchObject({
      kind: 'tagged',
      nodeName: 'ci.lab.ts.net',
      tags: ['tag:foo', 'tag:bar'],
    });
    expect(identity).not.toHaveProperty('login');
    expect(identity.capabilities.size).toBe(0);
  });

  it('ignores members it does not use', () => {
    const body = userNode({ Hostinfo: { OS: 'linux' }, KeyExpiry: '2027-01-01T00:00:00Z', Online: true });
    expect(codeOf({ ...body, Whatever: 1 })).toBe('accepted');
  });

  it.each([
    ['CAPMAP', (body: object) => ({ ...body, CAPMAP: {} })],
    ['node', (body: object) => ({ ...body, node: {} })],
    ['tagſ', () => userNode({ tagſ: ['tag:a'] })],
    ['SHARER', () => userNode({ SHARER: 7 })],
    ['loginname', (body: object) => ({ ...body, UserProfile: { LoginName: 'a@b', loginname: 'c@d' } })],
  ])('refuses %s: Go would take it for the member that we use', (_name, change) => {
    expect(codeOf(change(userNode()))).toBe('IDENTITY_MALFORMED');
  });

  it('holds a thousand rules of a capability, and not one more', () => {
    const withRules = (count: number): unknown => ({
      ...userNode(),
      CapMap: { 'tailscale.com/cap/kubernetes': Array.from({ length: count }, () => ({})) },
    });
    expect(codeOf(withRules(1000))).toBe('accepted');
    expect(codeOf(withRules(1001))).toBe('IDENTITY_MALFORMED');
  });

  it('takes null lists as empty and null capability lists as no rules', () => {
    const body = { ...userNode({ Tags: null, Addresses: null }), CapMap: { a: null } };
    expect(parse(body)).toMatchObject({ addresses: [], capabilities: new Map([['a', []]]) });
  });

  it('names nobody when there is neither an owner nor a tag', () => {
    expect(codeOf({ ...userNode({ User: 0 }), UserProfile: { LoginName: '' } })).toBe('IDENTITY_UNKNOWN');
    expect(codeOf({ ...userNode({ User: undefined }), UserProfile: null })).toBe('IDENTITY_UNKNOWN');
  });

  it.each([
    ['empty', ''],
    ['only spaces', '   '],
    ['the placeholder of tagged nodes', 'tagged-devices'],
    ['with a space before', ' alice@example.com'],
    ['with a space after', 'alice@example.com '],
    ['with CR and LF', 'alice\r\nImpersonate-Group: system:masters'],
    ['with NUL', 'alice\u0000'],
    ['not ASCII', 'аlice@example.com'],
    ['longer than 256', 'a'.repeat(257)],
    ['a number', 7],
    ['null', null],
  ])('refuses a login name that is %s', (_what, login) => {
    expect(codeOf(withLogin(login))).toBe('IDENTITY_MALFORMED');
  });

  it('takes a login name of 256 characters', () => {
    expect(codeOf(withLogin('a'.repeat(256)))).toBe('accepted');
  });

  it.each([
    ['no node', { UserProfile: {} }],
    ['an empty StableID', userNode({ StableID: '' })],
    ['an empty name', userNode({ Name: '' })],
    ['a name that is only a dot', userNode({ Name: '.' })],
    ['a name with a line break', userNode({ Name: 'a\nb' })],
    ['a tag without its prefix', userNode({ Tags: ['foo'] })],
    ['a tag that is only the prefix', userNode({ Tags: ['tag:'] })],
    ['tags that are no list', userNode({ Tags: 'tag:ci' })],
    ['an invalid address', userNode({ Addresses: ['example.com/32'] })],
    ['an expired key', userNode({ Expired: true })],
    ['capabilities that are no map', { ...userNode(), CapMap: [] }],
    ['a capability that is no list', { ...userNode(), CapMap: { a: {} } }],
    ['a fraction as user ID', userNode({ User: 1.5 })],
    ['null', null],
    ['no JSON', '<html>'],
    ['nothing', ''],
  ])('refuses %s', (_what, body) => {
    expect(codeOf(body)).toBe('IDENTITY_MALFORMED');
  });

  it('refuses a member that occurs twice, wherever it is', () => {
    const text = JSON.stringify(userNode());
    expect(codeOf(text.replace('"User":1', '"User":1,"User":2'))).toBe('IDENTITY_MALFORMED');
    const grant = text.replace('"groups":["readers"]', '"groups":[],"gr\\u006fups":["readers"]');
    expect(grant).not.toBe(text);
    expect(codeOf(grant)).toBe('IDENTITY_MALFORMED');
  });

  it('does not take a string for a member', () => {
    expect(codeOf({ ...userNode(), X: ['a', 'a', '{"a":1,"a":2}', { a: ['a'], b: { a: 1 } }] })).toBe(
      'accepted',
    );
  });

  it('takes a node shared in from another tailnet only when told to', () => {
    const shared = JSON.stringify(userNode({ Sharer: 12 }));
    expect(codeOf(shared)).toBe('IDENTITY_MALFORMED');
    expect(parseWhoisAnswer(shared, { allowShared: true }).nodeId).toBe('nAlice');
  });
});
