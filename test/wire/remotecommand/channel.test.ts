import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  CHANNEL,
  decodeBase64Message,
  encodeBase64Message,
  isBearerSubprotocol,
  parseSubprotocol,
  splitProtocolLines,
} from '../../../src/wire/remotecommand/channel.ts';
import { list, thrownBy, utf8 } from '../bytes.ts';

describe('channel subprotocols', () => {
  it.each([
    ['v5.channel.k8s.io', 5, false],
    ['v4.channel.k8s.io', 4, false],
    ['v3.channel.k8s.io', 3, false],
    ['v2.channel.k8s.io', 2, false],
    ['channel.k8s.io', 1, false],
    ['', 1, false],
    ['v4.base64.channel.k8s.io', 4, true],
    ['base64.channel.k8s.io', 1, true],
  ])('reads %j', (name, version, base64) => {
    expect(parseSubprotocol(name)).toEqual({ version, base64 });
  });

  it.each([
    'v1.channel.k8s.io',
    'v6.channel.k8s.io',
    'v5.base64.channel.k8s.io',
    'V4.channel.k8s.io',
    ' v4.channel.k8s.io',
    'base64.binary.k8s.io',
    'SPDY/3.1+portforward.k8s.io',
    'constructor',
  ])('does not know %j', (name) => {
    expect(parseSubprotocol(name)).toBeUndefined();
  });

  it('recognises a bearer token in any case', () => {
    expect(isBearerSubprotocol('base64url.bearer.authorization.k8s.io.c2VjcmV0')).toBe(true);
    expect(isBearerSubprotocol('Base64Url.Bearer.Authorization.K8s.io.c2VjcmV0')).toBe(true);
    expect(isBearerSubprotocol('v4.channel.k8s.io')).toBe(false);
  });

  it('splits header lines with one or several names each', () => {
    expect(splitProtocolLines(['v5.channel.k8s.io, v4.channel.k8s.io', 'channel.k8s.io', ' , '])).toEqual([
      'v5.channel.k8s.io',
      'v4.channel.k8s.io',
      'channel.k8s.io',
    ]);
  });
});

describe('base64 messages', () => {
  it('reads what a browser sends', () => {
    const { channel, data } = decodeBase64Message(utf8('4eyJXaWR0aCI6ODB9'));
    expect(channel).toBe(CHANNEL.resize);
    expect(Buffer.from(data).toString()).toBe('{"Width":80}');
    expect(decodeBase64Message(utf8('1'))).toEqual({ channel: 1, data: new Uint8Array(0) });
  });

  it('round-trips', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 9 }), fc.uint8Array(), (channel, data) => {
        const message = decodeBase64Message(encodeBase64Message({ channel, data }));
        expect([message.channel, list(message.data)]).toEqual([channel, list(data)]);
      }),
    );
  });

  it.each(['', 'x', '/AAAA', ':AAAA', '1AAA', '1AA A'])('refuses %j', (text) => {
    expect(thrownBy(() => decodeBase64Message(utf8(text))).code).toBe('malformed');
  });

  it.each([CHANNEL.close, 10, -1, 0.5])('does not write channel %j', (channel) => {
    expect(thrownBy(() => encodeBase64Message({ channel, data: utf8('') })).code).toBe('malformed');
  });
});
