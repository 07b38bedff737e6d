import { describe, expect, it } from 'vitest';
import {
  CHANNEL,
  encodeBase64Message,
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

  it('splits header lines with one or several names each', () => {
    expect(splitProtocolLines(['v5.channel.k8s.io, v4.channel.k8s.io', 'channel.k8s.io', ' , '])).toEqual([
      'v5.channel.k8s.io',
      'v4.channel.k8s.io',
      'channel.k8s.io',
    ]);
  });
});

describe('base64 messages', () => {
  it('are a digit and base64', () => {
    const resize = { channel: CHANNEL.resize, data: utf8('{"Width":80}') };
    expect(list(encodeBase64Message(resize))).toEqual(list(utf8('4eyJXaWR0aCI6ODB9')));
    expect(list(encodeBase64Message({ channel: 9, data: new Uint8Array(0) }))).toEqual(list(utf8('9')));
  });

  it.each([CHANNEL.close, 10, -1, 0.5])('does not write channel %j', (channel) => {
    expect(thrownBy(() => encodeBase64Message({ channel, data: utf8('') })).code).toBe('malformed');
  });
});
